"""Random schedules of faults in memory: no counter falls, nothing is shown twice, and in the end the truth is."""

from functools import partial
from multiprocessing import get_context
from typing import Final

import pytest
from tests.faults.examples import EXAMPLES, LEFT_OUT
from tests.faults.operations import Schedule
from tests.faults.run import Outcome, outcome, quiet
from tests.faults.shrink import shrunk

SCHEDULES: Final = 500
PROCESSES: Final = 2


@pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=list(EXAMPLES))
def test_recorded_schedules_that_broke_an_invariant_pass(schedule: Schedule) -> None:
    assert schedule.finding() == ("", "")


def test_no_random_schedule_breaks_an_invariant(compiled: None) -> None:
    with get_context("spawn").Pool(PROCESSES, initializer=quiet) as pool:
        found: list[Outcome] = [
            one
            for one in pool.imap_unordered(partial(outcome, seed="ci", without=LEFT_OUT), range(SCHEDULES), 10)
            if one.kind
        ]
    listed = "\n".join(f"{one.number}: {one.kind}: {one.detail} {one.schedule.plain()}" for one in found)
    assert not found, listed


def test_a_schedule_is_the_same_for_the_same_seed_and_survives_json() -> None:
    schedule = Schedule.drawn("any/7")
    assert Schedule.drawn("any/7") == schedule == Schedule.of(schedule.plain())


def test_a_failing_list_is_shortened_to_the_operations_that_make_it_fail() -> None:
    kept = shrunk(
        range(20), lambda few: 3 in few and any(one > 8 for one in few), smaller=lambda one: iter(range(9, one))
    )
    assert kept == [3, 9]
