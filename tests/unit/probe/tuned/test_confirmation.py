"""A kept configuration is checked again: at a restart by one experiment instead of a search, and after an hour."""

from pathlib import Path

import pytest
from tests.unit.probe.tuned.test_search_reports import Conv

from kernelcast.probe.tuned.confirmation import RECHECK_SECONDS
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
