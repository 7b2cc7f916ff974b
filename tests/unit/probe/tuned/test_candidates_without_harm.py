"""A candidate that was dropped after one launch has done no harm: the end of the program is not its fault."""

from pathlib import Path

import pytest
from tests.unit.probe.tuned.test_search_reports import Conv

from kernelcast.tuning.journal import Journal, JournalProcess

LATER = JournalProcess("", 2, "later")


def later(directory: Path) -> Journal:
    """The journal as the next process reads it, when no earlier one runs any more."""
    return Journal(directory, "training", LATER, running=lambda _: False)


def banned(directory: Path) -> dict[int, str]:
    journal = later(directory)
    reasons = {size: journal.banned("conv.run", f"[{size}]") for size in Conv.sizes}
    return {size: reason for size, reason in reasons.items() if reason}


@pytest.mark.parametrize("calls", [4, 5, 6, 7, 40])
def test_a_restarted_program_may_try_again_what_did_no_harm(tmp_path: Path, calls: int) -> None:
    """Each candidate with fewer than three launches was banned at the next start: "the process ended"."""
    conv = Conv(journal=Journal(tmp_path, "training"), gain=-0.002)  # every candidate is slower: one launch each
    for _ in range(calls):
        conv.run()
    conv.calls.close("the program ended")
    assert set(banned(tmp_path)) <= {1024}, "which failed"


def test_a_process_that_is_killed_in_a_candidate_bans_that_one_alone(tmp_path: Path) -> None:
    conv = Conv(journal=Journal(tmp_path, "training"), gain=-0.05, fails=0)
    while len(set(conv.launched)) < 4:
        conv.run()
    assert list(banned(tmp_path)) == [conv.launched[-1]]
