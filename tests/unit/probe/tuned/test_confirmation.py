"""A kept configuration is checked again: at a restart by one experiment instead of a search, and after an hour."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.probe.tuned.test_search_reports import Conv

from kernelcast.probe.tuned import TunedCalls, close
from kernelcast.probe.tuned.rechecks import RECHECK_SECONDS
from kernelcast.probe.tuned.reports import SearchReports
from kernelcast.probe.tuned.terms import CallAccounts, CallTerms
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal
from kernelcast.wire.events import OutcomeState

NAME = "conv.run"


def kept_before(directory: Path, config: str = "[192]") -> Journal:
    Journal(directory, "training").end(NAME, config, Decision.KEPT, "")
    return Journal(directory, "training")


def test_a_restarted_program_confirms_by_one_experiment_instead_of_searching_again(tmp_path: Path) -> None:
    conv = Conv(journal=kept_before(tmp_path))
    seen = [conv.run() for _ in range(600)]
    assert seen[0] == seen[-1] == 192
    assert set(conv.launched) == {16, 192}, "no other configuration is run"
    assert conv.launched.count(16) <= 3, "the start is much slower: two or three launches show it"
    assert conv.states() == [("applied", ""), ("kept", "kept")]
    kept = conv.outcomes[-1]
    assert kept.reason.startswith("checked again: ")
    assert (kept.facts["candidate"], kept.facts["value"]) == ("[192]", "[192]")
    assert kept.facts["measured_ratio"] == pytest.approx((1 - 0.002 * 192) / (1 - 0.002 * 16), rel=0.01)
    assert Journal(tmp_path, "training").kept(NAME) == "[192]"


def test_a_configuration_that_has_become_worse_is_taken_back_and_the_space_searched_again(tmp_path: Path) -> None:
    conv = Conv(gain=-0.002, journal=kept_before(tmp_path))
    assert conv.run() == 192
    for _ in range(1000):
        conv.run()
    first = [(one.state, one.facts.get("decision")) for one in conv.outcomes[:3]]
    assert first == [
        (OutcomeState.APPLIED, None), (OutcomeState.ROLLED_BACK, "rolled_back"), (OutcomeState.APPLIED, None),
    ]  # fmt: skip
    assert conv.run() == 16
    assert Journal(tmp_path, "training").kept(NAME) is None
    assert len(set(conv.launched)) > 2, "it was searched again"


def test_a_configuration_of_which_nothing_is_proved_stays(tmp_path: Path) -> None:
    conv = Conv(gain=0.0, journal=kept_before(tmp_path))
    for _ in range(1500):
        conv.run()
    assert conv.states() == [("applied", ""), ("rolled_back", "inconclusive")] or conv.states()[-1] == ("kept", "kept")
    assert conv.run() == 192
    assert set(conv.launched) == {16, 192}


def test_what_was_kept_is_checked_again_after_an_hour_once(tmp_path: Path) -> None:
    conv = Conv(journal=Journal(tmp_path, "training"))
    while conv.states()[-1:] != [("kept", "kept")]:
        conv.run()
    before = len(conv.launched)
    for _ in range(200):
        conv.run()
    assert set(conv.launched[before:]) == {192}
    conv.now += RECHECK_SECONDS
    conv.gain = -0.002  # another driver, or clock
    for _ in range(1000):
        conv.run()
    assert "rolled_back" in [one.facts.get("decision") for one in conv.outcomes]
    assert conv.run() == 16
    assert Journal(tmp_path, "training").kept(NAME) is None


def test_nothing_is_checked_while_trials_are_stopped_or_after_the_end(tmp_path: Path) -> None:
    conv = Conv(journal=kept_before(tmp_path))
    conv.run()
    conv.calls.close("the program ended")
    before = len(conv.launched)
    conv.now += 2 * RECHECK_SECONDS
    assert {conv.run() for _ in range(300)} == {192}
    assert len(conv.launched) == before + 300


def test_a_start_that_fails_confirms_the_kept_configuration(tmp_path: Path) -> None:
    conv = Conv(journal=kept_before(tmp_path), fails=16)
    assert {conv.run() for _ in range(300)} == {192}
    assert conv.states()[-1] == ("rolled_back", "inconclusive")
    assert "the start cannot be run" in conv.outcomes[-1].reason


class Updated(Conv):
    """A program after an update: its kept configuration gives other numbers, or cannot be run any more."""

    def __init__(self, journal: Journal, *, raises: bool = False) -> None:
        super().__init__(journal=journal)
        self.raises, self.wrong = raises, 192
        terms = CallTerms("conv.run", share=1.0, check=close(), undo=self.restored)
        accounts = CallAccounts(reports=SearchReports(self.outcomes.append))
        self.calls = TunedCalls(terms, self, journal, clock=lambda: self.now, accounts=accounts)
        self.run = self.calls.decorate(self.numbers)
        self.out = 0

    def restored(self, _configuration: Any) -> Callable[[], None]:
        return lambda: setattr(self, "out", 0)

    def numbers(self, configuration: Any) -> int:
        super().launch(configuration)
        if self.raises and configuration.block == self.wrong:
            raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
        self.out += 7 if configuration.block == self.wrong else 1
        return self.out


def test_a_kept_configuration_that_gives_other_numbers_than_the_start_is_taken_back(tmp_path: Path) -> None:
    """Review: the start, the untuned program, was banned, and the wrong numbers stayed for ever."""
    program = Updated(kept_before(tmp_path))
    results: list[int] = []
    for _ in range(300):
        program.out = 0
        results.append(program.run())
    assert results == [1] * 300
    journal = Journal(tmp_path, "training")
    assert journal.banned(NAME, "[16]") == ""
    assert journal.kept(NAME) != "[192]"
    assert "differ from those of the start" in journal.banned(NAME, "[192]")
    (failed,) = [one for one in program.outcomes if "differ from those of the start" in one.reason]
    assert (failed.state, failed.facts["decision"]) == (OutcomeState.ROLLED_BACK, "failed")
    assert (failed.facts["candidate"], failed.facts["value"], failed.facts["previous"]) == ("[192]", "[16]", "[192]")
    assert program.launched[-1] not in {192, 1024}, "it was searched again"


def test_a_kept_configuration_that_cannot_be_run_any_more_does_not_end_the_program(tmp_path: Path) -> None:
    """As after an update of the driver: the untuned program would run, and so does the tuned one."""
    program = Updated(kept_before(tmp_path), raises=True)
    for _ in range(300):
        program.out = 0
        assert program.run() == 1
    assert program.launched.count(192) == 1
    assert Journal(tmp_path, "training").kept(NAME) != "[192]"
    assert "NO_BINARY" in Journal(tmp_path, "training").banned(NAME, "[192]")


def test_numbers_are_compared_again_after_an_hour_and_what_differs_never_runs_again(tmp_path: Path) -> None:
    program = Updated(Journal(tmp_path, "training"))
    program.wrong = 0
    while program.states()[-1:] != [("kept", "kept")]:
        program.out = 0
        assert program.run() == 1
    program.wrong = program.calls.kept().block
    program.now += RECHECK_SECONDS
    results: list[int] = []
    for _ in range(600):
        program.out = 0
        results.append(program.run())
    differing = results.count(7)
    assert results == [7] * differing + [1] * (600 - differing)
    assert differing < 64, "the clock is read at every 64th call"
    assert program.calls.kept().block != program.wrong


def test_an_error_of_the_program_does_not_take_the_kept_configuration_back(tmp_path: Path) -> None:
    conv = Conv(journal=kept_before(tmp_path))
    conv.fails = 192

    def wrong(_configuration: Any) -> None:
        raise ValueError("the input has a wrong shape")

    run = conv.calls.decorate(wrong)
    for _ in range(3):
        with pytest.raises(ValueError, match="wrong shape"):
            run()
    assert conv.calls.kept().block == 192
    assert Journal(tmp_path, "training").kept(NAME) == "[192]"


def test_a_kept_configuration_that_fails_in_calls_that_cannot_be_repeated_ends_the_program_once(tmp_path: Path) -> None:
    """After an update of the driver it ended the program at its first call, at every start."""
    for start in range(3):
        conv = Conv(journal=kept_before(tmp_path) if not start else Journal(tmp_path, "training"))
        conv.calls._terms = replace(conv.calls._terms, repeatable=False)
        conv.fails = 192
        if not start:
            with pytest.raises(RuntimeError, match="OUT_OF_RESOURCES"):
                conv.run()
            assert {conv.run() for _ in range(300)} > {16}, "it was searched again, and 192 did not run again"
        assert not Journal(tmp_path, "training").banned(NAME, "[192]"), "the program may be to blame"


def test_a_later_error_in_calls_that_cannot_be_repeated_leaves_the_kept_configuration(tmp_path: Path) -> None:
    conv = Conv(journal=kept_before(tmp_path))
    conv.calls._terms = replace(conv.calls._terms, repeatable=False)
    assert conv.run() == 192
    conv.fails = 192
    with pytest.raises(RuntimeError, match="OUT_OF_RESOURCES"):
        conv.run()
    assert Journal(tmp_path, "training").kept(NAME) == "[192]"
