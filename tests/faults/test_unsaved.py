"""The bound on points that are lost with a deleted topic: exact, so one point more is found."""

from typing import Any

import pytest
from tests.faults.model.examples import EXAMPLES
from tests.faults.model.operations import Operations
from tests.faults.model.producers import DELTAS
from tests.faults.model.world import World

from kernelcast.bridge.delta import joining

EXAMPLE = EXAMPLES[
    "totals of deltas: a topic is deleted after its only reader was killed, and its other replica was suspended"
]


def lost(*, without_snapshots: bool = False) -> tuple[int, int]:
    """Points that are lost right before the topic is deleted, and points that the dead bridge had read."""
    world = World(EXAMPLE.setting)
    operations = Operations(world)
    for operation in EXAMPLE.operations[:-1]:
        operations.apply(operation)
    dead, (producer,) = world.replicas[1], world.producers
    if without_snapshots:
        world.cluster.state.logs.clear()
    return dead.lost(producer), producer.deltas


def test_points_of_a_snapshot_are_not_lost() -> None:
    few, read = lost()
    assert 0 < few < 5  # a snapshot every five points
    assert lost(without_snapshots=True) == (read, read)


def test_a_bridge_that_lives_has_lost_nothing() -> None:
    world = World(EXAMPLE.setting)
    assert [replica.lost(producer) for replica in world.replicas for producer in world.producers] == [0, 0]


def test_a_total_that_lacks_one_point_more_than_are_lost_is_found_in_a_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert EXAMPLE.finding() == ("", "")

    def restore(rows: Any, columns: Any, number_of: Any) -> int:
        restored = joining.restore(rows, columns, number_of)
        rows.columns.integer[rows.in_use()] -= 1
        return restored

    monkeypatch.setattr("kernelcast.bridge.delta.beginning.restore", restore)
    assert EXAMPLE.finding()[0] == "more is counted than was written"


def test_points_of_a_topic_that_is_there_again_are_counted_apart_from_repeated_ones() -> None:
    world = World(EXAMPLE.setting)
    (producer,), replica = world.producers, world.replicas[0]
    world.cluster.delete(DELTAS)
    world.cluster.create(DELTAS, 1)
    world.wait(4)
    producer.send_again(9)
    world.wait(2)
    assert replica.new_points(producer) == producer.deltas - producer.deltas_before_topic == 3
