"""The program of `lab.tune_replay --through kafka` keeps the configuration that the tuner alone keeps."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab.replay.client import MeasuredLaunches, OracleError, Task
from lab.replay.program import ReplayedProgram, main
from lab.replay.run import document, replay

from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.tuning.campaign import Campaign
from kernelcast.tuning.space import Space
from kernelcast.wire.events import OutcomeState

SPACE = Space.listed("grid", {"x": list(range(9))}, start=[8], valid=[[x] for x in range(9)])
TASK = Task(SPACE, 9, "GPU", "ms")


class RecordedOracle:
    """Answers with a time for each value; one fails, and after a limit it refuses."""

    def __init__(self, limit: int = 10_000) -> None:
        self.left = limit
        self.launches = 0

    def space(self, seed: int) -> Task:
        del seed
        return TASK

    def measure(self, configuration: Sequence[Any], launches: int) -> MeasuredLaunches:
        if configuration[0] == 7:
            return MeasuredLaunches(failed="runtime")
        if self.left < launches:
            return MeasuredLaunches(refused="too many launches")
        self.left -= launches
        self.launches += launches
        return MeasuredLaunches(times=(10.0 + abs(configuration[0] - 3),) * launches)

    def verdict(self, verdict: Any) -> None:
        del verdict

    def end(self, kept: Any) -> None:
        del kept


@pytest.fixture
def probe() -> Iterator[Probe]:
    made = Probe(ProbeSettings("p"))
    yield made
    made.abandon()


def program(oracle: Any, probe: Probe) -> tuple[ReplayedProgram, Campaign]:
    campaign = Campaign(SPACE, seed=1, budget=9)
    return ReplayedProgram(oracle, TASK, campaign, probe), campaign


def test_the_program_keeps_what_the_tuner_alone_keeps(probe: Probe) -> None:
    running, campaign = program(RecordedOracle(), probe)
    verdicts = running.run()
    alone: Any = RecordedOracle()
    expected = replay(alone, seed=1, budget=9, devices=()).document
    found = document(campaign, 1)
    assert {**found, "suggest_ms_median": 0} == {**expected, "suggest_ms_median": 0}
    assert found["kept"] == [3]
    states = [(one.state, one.facts.get("decision")) for one in running.reported]
    assert states[0] == (OutcomeState.APPLIED, None)
    assert (OutcomeState.ROLLED_BACK, "failed") in states
    assert states[-1] == (OutcomeState.KEPT, "kept")
    assert verdicts == [running.reported[-1].trial_id]


def test_a_refused_launch_ends_the_seed_and_blames_no_configuration(probe: Probe) -> None:
    running, _ = program(RecordedOracle(limit=5), probe)
    with pytest.raises(OracleError, match="refused a launch: too many launches"):
        running.run()


def test_measurements_that_cannot_be_used_are_named_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a100.json").write_text("{}")
    options = ["--program", "p", "--seed", "1", "--budget", "9", "--warm-from", str(tmp_path / "a100.json")]
    assert main([str(tmp_path / "socket"), *options]) == 1
    assert "a100.json is no Kernel Tuner cache file" in capsys.readouterr().err
