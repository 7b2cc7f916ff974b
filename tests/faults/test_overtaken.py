"""The bound on late points that no total has after a clock was corrected: exactly those that are missing."""

from tests.faults.model.examples import EXAMPLES
from tests.faults.model.operations import Operations, Schedule
from tests.faults.model.overtaken import ADDED_SECONDS, overtaken
from tests.faults.model.producers import DELTAS
from tests.faults.model.world import Operation, World

EXAMPLE = EXAMPLES["totals of deltas: the same, and the producer's clock was ahead and is corrected"]
KEPT = 12
"""Points that the partition without a leader gets in the end."""
MALFORMED = 1
"""The first point of a corrected clock begins after its end, and is counted as not added."""


def settled(schedule: Schedule) -> tuple[int, float]:
    """The bound at the end of a schedule, and how many points the exposed total lacks."""
    world = World(schedule.setting)
    operations = Operations(world)
    for operation in schedule.operations:
        operations.apply(operation)
    world.settle()
    (producer,) = world.producers
    return overtaken(producer), producer.deltas - world.watcher.seen[-1, ("orders_total", 0)].value


def test_late_points_of_a_clock_that_is_corrected_are_missing_and_no_more() -> None:
    assert settled(EXAMPLE) == (KEPT, KEPT + MALFORMED)


def test_no_point_may_be_missing_that_came_before_the_correction_or_whose_clock_was_right() -> None:
    back = [Operation(name) for name in ("leaders_back", "resume", "speak")]
    back += [Operation("wait", 0, round(ADDED_SECONDS))]
    assert settled(EXAMPLE.with_operations([*EXAMPLE.operations, *back])) == (0, MALFORMED)
    assert settled(EXAMPLE.with_operations(EXAMPLE.operations[2:])) == (0, 0)


def test_points_that_nothing_has_overtaken_are_not_missing() -> None:
    world = World(EXAMPLE.setting)
    (producer,) = world.producers
    producer.clock_seconds = 3600.0
    world.cluster.leaderless.add((DELTAS, 0))
    world.wait(10)
    world.cluster.leaderless.clear()
    producer.clock_seconds = 0.0
    world.wait(4)
    assert (len(producer.corrections_seconds), overtaken(producer)) == (1, 0)
