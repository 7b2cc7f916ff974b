"""The comparison at the end of a schedule: none decides while the watcher excuses a total."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.faults.model.invariants import Violation
from tests.faults.model.operations import Operations
from tests.faults.model.world import Operation, Setting, World
from tests.faults.real.world import SETTLE_SECONDS, RealWorld

REASON = "orders_total has risen by 27, the truth is 48"


class Settling(RealWorld):
    """A real world of which each comparison takes its result, and whether a total is excused, from lists."""

    def __init__(self, reasons: list[str], undecided: list[bool]) -> None:
        self._reasons, self.compared = iter(reasons), 0
        given = iter(undecided)
        self.watcher: Any = type("Watcher", (), {"undecided": property(lambda _self: next(given))})()

    def calm(self) -> None: ...

    def patience(self, limit_seconds: float) -> Any:
        return SimpleNamespace(ended=limit_seconds == SETTLE_SECONDS)

    def _differs(self) -> str:
        self.compared += 1
        return next(self._reasons)

    def _write(self, *, deltas: bool) -> None: ...


def test_a_total_is_judged_by_the_first_comparison_after_its_excuse() -> None:
    world = Settling([REASON, REASON, ""], [True, True, False])
    world.settle()
    assert world.compared == 3


@pytest.mark.parametrize("excused", [0, 2])
def test_a_total_that_differs_after_its_excuse_is_found(excused: int) -> None:
    world = Settling([REASON] * 9, [True] * excused + [False])
    with pytest.raises(Violation, match=REASON):
        world.settle()
    assert world.compared == excused + 1


def test_a_total_whose_key_moves_as_its_topic_is_made_again_and_grows_is_compared_after_a_while() -> None:
    """Its value is right all the while, but `increase()` was not followed: real schedule 1/7."""
    world = World(Setting("group", 2, 1, 2))
    operations = Operations(world)
    for one in (("leave", 0), ("delete", 1), ("wait", 0, 2), ("create", 1), ("wait", 0, 2), ("grow", 1)):
        operations.apply(Operation(*one))
    world.wait(world.watcher.grace_seconds)
    differs = world.watcher.settled(world.turn())
    assert (differs.split(",")[0], world.watcher.undecided) == ("producer 0: orders_total has risen by 15", True)
    world.wait(world.watcher.lifetime_seconds - world.watcher.grace_seconds)
    assert (world.watcher.settled(world.turn()), world.watcher.undecided) == ("", False)
