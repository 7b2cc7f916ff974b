"""The simulated fleet, the engine over it, and the scores of its pages."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.predictor.fleet import benchmark
from benchmarks.predictor.fleet.engine import Change, FleetEngine
from benchmarks.predictor.fleet.faults import DRAWS, Injected
from benchmarks.predictor.fleet.layout import DAY_STEPS, IDLE, FleetSize
from benchmarks.predictor.fleet.peers import FIXED, LINEAR, pages_per_day
from benchmarks.predictor.fleet.progress import Progress
from benchmarks.predictor.fleet.recording import Recording, record
from benchmarks.predictor.fleet.score import NONE, paging, score
from benchmarks.predictor.options import Options

from kernelcast.exporter.simulate.physics import SLOWDOWN_TEMP_C
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity

TEMPERATURE = device.GPU_TEMP.prometheus_name


@pytest.fixture(scope="module")
def fleet() -> Recording:
    return record(1, FleetSize(gpus=256, days=4, faults=len(DRAWS)))


def test_the_same_seed_makes_the_same_fleet() -> None:
    size = FleetSize(gpus=16, days=2, faults=1)
    first, again, other = record(1, size), record(1, size), record(2, size)
    for name, values in first.values.items():
        np.testing.assert_array_equal(values, again.values[name])
    assert not np.array_equal(first.values[TEMPERATURE], other.values[TEMPERATURE])


def test_faults_begin_after_the_history_on_nodes_of_their_own(fleet: Recording) -> None:
    assert len(fleet.faults) >= 8
    nodes: list[int] = []
    for fault in fleet.faults:
        assert DAY_STEPS <= fault.onset < fault.end
        nodes += np.unique(fleet.size.node[fault.gpus]).tolist()
    assert len(nodes) == len(set(nodes))


def test_what_is_no_fault_reaches_no_limit(fleet: Recording) -> None:
    healthy = np.ones(fleet.size.gpus, dtype=np.bool_)
    for fault in fleet.faults:
        healthy[fault.gpus] = False
    assert np.nanmax(fleet.values[TEMPERATURE][healthy]) < SLOWDOWN_TEMP_C
    reasons = fleet.values[device.CLOCK_EVENT_REASONS.prometheus_name][healthy]
    assert not (np.nan_to_num(reasons).astype(np.int64) & 0xE8).any()


def test_kernels_run_where_jobs_do(fleet: Recording) -> None:
    running = fleet.job != IDLE
    np.testing.assert_array_equal(np.isfinite(fleet.values[kernel.DURATION.prometheus_name]), running)
    assert 0.5 < running.mean() < 1


def finding(gpu: int, **changes: object) -> Finding:
    made = Finding(
        finding_id=f"f{gpu}",
        cause=Cause.THERMAL,
        state=FindingState.PREDICTED,
        severity=Severity.PAGE,
        scope=Scope.GPU,
        labels=(("Hostname", "r00-n0"), ("UUID", f"GPU-{gpu}")),
        metric=TEMPERATURE,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def scored(fleet: Recording, *changes: Change) -> dict[str, object]:
    fault = Injected("thermal-drift", frozenset({Cause.THERMAL}), Scope.GPU, np.array([3]), 400, 500)
    return score(replace(fleet, faults=[fault]), list(changes))


def test_a_page_is_right_on_the_right_gpu_with_the_right_cause(fleet: Recording) -> None:
    cases = {
        "right": ([Change(410, finding(3))], 1, 1, 0),
        "another GPU": ([Change(410, finding(4))], 0, 0, 1),
        "another cause": ([Change(410, finding(3, cause=Cause.MEMORY_LEAK))], 0, 1, 0),
        "corrected": ([Change(410, finding(3, cause=Cause.UNKNOWN)), Change(415, finding(3))], 1, 1, 0),
        "too early": ([Change(390, finding(3))], 0, 0, 1),
        "held": ([Change(410, finding(3, held=True))], 0, 0, 0),
        "released": ([Change(410, finding(3, held=True)), Change(450, finding(3))], 1, 1, 0),
        "ticket": ([Change(410, finding(3, severity=Severity.TICKET))], 0, 0, 0),
        "node": ([Change(410, finding(3, scope=Scope.NODE, labels=(("Hostname", "r00-n0"),)))], 0, 1, 0),
    }
    for name, (changes, right, paged, false) in cases.items():
        found = scored(fleet, *changes)
        assert (found["right"], found["paged"], len(found["false_pages"])) == (right, paged, false), name  # type: ignore[arg-type]
    assert scored(fleet)["results"] == [
        {
            "kind": "thermal-drift",
            "expected": "thermal",
            "found": NONE,
            "scope": "",
            "right": False,
            "pages": 0,
            "delay_hours": None,
        }
    ]


@pytest.mark.parametrize(
    ("page_step", "passed_step", "paged", "leads"),
    [(440, 460, 1, [100]), (460, 460, 0, [0]), (None, 460, 0, [0]), (430, 430, 1, []), (440, None, 1, [])],
)
def test_a_page_leads_where_it_comes_before_a_limit_that_is_passed_hours_after_the_onset(
    fleet: Recording, page_step: int | None, passed_step: int | None, paged: int, leads: list[int]
) -> None:
    fault = Injected("thermal-drift", frozenset({Cause.THERMAL}), Scope.GPU, np.array([3]), 400, 500)
    changes = [Change(page_step, finding(3))] if page_step is not None else []
    passed = {0: passed_step} if passed_step is not None else {}
    found = paging(replace(fleet, faults=[fault]), changes, passed)
    assert (found["recall"], found["lead_minutes"]) == (paged, leads)
    assert found["precision"] == (1 if changes else None)


def test_the_rules_of_people_page_for_each_series(fleet: Recording) -> None:
    rates = pages_per_day(fleet)
    assert set(rates) == {FIXED, LINEAR}
    assert min(rates.values()) > 1


@pytest.mark.slow
def test_the_engine_pages_a_brake_and_lost_lanes_of_a_small_fleet_once_each() -> None:
    # Seed 7 begins with the fourth of the 11 kinds, the power brake.
    recording = record(7, FleetSize(gpus=24, days=2, faults=2))
    onsets = [fault.onset for fault in recording.faults]
    found = score(recording, list(FleetEngine(recording).run(range(min(onsets) - 3, max(onsets) + 13))))
    assert [(one["expected"], one["right"], one["pages"]) for one in found["results"]] == [
        ("power_brake", True, 1),
        ("pcie_link", True, 1),
    ]
    assert found["false_pages"] == []


@pytest.mark.slow
def test_no_kernel_is_slow_while_the_operator_lowers_the_power_limit() -> None:
    recording = record(4, FleetSize(gpus=128, days=3, faults=8))
    # The clocks of a third of the nodes are 7 % lower from interval 368 to 379; kernels there take 4 % longer.
    capped = recording.values[device.CLOCK_EVENT_REASONS.prometheus_name][:, 368:380] == 4
    assert capped[33].all()
    candidates: list[Finding] = []
    for _ in (engine := FleetEngine(recording)).steps(range(364, 381)):
        candidates += [one.latest for one in engine.alarms.candidates.by_series.values()]
    assert candidates
    assert not [one for one in candidates if one.metric == kernel.DURATION.prometheus_name]


def test_progress_is_a_line_a_minute_in_a_log_and_an_early_line_on_a_terminal(fleet: Recording) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, lines in ((io.StringIO(), 2), (Terminal(), 40)):
        now = iter(range(0, 1000, 3))
        progress = Progress(stream, lambda now=now: next(now))  # type: ignore[misc]
        for step in range(1, 41):
            progress.show(5, fleet, (step, 864), [])
        printed = stream.getvalue()
        assert printed.count("seed 5") == lines
        assert f"step 40 of 864, day 1.14, 0 of {len(fleet.faults)} faults found, 0 pages, about 41 min left" in printed


def test_a_run_that_is_stopped_keeps_the_seeds_that_it_has_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = {"faults": 1, "right": 1, "pages_per_day": 2, "results": [{"expected": "thermal", "found": "thermal"}]}

    def stopped(seed: int, *_: object) -> dict[str, object]:
        if seed == 9:
            raise KeyboardInterrupt
        return {"seed": seed, **done}

    monkeypatch.setattr(benchmark, "run_seed", stopped)
    file = tmp_path / "fleet.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark.run(Options(None, 7, seeds=3, json=file))
    kept = json.loads(file.read_text())
    assert [one["seed"] for one in kept["seeds"]] == [7, 8]
    assert (kept["right"], kept["faults"]) == (2, 2)
