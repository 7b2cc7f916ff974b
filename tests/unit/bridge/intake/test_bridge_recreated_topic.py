"""A topic that is deleted and created again: nothing of the old log's offsets is used for the new one's."""

import pytest
from confluent_kafka import TopicPartition
from tests.support.bridge.list_kafka import ListKafka
from tests.support.bridge.moving_series import Group

from kernelcast.wire.errors import BrokerError

WITH_IDS, WITHOUT_IDS = ("first", "second"), ("", "")
P0 = ("kernels", 0)


def old_log(group: Group, messages: int = 40) -> None:
    """A bridge that has read a log with the given number of messages."""
    first = group.bridge(0)
    group.live(messages, {"gemm": 0})
    assert group.shown(first) == group.counts


def with_ids(ids: tuple[str, str], *, grouped: bool = True) -> Group:
    group = Group(grouped=grouped)
    if ids[0]:
        group.kafka.ids["kernels"] = ids[0]
    return group


def poison(group: Group) -> None:
    """Write a message that becomes a dead letter."""
    group.kafka.write(*P0, b"poison", append_ms=round(group.clock.seconds * 1000))


def produce(group: Group, messages: int) -> None:
    """Write to the new log while no bridge reads it."""
    for _ in range(messages):
        group.clock.seconds += 1
        group.write(0, "gemm")


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
@pytest.mark.parametrize(("ids", "messages"), [(WITH_IDS, 10), (WITH_IDS, 60), (WITHOUT_IDS, 10)])
def test_a_new_log_is_read_from_its_first_message_when_kafka_gives_it_out_again(
    ids: tuple[str, str], messages: int, *, grouped: bool
) -> None:
    group = with_ids(ids, grouped=grouped)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate(ids[1])
    produce(group, messages)
    group.give(site, 0)
    group.read_all()
    assert group.shown(site) == group.counts
    group.live(12, {"gemm": 0})
    assert group.shown(site) == group.counts
    assert group.falls == []


def test_a_log_that_has_grown_past_the_old_one_between_two_reads_is_read_from_its_beginning() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    (site,) = group.bridges
    group.recreate("second")
    produce(group, 60)
    group.live(30, {"gemm": 0})
    assert group.shown(site) == group.counts
    assert group.falls == []
    assert site.own("kernelcast_bridge_offset_restarts_total", topic="kernels") == 1


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_a_new_log_is_read_from_its_beginning_although_the_first_seek_fails(
    monkeypatch: pytest.MonkeyPatch, *, grouped: bool
) -> None:
    group = with_ids(WITH_IDS, grouped=grouped)
    old_log(group)
    (site,) = group.bridges
    group.recreate("second")
    produce(group, 60)
    seek, left = site.kafka.seek, [BrokerError("erroneous state")]

    def seeks(partition: TopicPartition) -> None:
        if left:
            raise left.pop()
        seek(partition)

    monkeypatch.setattr(site.kafka, "seek", seeks)
    group.live(30, {"gemm": 0})
    assert group.shown(site) == group.counts
    assert group.falls == []


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_a_new_log_that_is_noticed_by_its_offsets_between_two_upkeeps_is_read_at_once(*, grouped: bool) -> None:
    group = with_ids(WITH_IDS, grouped=grouped)
    old_log(group)
    (site,) = group.bridges
    group.recreate("second")
    site.kafka.reading[P0] = 0
    group.clock.seconds += 0.25
    group.write(0, "gemm")
    group.step()
    assert group.shown(site) == group.counts


def test_a_new_log_is_read_once_a_bridge_knows_where_to_start() -> None:
    group = with_ids(WITHOUT_IDS)
    old_log(group)
    group.take(group.bridges[0], 0)
    group.kill(group.bridges[0])
    group.recreate()
    site = group.bridge()
    site.kafka.answers = False
    group.give(site, 0)
    produce(group, 1)
    group.step()
    site.kafka.write("kernels", 0, b"poison", group.clock.now_ns() // 1_000_000)
    group.step()
    site.kafka.answers = True
    for _ in range(8):
        group.live(1, {"gemm": 0})
    assert group.shown(site) == group.counts
    assert [message.value() for message, _ in site.shelf.messages] == [b"poison"]


def test_offsets_committed_for_the_old_log_are_not_those_of_the_new_one() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    group.kill(group.bridges[0])
    committed = dict(group.kafka.commits)
    assert committed[P0] > 20
    group.recreate("second")
    group.kafka.commits.update(committed)
    poison(group)
    produce(group, 60)
    site = group.bridge(0)
    group.read_all()
    assert group.shown(site) == group.counts
    assert [message.offset() for message, _ in site.shelf.messages] == [0]


def test_a_late_end_offset_from_kafka_bounds_the_remembered_messages() -> None:
    group = with_ids(WITHOUT_IDS)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate()
    poison(group)
    produce(group, 10)
    site.kafka.answers = False
    group.give(site, 0)
    site.kafka.answers = True
    group.step()
    group.read_all()
    produce(group, 5)
    group.live(5, {"gemm": 0})
    assert group.shown(site) == group.counts
    assert [message.offset() for message, _ in site.shelf.messages] == [0]


def test_an_undecodable_message_of_the_new_log_becomes_a_dead_letter() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate("second")
    poison(group)
    produce(group, 60)
    group.give(site, 0)
    group.read_all()
    assert [message.offset() for message, _ in site.shelf.messages] == [0]


def test_an_unknown_topic_id_changes_nothing() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    (site,) = group.bridges
    group.kafka.ids.clear()
    group.live(12, {"gemm": 0})
    group.kafka.ids["kernels"] = "first"
    group.live(12, {"gemm": 0})
    assert site.own("kernelcast_bridge_offset_restarts_total", topic="kernels") == 0
    assert isinstance(site.kafka, ListKafka)
    assert group.shown(site) == group.counts
