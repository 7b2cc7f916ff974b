"""Series that move to another partition: added partitions, another partitioner, whichever replica has which."""

import pytest
from tests.unit.bridge.list_kafka import MARKER
from tests.unit.bridge.moving_series import Group

from kernelcast.bridge.intake.ownership import Ownership

OLD, LIVE, NEW = 0, 1, 4
"""Partitions: one that a series leaves, one that others are in all the time, one that was added."""


def grown(*, seconds_ago: int, seconds_before: int = 150) -> Group:
    """A topic in which `gemm` moved from one partition to an added one some seconds ago; `relu` has stayed."""
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live(seconds_before, {"gemm": OLD, "relu": LIVE})
    group.give(first, NEW)
    group.live(seconds_ago, {"gemm": NEW, "relu": LIVE})
    assert group.shown(first) == group.counts
    return group


def test_an_old_partition_that_another_replica_reads_again_shows_nothing_of_what_has_moved() -> None:
    group = grown(seconds_ago=180)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD)
    group.read_all()
    assert group.shown(second) == {}
    assert second.intake.ownership.readiness() == (True, "")
    group.live(100, {"gemm": NEW, "relu": LIVE})
    assert group.falls == []


@pytest.mark.parametrize("first", [OLD, LIVE])
def test_a_replica_that_reads_old_and_live_partitions_shows_nothing_of_what_has_moved(first: int) -> None:
    group = grown(seconds_ago=180)
    group.take(group.bridges[0], OLD, LIVE)
    second = group.bridge(first)
    group.read_all()
    group.give(second, OLD + LIVE - first)
    group.read_all()
    assert group.shown(second) == {"relu": group.counts["relu"]}
    assert group.falls == []


def test_what_has_moved_away_from_all_partitions_of_a_replica_ends_there_though_it_reads_nothing() -> None:
    group = grown(seconds_ago=20)
    second = group.bridge(OLD)
    group.read_all()
    assert set(group.shown(second)) == {"gemm"}
    group.live(55, {"gemm": NEW, "relu": LIVE})
    assert group.shown(second) == {}


@pytest.mark.parametrize("last", [OLD, LIVE, NEW])
def test_a_restart_right_after_partitions_were_added_exposes_no_old_value_whichever_is_read_last(last: int) -> None:
    group = grown(seconds_ago=15, seconds_before=30)
    group.kill(group.bridges[0])
    second = group.bridge(OLD, LIVE, NEW, at_once=1)
    held_back = second.kafka.reading.pop(("kernels", last))
    group.read_all()
    second.kafka.reading["kernels", last] = held_back
    group.read_all()
    assert group.shown(second) == group.counts
    assert group.falls == []


def test_a_kafka_that_stands_still_ends_nothing_when_partitions_are_read_again() -> None:
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live(150, {"gemm": OLD, "relu": LIVE})
    for _ in range(200):
        group.clock.seconds += 1
        group.step()
    assert group.shown(first) == group.counts
    group.take(first, OLD)
    second = group.bridge(OLD)
    group.read_all()
    for _ in range(80):
        group.clock.seconds += 1
        group.step()
    assert (group.shown(first), group.shown(second)) == ({"relu": 150}, {"gemm": 150})


def test_the_end_of_a_partition_without_messages_there_ends_nothing_early_and_what_has_moved_in_time() -> None:
    group = grown(seconds_ago=180)
    group.kafka.write("kernels", OLD, None, append_ms=0, kind=MARKER)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD)
    group.read_all()
    assert second.intake.ownership.readiness()[0] is False
    second.kafka.end("kernels", OLD, 151)
    group.step()
    assert second.intake.ownership.readiness() == (True, "")
    assert group.shown(second) == {}
    assert group.falls == []


def test_without_an_answer_about_the_newest_append_time_what_has_moved_ends_with_the_next_message() -> None:
    group = grown(seconds_ago=180)
    group.kill(group.bridges[0])
    second = group.bridge()
    second.kafka.names_newest = False
    group.give(second, LIVE)
    group.read_all()
    group.give(second, OLD)
    group.read_all()
    assert group.shown(second) == {"relu": group.counts["relu"]}
    assert group.falls == []


def ownership(append_ms: dict[int, int]) -> Ownership:
    """Partitions that have been read to their end."""
    owner = Ownership()
    for number, newest_ms in append_ms.items():
        partition = owner.assign(("kernels", number), start=0, gate=1)
        owner.advance(partition, position=1, append_ms=newest_ms, now_seconds=0)
    owner.opened(0)
    return owner


def test_silence_is_measured_from_append_time_to_append_time_whenever_a_partition_was_read() -> None:
    owner = ownership({0: 100_000, 1: 400_000})
    assert owner.heard_ms() == {0: 400_000, 1: 400_000}


def test_messages_that_kafka_names_and_that_were_not_read_yet_end_nothing() -> None:
    owner = ownership({0: 100_000, 1: 100_000})
    owner.note_newest({("kernels", 0): 300_000, ("kernels", 1): 100_000, ("kernels", 9): 310_000})
    assert owner.heard_ms() == {0: 100_000, 1: 310_000}


def test_a_broker_whose_clock_is_behind_the_others_ends_nothing() -> None:
    owner = ownership({0: 100_000, 1: 220_000})
    slow, right = owner.owned()
    for second in range(1, 10):
        for partition, append_ms in ((slow, 100_000 + second * 1000), (right, 220_000 + second * 1000)):
            owner.advance(partition, position=1 + second, append_ms=append_ms, now_seconds=second)
    owner.advance(right, position=11, append_ms=230_000, now_seconds=10)
    assert owner.heard_ms() == {0: 111_000, 1: 230_000}


def test_messages_that_are_skipped_keep_what_was_there_from_ending() -> None:
    owner = ownership({0: 100_000, 1: 400_000})
    owner.jump(owner.owned()[0], to=5, high=9)
    assert owner.heard_ms() == {0: 100_000, 1: 400_000}
    owner.reached_end(("kernels", 0), 9)
    assert owner.heard_ms() == {0: 400_000, 1: 400_000}
