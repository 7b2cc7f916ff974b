"""Slow workers of a running program: messages of its ranks in, findings out, in event time."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from tests.service.require import shared_data
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.predictor.cycle.faults.stragglers import straggler
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.peers import Basis, WorkerFinding
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Severity
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels

EXPORTER = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))
PARTITION: Partition = ("kernelcast.kernels", 0)
BLOCK_SECONDS = 300
REPORT_SECONDS = 60

Durations = Callable[[int, int, str], float]
"""Milliseconds of a kernel of a rank at a step."""


class Job:
    """Ranks of one program whose steps take a block each, and an engine with a cycle at the end of each block."""

    def __init__(self, ranks: int, kernels: Callable[[int], tuple[str, ...]], duration: Durations) -> None:
        self.second = 0
        self.engine = Engine(PredictorSettings(client_id="test"), clock_ns=lambda: self.now_ns)
        self._kernels, self._duration = kernels, duration
        self.ranks = ranks
        self.totals: dict[tuple[int, str], DurationTotals] = {}
        self.begun = dict.fromkeys(range(ranks), START_SECONDS)
        self.found: dict[int, list[Finding]] = {}

    @property
    def now_ns(self) -> int:
        return (START_SECONDS + self.second) * SECOND_NS

    @property
    def step(self) -> int:
        """Number of the present step."""
        return max(self.second - 1, 0) // BLOCK_SECONDS

    def restart(self, rank: int) -> None:
        """Begin a new process of a rank."""
        self.begun[rank] = START_SECONDS + self.second
        self.totals = {key: totals for key, totals in self.totals.items() if key[0] != rank}

    def run(self, steps: int) -> None:
        for _ in range(steps * BLOCK_SECONDS // REPORT_SECONDS):
            self.second += REPORT_SECONDS
            bodies = [each.body for each in encode(EXPORTER, self.samples(), scope="test")]
            self.engine.take(bodies, [PARTITION] * len(bodies), {PARTITION: self.second})
            if self.second % BLOCK_SECONDS:
                continue
            found = [one for one in self.engine.run_cycle().candidates if one.cause is Cause.STRAGGLER]
            for one in found:
                self.found.setdefault(int(dict(one.labels)["rank"]), []).append(one)
            self.last = found

    def samples(self) -> list[Sample]:
        found = []
        for rank in range(self.ranks):
            words = {"Hostname": f"n{rank // 8}", "UUID": f"GPU-{rank}", "gpu": str(rank % 8), "program": "train"}
            for name in self._kernels(rank):
                totals = self.totals.setdefault((rank, name), DurationTotals())
                totals.observe(round(1e6 * self._duration(self.step, rank, name)), 10)
                own = labels(**words, rank=str(rank), kernel=name, kernel_class="compute")
                found.append(Sample(kernel.DURATION, own, self.now_ns, totals.copy(), self.begun[rank] * SECOND_NS))
        return found


def usual(_rank: int) -> tuple[str, ...]:
    return "forward", "backward"


def steady(seed: int, slow: Callable[[int, int], float]) -> Durations:
    rng = np.random.default_rng(seed)

    def duration(step: int, rank: int, name: str) -> float:
        return (1.0 if name == "forward" else 2.0) * slow(step, rank) * (1 + 0.01 * rng.standard_normal())

    return duration


def test_a_rank_that_becomes_slow_is_named_within_three_steps_with_its_peers_as_evidence() -> None:
    job = Job(8, usual, steady(1, lambda step, rank: 1.3 if rank == 5 and step >= 6 else 1.0))
    job.run(6)
    assert job.found == {}
    job.run(4)
    assert set(job.found) == {5}
    first = job.found[5][0]
    assert (first.state, first.severity, dict(first.labels)["UUID"]) == (FindingState.OBSERVED, Severity.PAGE, "GPU-5")
    assert first.updated_ns <= (START_SECONDS + 9 * BLOCK_SECONDS) * SECOND_NS
    (fact,) = first.evidence
    assert fact.against == "peers"
    assert fact.value == pytest.approx(1.3 * (fact.reference or 0.0), rel=0.05)


@pytest.mark.parametrize("minutes", [45, 24 * 60])
def test_a_slow_rank_is_named_at_once_after_clocks_that_were_ahead_are_set_back(minutes: int) -> None:
    slow = {5: 1.0}
    job = Job(8, usual, steady(3, lambda _step, rank: slow.get(rank, 1.0)))
    job.run(6)
    job.second += minutes * 60
    job.run(1)
    job.second -= minutes * 60
    job.run(4)
    assert job.found == {}
    slow[5] = 1.3
    job.run(4)
    assert set(job.found) == {5}


def test_a_finding_ends_when_the_rank_is_as_fast_as_the_others() -> None:
    job = Job(8, usual, steady(2, lambda step, rank: 1.3 if rank == 5 and 4 <= step < 10 else 1.0))
    job.run(10)
    assert {dict(one.labels)["rank"] for one in job.last} == {"5"}
    job.run(10)
    assert job.last == []


def test_ranks_of_a_stage_that_was_heavier_from_the_first_step_on_are_not_named() -> None:
    job = Job(8, usual, steady(4, lambda _step, rank: 1.3 if rank >= 6 else 1.0))
    job.run(14)
    assert job.found == {}


@pytest.mark.parametrize("rank", [2, 7])
def test_a_rank_that_becomes_slow_is_named_within_three_steps_beside_a_heavier_stage(rank: int) -> None:
    def slow(step: int, other: int) -> float:
        return (1.3 if other >= 6 else 1.0) * (1.2 if other == rank and step >= 8 else 1.0)

    job = Job(8, usual, steady(5, slow))
    job.run(8)
    assert job.found == {}
    job.run(4)
    assert set(job.found) == {rank}
    first = job.found[rank][0]
    assert first.updated_ns <= (START_SECONDS + 11 * BLOCK_SECONDS) * SECOND_NS
    (fact,) = first.evidence
    assert fact.against == ("baseline" if rank >= 6 else "peers")
    assert fact.value == pytest.approx(1.2 * (fact.reference or 0.0), rel=0.05)


def test_ranks_with_other_kernels_are_no_peers_and_a_rank_that_restarts_is_not_slow() -> None:
    def kernels(rank: int) -> tuple[str, ...]:
        return (*usual(rank), "loss") if rank >= 4 else usual(rank)

    cold = {7: 8}

    def slow(step: int, rank: int) -> float:
        return (1.4 if rank >= 4 else 1.0) * (1.5 if step in (7, 8, 9) and cold.get(7) and rank == 2 else 1.0)

    job = Job(8, kernels, steady(3, slow))
    job.run(7)
    job.restart(2)
    job.run(8)
    assert job.found == {}


def test_the_recorded_slow_worker_is_named_within_three_steps_and_no_other() -> None:
    rows = pd.read_csv(shared_data("straggler", "trace-AR.csv.gz"))
    rows = rows[rows["optype"].isin(("forward-compute", "backward-compute"))]
    replicas = int(rows["dp_rank"].max()) + 1
    rows["worker"] = rows["stage"] * replicas + rows["dp_rank"]
    steps = sorted(rows["step"].unique())
    mean = rows.groupby(["step", "worker", "optype"])["duration"].mean().to_dict()
    kernels = rows.groupby("worker")["optype"].unique().to_dict()
    job = Job(
        int(rows["worker"].max()) + 1,
        lambda rank: tuple(f"{name} of stage {rank // replicas}" for name in kernels[rank]),
        lambda step, rank, name: 1e3 * mean[steps[step], rank, name.partition(" ")[0]],
    )
    job.run(3)
    assert set(job.found) == {0}
    job.run(len(steps) - 3)
    assert set(job.found) == {0}


def test_a_site_without_kernels_has_a_cycle_without_an_error() -> None:
    engine = Engine(PredictorSettings(client_id="test"), clock_ns=lambda: (START_SECONDS + 60) * SECOND_NS)
    words = labels(Hostname="n0", UUID="GPU-0", gpu="0")
    temperature = Sample(device.GPU_TEMP, words, (START_SECONDS + 50) * SECOND_NS, 60.0)
    bodies = [each.body for each in encode(EXPORTER, [temperature], scope="test")]
    engine.take(bodies, [PARTITION] * len(bodies), {PARTITION: 1})
    assert not engine.run_cycle().candidates


@pytest.mark.parametrize(("ratio", "severity"), [(1.3, Severity.PAGE), (1.06, Severity.TICKET)])
@pytest.mark.parametrize(("basis", "against"), [(Basis.PEERS, "peers"), (Basis.OWN_PAST, "baseline")])
def test_a_slow_worker_is_a_straggler_with_its_time_and_that_of_its_reference(
    ratio: float, severity: Severity, basis: Basis, against: str
) -> None:
    own = (("program", "train"), ("rank", "3"))
    found = straggler(WorkerFinding(3, basis, ratio, 7, 9, None, 3, ratio * 0.2, 0.2, 7), own, 10, 20)
    (fact,) = found.evidence

    assert (found.cause, found.severity) == (Cause.STRAGGLER, severity)
    assert (fact.value, fact.reference, fact.against) == (ratio * 0.2, 0.2, against)
    assert (fact.labels, fact.begin_ns, fact.end_ns) == (own, 10, 20)
