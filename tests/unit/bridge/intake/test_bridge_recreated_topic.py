"""A topic that is deleted and created again: nothing of the old log's offsets is used for the new one's."""

import pytest
from confluent_kafka import TopicPartition
from tests.support.bridge.list_kafka import ListKafka
from tests.support.bridge.moving_series import ORDERS, Group

from kernelcast.wire.errors import BrokerError

WITH_IDS, WITHOUT_IDS = ("first", "second"), ("", "")
P0 = ("kernels", 0)


def old_log(group: Group, messages: int = 40) -> None:
    """A bridge that has read a log with the given number of messages of each kind."""
    first = group.bridge(0)
    group.live(messages, {"gemm": 0})
    assert (group.shown(first), group.shown(first, ORDERS)) == (group.counts, group.sold)


def with_ids(ids: tuple[str, str], *, grouped: bool = True) -> Group:
    group = Group(grouped=grouped)
    if ids[0]:
        group.kafka.ids["kernels"] = ids[0]
    return group


def produce(group: Group, messages: int) -> None:
    """Write to the new log while no bridge reads it."""
    for _ in range(messages):
        group.clock.seconds += 1
        group.write(0, "gemm")
        group.sell(0, "gemm")


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
@pytest.mark.parametrize(("ids", "messages"), [(WITH_IDS, 10), (WITH_IDS, 60), (WITHOUT_IDS, 10)])
def test_points_of_a_new_log_are_counted_from_its_first_message_when_kafka_gives_it_out_again(
    ids: tuple[str, str], messages: int, *, grouped: bool
) -> None:
    group = with_ids(ids, grouped=grouped)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate(ids[1])
    before = 0 if grouped else group.sold["gemm"]  # without a group totals stay while a process lives
    produce(group, messages)
    group.give(site, 0)
    group.read_all()
    assert group.shown(site, ORDERS) == {"gemm": before + messages}
    assert group.shown(site) == group.counts
    group.live(12, {"gemm": 0})
    assert group.shown(site, ORDERS) == {"gemm": before + messages + 12}
    assert site.own("kernelcast_bridge_delta_points_total", outcome="replayed") == 0


def test_a_log_that_has_grown_past_the_old_one_between_two_reads_is_read_from_its_beginning() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    (site,) = group.bridges
    group.recreate("second")
    produce(group, 60)
    group.live(30, {"gemm": 0})
    assert (group.shown(site), group.shown(site, ORDERS)) == (group.counts, group.sold)
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
    assert (group.shown(site), group.shown(site, ORDERS)) == (group.counts, group.sold)
    assert group.falls == []


def total_after_a_kill(group: Group) -> dict[str, float]:
    """Totals that a new bridge exposes after the present one was killed, and two more points were written."""
    group.kill(group.bridges[0])
    produce(group, 2)
    site = group.bridge(0)
    group.read_all()
    return group.shown(site, ORDERS)


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_a_total_that_goes_on_in_a_new_log_survives_a_kill_before_the_next_snapshot_is_due(*, grouped: bool) -> None:
    group = with_ids(WITH_IDS, grouped=grouped)
    old_log(group)
    (site,) = group.bridges
    group.recreate("second")
    while not site.own("kernelcast_bridge_offset_restarts_total", topic="kernels"):
        group.live(1, {"gemm": 0})
    group.live(1, {"gemm": 0})
    assert group.shown(site, ORDERS) == group.sold
    assert total_after_a_kill(group) == group.sold
    assert group.falls == []


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_a_new_log_that_is_noticed_by_its_offsets_between_two_upkeeps_is_in_a_snapshot_at_once(
    *, grouped: bool
) -> None:
    group = with_ids(WITH_IDS, grouped=grouped)
    old_log(group)
    (site,) = group.bridges
    group.recreate("second")
    site.kafka.reading[P0] = 0
    group.clock.seconds += 0.25
    group.write(0, "gemm")
    group.sell(0, "gemm")
    group.step()
    assert group.shown(site, ORDERS) == group.sold
    assert total_after_a_kill(group) == group.sold


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_a_total_begins_again_in_a_new_log_if_the_old_one_was_not_read_as_far_as_it_was_exposed(
    *, grouped: bool
) -> None:
    """`increase()` would count a total a second time that goes on below the exposed one."""
    group = with_ids(WITH_IDS, grouped=grouped)
    old_log(group, messages=35)
    group.kill(group.bridges[0])
    site = group.bridge(0, at_once=0)
    group.live(3, {"gemm": 0})
    group.recreate("second")
    site.kafka.at_once = 1000
    group.live(30, {"gemm": 0})
    assert group.shown(site, ORDERS) == {"gemm": 30}


def test_a_total_that_goes_on_in_a_log_that_was_away_survives_a_kill_right_after_its_first_points() -> None:
    group = with_ids(WITH_IDS, grouped=False)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate("second")
    group.give(site, 0)
    group.clock.seconds += 0.25
    group.write(0, "gemm")
    group.sell(0, "gemm")
    group.step()
    assert group.shown(site, ORDERS) == group.sold
    assert total_after_a_kill(group) == group.sold


def test_points_of_a_new_log_count_that_are_read_before_a_bridge_knows_where_to_start() -> None:
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
    assert group.shown(site, ORDERS) == {"gemm": 9}
    assert [message.value() for message, _ in site.shelf.messages] == [b"poison"]


def test_a_snapshot_of_the_old_log_is_refused_however_long_the_new_one_is() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    group.kill(group.bridges[0])
    group.recreate("second")
    produce(group, 60)
    site = group.bridge(0)
    group.read_all()
    assert group.shown(site, ORDERS) == {"gemm": 60}
    assert site.own("kernelcast_bridge_delta_beginnings_total", cause="other_log") == 1


@pytest.mark.parametrize("ids", [WITH_IDS, WITHOUT_IDS])
def test_the_first_snapshot_of_the_new_log_is_used_although_the_old_ones_know_more_messages(
    ids: tuple[str, str],
) -> None:
    group = with_ids(ids)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate(ids[1])
    produce(group, 1)
    group.give(site, 0)
    group.live(3, {"gemm": 0})
    group.take(site, 0)
    group.bridges.clear()
    group.clock.seconds += 1
    site = group.bridge(0)
    group.read_all()
    assert site.own("kernelcast_bridge_delta_beginnings_total", cause="restored") == 1
    assert group.shown(site, ORDERS) == {"gemm": 4}


@pytest.mark.parametrize("others", [0, 1, 2], ids=["alone", "after a new replica", "after another one that lagged"])
def test_a_replica_that_lags_takes_the_last_totals_of_a_deleted_log_whoever_was_first_in_the_new_one(
    others: int,
) -> None:
    group = with_ids(WITH_IDS, grouped=False)
    sites = [group.bridge(0) for _ in range(3)]
    group.live(80, {"gemm": 0})  # longer than the new log, so that its replacement is noticed by the offsets
    group.bridges = sites[:1]
    group.live(3, {"gemm": 0})
    group.recreate(WITH_IDS[1])
    group.live(25, {"gemm": 0})  # the first replica has written both of its slots again
    if others:
        group.bridges = [group.bridge(0)] if others == 1 else [sites[1]]
        group.live(25, {"gemm": 0})
    group.bridges = [sites[2]]
    group.live(12, {"gemm": 0})
    assert group.shown(sites[2], ORDERS) == group.sold


def test_snapshots_of_a_deleted_log_are_dropped_after_ten_minutes() -> None:
    group = with_ids(WITH_IDS, grouped=False)
    group.bridge(0)
    group.live(20, {"gemm": 0})
    group.recreate(WITH_IDS[1])
    group.live(12, {"gemm": 0})

    def stored() -> int:
        group.state.compact()
        return sum(len(log) for log in group.state.logs.values())

    assert stored() == 4
    for _ in range(60):
        group.clock.seconds += 10
        group.live(1, {"gemm": 0})
    assert stored() == 2


def test_totals_of_other_topics_in_a_snapshot_of_all_partitions_are_kept() -> None:
    group = Group(grouped=False)
    group.kafka.ids.update({"kernels": "first", "shop": "kept"})
    site = group.bridge(0)
    group.kafka.logs["shop", 0] = []
    site.kafka.assign(site.intake, ("shop", 0))
    for _ in range(20):
        group.clock.seconds += 1
        group.sell(0, "gemm")
        group.sell(0, "books")
        sold = group.kafka.logs[P0].pop()
        group.kafka.write("shop", 0, sold.body, sold.append_ms, keyed=b"books")
        group.step()
    group.kill(site)
    kept = group.kafka.logs["shop", 0]
    group.recreate("second")
    group.kafka.logs["shop", 0] = kept
    produce(group, 60)
    site = group.bridge()
    site.kafka.assign(site.intake, P0, ("shop", 0))
    group.read_all()
    assert group.shown(site, ORDERS) == {"gemm": 60, "books": 20}


def test_offsets_committed_for_the_old_log_are_not_those_of_the_new_one() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    group.kill(group.bridges[0])
    committed = dict(group.kafka.commits)
    assert committed[P0] > 50
    group.recreate("second")
    group.kafka.commits.update(committed)
    group.state.logs.clear()
    produce(group, 60)
    site = group.bridge(0)
    group.read_all()
    assert group.shown(site, ORDERS) == {"gemm": 60}


def test_a_late_end_offset_from_kafka_bounds_the_remembered_messages() -> None:
    group = with_ids(WITHOUT_IDS)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate()
    produce(group, 10)
    site.kafka.answers = False
    group.give(site, 0)
    site.kafka.answers = True
    group.step()
    group.read_all()
    produce(group, 5)
    group.live(5, {"gemm": 0})
    assert group.shown(site, ORDERS) == {"gemm": 20}


def test_an_undecodable_message_of_the_new_log_becomes_a_dead_letter() -> None:
    group = with_ids(WITH_IDS)
    old_log(group)
    (site,) = group.bridges
    group.take(site, 0)
    group.recreate("second")
    group.kafka.write(*P0, b"poison", append_ms=round(group.clock.seconds * 1000))
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
    assert (group.shown(site), group.shown(site, ORDERS)) == (group.counts, group.sold)
