"""A Kafka that does not answer, or a partition without a leader: no series ends by that."""

import pytest
from confluent_kafka import TopicPartition
from tests.support.bridge.fleet import LAUNCHES, Site, launches, page, values
from tests.support.bridge.moving_series import Group

from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.wire.errors import BrokerError

TTL_SECONDS = 60
P0, P1 = ("kernels", 0), ("kernels", 1)


def silent_for(group: Group, seconds: int) -> None:
    """Let time pass in which no broker answers, and producers keep their messages."""
    for site in group.bridges:
        site.kafka.answers = False
    for _ in range(seconds):
        group.clock.seconds += 1
        group.step()


def answers_again(group: Group) -> None:
    for site in group.bridges:
        site.kafka.answers = True


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_totals_and_series_outlive_a_kafka_that_does_not_answer_for_longer_than_a_time_to_live(
    *, grouped: bool
) -> None:
    group = Group(TTL_SECONDS, grouped)
    site = group.bridge(0)
    group.live(40, {"gemm": 0, "relu": 0})
    silent_for(group, 5 * TTL_SECONDS)
    assert group.shown(site) == group.counts
    answers_again(group)
    group.live(3 * TTL_SECONDS, {"gemm": 0, "relu": 0})
    assert group.shown(site) == group.counts
    assert site.own("kernelcast_bridge_removed_series_total", cause="expired") == 0


def test_after_an_outage_each_writer_has_time_to_come_back_although_others_are_quicker() -> None:
    group = Group(TTL_SECONDS)
    site = group.bridge(0)
    group.live(40, {"gemm": 0, "relu": 0})
    silent_for(group, 5 * TTL_SECONDS)
    answers_again(group)
    group.live(TTL_SECONDS // 2, {"gemm": 0})
    group.live(1, {"gemm": 0, "relu": 0})
    assert group.shown(site) == group.counts
    assert site.own("kernelcast_bridge_removed_series_total", cause="expired") == 0


def test_a_series_that_ended_in_an_outage_disappears_within_two_times_to_live_after_it() -> None:
    group = Group(TTL_SECONDS)
    site = group.bridge(0)
    group.live(40, {"gemm": 0, "relu": 0})
    silent_for(group, 5 * TTL_SECONDS)
    answers_again(group)
    group.live(2 * TTL_SECONDS, {"gemm": 0})
    assert set(group.shown(site)) == {"gemm"}


def test_silent_series_end_while_kafka_answers_and_nothing_is_written() -> None:
    group = Group(TTL_SECONDS)
    site = group.bridge(0)
    group.live(40, {"gemm": 0})
    silent_for(group, 5 * TTL_SECONDS)
    answers_again(group)
    for _ in range(2 * TTL_SECONDS):
        group.clock.seconds += 1
        group.step()
    assert group.shown(site) == {}


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_a_partition_without_a_leader_ends_nothing_of_its_own_while_others_are_read(*, grouped: bool) -> None:
    site = Site(policy=IntakePolicy(TTL_SECONDS, grouped=grouped))
    site.kafka.assign(site.intake, P0, P1)
    site.kafka.at_once = 1000
    for second in range(5 * TTL_SECONDS):
        site.export(1, launches(second, time_ns=site.clock.now_ns(), name="led"))
        if second < TTL_SECONDS:
            site.export(0, launches(1000 + second, time_ns=site.clock.now_ns(), name="leaderless"))
        site.run(1)
        if second == TTL_SECONDS:
            site.kafka.leaderless = {P0}
    assert sorted(values(site.store, LAUNCHES)) == [5 * TTL_SECONDS - 1, 1000 + TTL_SECONDS - 1]


@pytest.mark.parametrize("named", [True, False], ids=["newest times", "ends alone"])
def test_a_silent_producer_of_one_partition_disappears_whether_kafka_names_newest_times_or_only_ends(
    *, named: bool
) -> None:
    site = Site(ttl_seconds=TTL_SECONDS)
    site.kafka.names_newest = named
    site.kafka.assign(site.intake, P0, P1)
    site.export(0, launches(1, time_ns=1, name="silent"))
    site.read_all()
    for second in range(2 * TTL_SECONDS):
        site.export(1, launches(second, time_ns=site.clock.now_ns(), name="busy"))
        site.run(1)
    assert values(site.store, LAUNCHES) == [2 * TTL_SECONDS - 1]
    assert "silent" not in page(site.store)


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_the_bridge_says_for_how_long_kafka_has_not_answered(*, grouped: bool) -> None:
    """Its series stay as they were during an outage, so their age must be visible somewhere."""
    group = Group(TTL_SECONDS, grouped)
    site = group.bridge(0)
    group.live(40, {"gemm": 0, "relu": 0})
    assert site.own("kernelcast_bridge_kafka_outage_seconds") == 0
    silent_for(group, 5 * TTL_SECONDS)
    assert site.own("kernelcast_bridge_kafka_outage_seconds") == pytest.approx(5 * TTL_SECONDS, abs=10)
    answers_again(group)
    group.live(20, {"gemm": 0, "relu": 0})
    assert site.own("kernelcast_bridge_kafka_outage_seconds") == 0


def test_a_member_that_has_lost_its_partitions_in_an_outage_says_for_how_long_kafka_has_not_answered() -> None:
    """librdkafka gives them up after the session: other members may still reach Kafka, and have taken them."""
    group = Group(TTL_SECONDS)
    site = group.bridge(0)
    group.live(40, {"gemm": 0})
    silent_for(group, 15)
    site.kafka.revoke(site.intake, P0, lost=True)
    site.kafka.settles = False
    silent_for(group, 5 * TTL_SECONDS)
    assert site.own("kernelcast_bridge_kafka_outage_seconds") == pytest.approx(5 * TTL_SECONDS + 15, abs=15)
    assert site.intake.ownership.readiness() == (False, "Kafka does not answer")
    answers_again(group)
    group.live(20, {})
    assert site.own("kernelcast_bridge_kafka_outage_seconds") == 0
    assert site.intake.ownership.readiness() == (False, "partitions have not been assigned yet")


def test_a_kafka_that_answers_and_gets_no_messages_is_no_outage() -> None:
    group = Group(TTL_SECONDS)
    site = group.bridge(0)
    group.live(40, {"gemm": 0})
    group.live(TTL_SECONDS // 2, {})
    assert site.own("kernelcast_bridge_kafka_outage_seconds") == 0


@pytest.mark.parametrize("refused", [0, 1])
def test_points_read_before_the_beginning_of_a_partition_was_known_are_counted_once_if_a_seek_fails(
    monkeypatch: pytest.MonkeyPatch, *, refused: int
) -> None:
    group = Group(TTL_SECONDS)
    group.live(5, {"gemm": 0})
    site = group.bridge()
    site.kafka.answers = False
    group.give(site, 0)
    group.live(2, {"gemm": 0})
    answers_again(group)
    seek, left = site.kafka.seek, [BrokerError("erroneous state")] * refused

    def seeks(partition: TopicPartition) -> None:
        if left:
            raise left.pop()
        seek(partition)

    monkeypatch.setattr(site.kafka, "seek", seeks)
    group.live(10, {"gemm": 0})
    assert group.shown(site) == group.counts
