"""A simulation at its limits: more speed than the machine has, full memory, and a fault of a whole node."""

import pytest
import structlog
from tests.unit.exporter.simulate.test_simulate_fleet import SECOND, START, Watched
from typer.testing import CliRunner

from kernelcast.exporter.simulate import BACKGROUNDS, FAULTS, SimulatedFleet, SimulationSettings, fleet, parse
from kernelcast.exporter.simulate.command import simulate
from kernelcast.exporter.simulate.process import RankPlacement
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import Device


def test_a_speed_that_the_machine_cannot_compute_bounds_each_poll_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(1_000))  # each step takes a second
    simulated = SimulatedFleet(
        SimulationSettings(gpus=1, kernels=1),
        start_ns=START,
        speed=1e6,
        duration_seconds=40.0,
        monotonic=lambda: float(next(seconds)),
    )
    simulated.longest_poll_seconds = 10.0
    with structlog.testing.capture_logs() as lines:
        monkeypatch.setattr(fleet, "_log", structlog.get_logger())
        batches = [simulated.poll(START + second * SECOND) for second in (1, 2, 3, 4)]
    assert [batch.done for batch in batches] == [False, False, False, True]
    assert all(batch.reports for batch in batches), "what there is so far is published"
    assert simulated.position_seconds == 40
    assert [line["event"] for line in lines] == ["this machine cannot simulate as fast as asked"]


@pytest.mark.parametrize("speed", ["1e308", "1e7"])
def test_a_speed_beyond_any_machine_is_refused(speed: str) -> None:
    answer = CliRunner().invoke(simulate, ["--speed", speed])
    assert answer.exit_code == 2
    assert "give less, or max" in answer.stderr


@pytest.mark.slow
def test_memory_that_is_nearly_full_from_the_beginning_restarts_no_program() -> None:
    watched = Watched("preallocated-memory:share=0.99")
    assert len({report.process.nonce for batch in watched.batches for report in batch.reports}) == 4


@pytest.mark.parametrize("share", ["0", "1"])
def test_a_share_of_memory_that_no_program_can_hold_is_refused(share: str) -> None:
    with pytest.raises(ConfigurationError, match=r"0\.01 to 0\.99"):
        parse(f"preallocated-memory:share={share}", BACKGROUNDS, option="--background")


@pytest.mark.parametrize(
    ("fault", "nodes", "gpus"), [("xid-79:gpu=all,start=3s", 1, 8), ("xid-79:node=all,gpu=0,start=3s", 4, 2)]
)
def test_ranks_that_end_together_end_once(fault: str, nodes: int, gpus: int) -> None:
    settings = SimulationSettings(nodes=nodes, gpus=gpus, kernels=2, faults=(parse(fault, FAULTS, option="--fault"),))
    simulated = SimulatedFleet(settings, start_ns=START)
    batches = [simulated.poll(START + second * SECOND) for second in range(1, 6)]
    assert sum(report.final for batch in batches for report in batch.reports) == nodes * gpus


def test_a_fault_that_has_not_begun_is_no_part_of_the_truth() -> None:
    """A truth file is compared with findings: a fault after the end would count as missed."""
    watched = Watched("hot-but-stable", "thermal-drift:start=20s", "memory-leak:start=40s", seconds=30)
    assert [record["fault"] for record in watched.fleet.ground_truth()] == ["hot-but-stable", "thermal-drift"]
    watched = Watched("thermal-drift:start=" + "9" * 400, seconds=10)
    assert watched.fleet.ground_truth() == []


@pytest.mark.parametrize("duration", ["1e300", "1e10"])
def test_a_past_that_would_begin_before_1970_is_refused(duration: str) -> None:
    answer = CliRunner().invoke(simulate, ["--gpus", "1", "--speed", "max", "--duration", duration])
    assert answer.exit_code == 2
    assert "duration_seconds is 1e+" in answer.stderr


class CountedPlace:
    """A place that counts how often its device is asked for."""

    asked = 0

    def __init__(self, place: RankPlacement) -> None:
        self._place = place
        self.program, self.rank, self.seed = place.program, place.rank, place.seed

    @property
    def device(self) -> Device:
        CountedPlace.asked += 1
        return self._place.device


def test_the_work_for_a_gpu_does_not_grow_with_the_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    place = fleet._place
    monkeypatch.setattr(fleet, "_place", lambda *arguments: CountedPlace(place(*arguments)))
    asked = []
    for nodes in (4, 16):
        simulated = SimulatedFleet(SimulationSettings(nodes=nodes, gpus=2, kernels=1), start_ns=START)
        CountedPlace.asked = 0
        simulated.poll(START + SECOND)
        asked.append(CountedPlace.asked / nodes)
    assert asked[0] == asked[1]
