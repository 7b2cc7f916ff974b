"""Kept values of collective tunables and spaces are checked again, by all ranks together."""

import random
from pathlib import Path

import pytest
from tests.support.probe.ranks import Job, Meetings, RankProgram, same

from kernelcast.probe.tunables import Terms
from kernelcast.probe.tuned.space import SpaceTerms
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal, JournalMachine
from kernelcast.wire.events import SEARCH_PREFIX, Outcome

HOUR = 3600.0
BETTER = {48: 0.10, 64: 0.09, 128: 0.08}
WORSE = {48: 0.10, 64: 0.09, 128: 0.13}


class Ranks:
    """Three ranks with a collective tunable, whose hint for 128 comes at the step of this number."""

    def __init__(self, directory: Path, *, hint_at: int | None = 30) -> None:
        self.directory = directory
        self.hint_at = hint_at
        self.meetings = Meetings(3)
        self.programs = [
            RankProgram(
                rank,
                Terms(scope="collective", group=self.meetings.of(rank)),
                directory=directory / str(rank),
            )
            for rank in range(3)
        ]

    def run(self, *parts: tuple[int, dict[int, float]]) -> None:
        """Run some steps of these times, let an hour pass, run the next ones."""

        def body(program: RankProgram) -> None:
            drawn, number = random.Random(program.rank), 0
            journal = program.context.journal
            program.register(restored=journal.kept("batch", "v1") if journal else None)
            for steps, times in parts:
                for _ in range(steps):
                    if number == self.hint_at:
                        program.hear()
                    program.step(times[program.batch.value] * drawn.lognormvariate(0, 0.01))
                    number += 1
                program.step(HOUR)
            program.receiver.close()

        Job(self.programs).run(body)
        assert same([program.values for program in self.programs])

    def checks(self, rank: int) -> list[Outcome]:
        return [one for one in self.programs[rank].outcomes.history if one.hint_id.startswith(SEARCH_PREFIX)]

    @property
    def values(self) -> list[int]:
        return self.programs[0].values


def test_a_value_that_all_ranks_have_kept_is_checked_after_an_hour_and_stays(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path)
    ranks.run((500, BETTER), (500, BETTER), (500, BETTER))
    assert set(ranks.values[300:500]) == {128}, "not before the hour"
    assert set(ranks.values[501:1001]) == {48, 128}
    assert set(ranks.values[1002:]) == {128}, "once"
    for rank in range(3):
        begun, ended = ranks.checks(rank)
        assert (begun.state.value, ended.state.value, ended.decision) == ("applied", "kept", "kept")
        assert ended.reason.startswith("checked again: ")
        assert (ended.tunable, ended.value, ended.candidate) == ("batch", "128", "128")
        assert ended.measured_ratio == pytest.approx(0.8, rel=0.02)
    assert Journal(tmp_path / "2", "training").kept("batch", "v1") == "128"


def test_a_value_that_has_become_worse_is_taken_back_on_all_ranks_for_good(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path)
    ranks.run((500, BETTER), (600, WORSE), (300, WORSE))
    assert ranks.values[500] == 128
    assert set(ranks.values[1000:]) == {48}
    for rank in range(3):
        ended = ranks.checks(rank)[-1]
        assert (ended.state.value, ended.decision, ended.value) == ("rolled_back", "rolled_back", "48")
        assert Journal(tmp_path / str(rank), "training").kept("batch", "v1") is None


@pytest.mark.parametrize(
    ("age_seconds", "driver", "is_checked"), [(60, "", False), (60, "550.54", True), (HOUR, "", True)]
)
def test_a_restored_value_is_checked_if_it_is_an_hour_old_or_of_another_driver(
    age_seconds: float, driver: str, *, is_checked: bool, tmp_path: Path
) -> None:
    ranks = Ranks(tmp_path, hint_at=None)
    for rank in range(3):
        kept_at = ranks.programs[rank].now_ns / 1e9 - age_seconds
        machine = JournalMachine(driver=driver)
        journal = Journal(tmp_path / str(rank), "training", clock=lambda at=kept_at: at, machine=machine)  # type: ignore[misc]
        journal.end("batch", "128", Decision.KEPT, "v1")
    again = Ranks(tmp_path, hint_at=None)
    again.run((500, BETTER))
    assert again.values[0] == again.values[-1] == 128
    assert (48 in again.values) is is_checked
    assert [len(again.checks(rank)) for rank in range(3)] == [2 if is_checked else 0] * 3


def test_a_restored_value_that_was_kept_by_a_clock_ahead_is_checked_after_an_hour(tmp_path: Path) -> None:
    for rank in range(3):
        journal = Journal(tmp_path / str(rank), "training", clock=lambda: 1e9)
        journal.end("batch", "128", Decision.KEPT, "v1")
    again = Ranks(tmp_path, hint_at=None)
    again.run((500, BETTER), (500, BETTER))
    assert 48 not in again.values[:500]
    assert 48 in again.values[500:]


def test_a_space_that_the_ranks_have_searched_is_checked_after_an_hour(tmp_path: Path) -> None:
    meetings = Meetings(3)
    programs = [RankProgram(rank, Terms(), directory=tmp_path / str(rank)) for rank in range(3)]

    def body(program: RankProgram) -> None:
        terms = SpaceTerms("step", "collective", meetings.of(program.rank))
        program.declare("feed", {"workers": [0, 4]}, {"workers": 0}, terms, share=1.0)
        for step in range(1200):
            program.step(HOUR if step == 800 else 0.1 if program.space.workers == 0 else 0.05)

    Job(programs).run(body)
    shown = [program.configurations for program in programs]
    assert same(shown)
    assert set(shown[0][600:800]) == {"workers=4"}
    assert set(shown[0][801:]) == {"workers=0", "workers=4"}
    assert shown[0][-1] == "workers=4"
