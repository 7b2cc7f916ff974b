"""All points arrive though receivers fail, bridges are killed and partitions move."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from tests.support.push.push_site import MS, P0, P1, RESOURCE, GroupMember, Log, PrometheusOfLists, PushSite
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.push.instruments import BatchCounts
from kernelcast.columnar import Sample, encode
from kernelcast.runtime.kafka.clients import StampedMessage
from kernelcast.wire.catalogue import kernel


def launches(value: int, time_ms: int, name: str = "gemm") -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), time_ms * MS, value, 1)


def test_offsets_are_committed_only_after_the_receiver_has_taken_the_points() -> None:
    store = PrometheusOfLists(script=[httpx.Response(503)] * 3)
    site = PushSite(store)
    site.log.write(P0, launches(1, 10))
    seen: list[int] = []
    site.member.due = [lambda: seen.append(site.log.committed.get(P0, 0))] * 20
    site.push_all()
    assert seen[:4] == [0, 0, 0, 0]
    assert site.log.committed == {P0: 1}
    assert store.by_kernel() == {"gemm": {10: 1.0}}
    assert site.own("retries_total", cause="server_error") == 3
    assert site.own("up") == 1


def test_waits_grow_with_jitter_and_a_receiver_that_asks_for_time_gets_it() -> None:
    asked = httpx.Response(429, headers={"Retry-After": "20"})
    store = PrometheusOfLists(script=[httpx.Response(500)] * 8 + [asked])
    site = PushSite(store)
    site.log.write(P0, launches(1, 10))
    site.push_all()
    assert site.waits[:8] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert 20 <= site.waits[8] <= 30
    assert site.own("retries_total", cause="throttled") == 1


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_wrong_token_or_path_empties_no_backlog(status: int) -> None:
    store = PrometheusOfLists(script=[httpx.Response(status)] * 5)
    site = PushSite(store)
    site.log.write(P0, launches(1, 10))
    site.push_all()
    assert site.own("retries_total", cause="configuration") == 5
    assert store.by_kernel() == {"gemm": {10: 1.0}}
    assert site.discarded() == {}


def test_a_network_that_fails_is_retried() -> None:
    store = PrometheusOfLists(script=[httpx.ConnectError("refused"), httpx.ReadTimeout("late")])
    site = PushSite(store)
    site.log.write(P0, launches(1, 10))
    site.push_all()
    assert site.own("retries_total", cause="network") == 2
    assert site.own("points_total") == 1


def test_lag_grows_while_the_receiver_is_down_and_goes_when_it_is_back() -> None:
    site = PushSite(PrometheusOfLists(script=[httpx.Response(503)] * 9), linger_seconds=0)
    site.log.write(P0, launches(1, 10))
    lags: list[float | None] = []

    def more() -> None:
        site.log.write(P0, launches(2, 20 + len(lags)))
        lags.append(site.own("lag_messages", topic=P0[0], partition="0"))

    site.member.due = [more] * 300
    site.push_all()
    assert max(lag or 0 for lag in lags) > 100
    site.clock.seconds += 5
    site.pusher.step()
    assert site.own("lag_messages", topic=P0[0], partition="0") == 0


def test_only_the_series_that_a_receiver_refuses_is_lost() -> None:
    store = PrometheusOfLists(bad_series=frozenset({"k7"}))
    site = PushSite(store, protocol="1.0")
    for time_ms in (10, 20):
        site.log.write(P0, *(launches(1, time_ms, name=f"k{i}") for i in range(60)))
    site.push_all()
    assert store.by_kernel() == {f"k{i}": {10: 1.0, 20: 1.0} for i in range(60) if i != 7}
    assert site.discarded() == {"out_of_order": 2}
    assert len(store.requests) < 30
    assert site.own("points_total") == 118


def test_messages_delivered_before_a_crash_are_found_refused_and_what_follows_them_arrives() -> None:
    store, log = PrometheusOfLists(), Log()
    before = PushSite(store, log=log, protocol="1.0")
    before.member.takes_commits = False
    for time_ms in range(10, 15):
        log.write(P0, *(launches(time_ms, time_ms, name=f"k{i}") for i in range(30)))
    before.push_all()
    for time_ms in range(15, 20):
        log.write(P0, *(launches(time_ms, time_ms, name=f"k{i}") for i in range(30)))
    after = PushSite(store, log=log, protocol="1.0")
    after.push_all()
    assert store.by_kernel() == {f"k{i}": {t: float(t) for t in range(10, 20)} for i in range(30)}
    assert log.committed == {P0: 10}


def test_a_message_with_refused_series_in_every_part_loses_only_these() -> None:
    names = [f"k{i}" for i in range(200)]
    store = PrometheusOfLists(bad_series=frozenset(names[::10]))
    site = PushSite(store, protocol="1.0")
    site.log.write(P0, *(launches(1, 10, name=name) for name in names))
    site.push_all()
    assert store.by_kernel().keys() == set(names) - store.bad_series
    assert site.discarded() == {"out_of_order": 20}
    assert site.own("points_total") == 180


def test_a_message_delivered_before_a_crash_takes_few_requests_however_many_series_it_has() -> None:
    store, log = PrometheusOfLists(), Log()
    for time_ms in (10, 20):
        log.write(P0, *(launches(time_ms, time_ms, name=f"k{i}") for i in range(500)))
        PushSite(store, log=Log({P0: log.messages[P0][-1:]}), protocol="1.0").push_all()
    store.requests.clear()
    after = PushSite(store, log=log, protocol="1.0")
    after.push_all()
    assert after.discarded() == {"out_of_order": 500}
    assert len(store.requests) < 50


def test_a_message_arrives_however_many_requests_the_one_before_it_was_divided_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelcast.bridge.push.delivery.MAX_PARTS", 30)
    store, log = PrometheusOfLists(), Log()
    for time_ms, step in ((5, 1), (20, 4)):
        log.write(P0, *(launches(1, time_ms, name=f"k{i}") for i in range(0, 64, step)))
    before = PushSite(store, log=log, protocol="1.0")
    before.push_all()
    for time_ms in (10, 30):
        log.write(P0, *(launches(2, time_ms, name=f"k{i}") for i in range(64)))
    before.push_all()
    assert all(known[30] == 2.0 for known in store.by_kernel().values())


def test_a_receiver_of_2_0_takes_the_rest_itself_and_nothing_is_sent_twice() -> None:
    store = PrometheusOfLists(versions=(1, 2), bad_series=frozenset({"k7"}))
    site = PushSite(store)
    site.log.write(P0, *(launches(1, 10, name=f"k{i}") for i in range(60)))
    site.push_all()
    assert len(store.requests) == 1
    assert site.discarded() == {"out_of_order": 1}
    assert site.own("points_total") == 59


@pytest.mark.parametrize("checks", [True, False])
def test_a_receiver_of_1_0_gets_1_0_whether_it_says_so_or_not(*, checks: bool) -> None:
    store = PrometheusOfLists(checks_content_type=checks)
    site = PushSite(store)
    for time_ms in (10, 20):
        site.log.write(P0, launches(1, time_ms))
        site.push_all()
    versions = [request.headers["x-prometheus-remote-write-version"] for request in store.requests]
    assert versions == ["2.0.0", "0.1.0", "0.1.0"]
    assert store.by_kernel() == {"gemm": {10: 1.0, 20: 1.0}}


def test_a_receiver_of_1_0_is_no_receiver_where_2_0_is_demanded() -> None:
    store = PrometheusOfLists(checks_content_type=False)
    site = PushSite(store, protocol="2.0")
    site.log.write(P0, launches(1, 10))
    site.member.due = [lambda: None] * 50 + [lambda: setattr(site, "stopping", True)]
    site.push_all()
    assert site.log.committed == {P0: 0}
    assert (site.own("retries_total", cause="configuration") or 0) >= 1


def test_the_end_of_a_partition_is_forgotten_with_it() -> None:
    site = PushSite(PrometheusOfLists(), keys=(P0, P1))
    site.log.write(P0, launches(1, 10))
    batch = site.backlog.read(max_bytes=1, linger_seconds=0, stopping=lambda: False)
    for time_ms in (10, 20, 30):
        site.log.write(P1, launches(1, time_ms))
    site.member.reached = [TopicPartition(*P1, 3)]
    assert site.backlog.wait(0.2, stopping=lambda: False)
    site.member.leave(site.backlog, P1)
    site.member.join(site.backlog, P1)
    site.backlog.acknowledge(batch)
    site.member.at_once = 1
    site.backlog.acknowledge(site.backlog.read(max_bytes=1, linger_seconds=0, stopping=lambda: False))
    assert site.log.committed[P1] == 1, "two messages of it have not been read"


def test_stopping_commits_nothing_that_was_not_acknowledged() -> None:
    site = PushSite(PrometheusOfLists(script=[httpx.Response(503)] * 1000))
    site.log.write(P0, launches(1, 10))
    site.member.due = [lambda: None] * 30 + [lambda: setattr(site, "stopping", True)]
    site.push_all()
    site.backlog.close()
    assert site.log.committed.get(P0, 0) == 0


def test_a_partition_that_goes_during_an_outage_is_left_and_the_others_are_read_again() -> None:
    store = PrometheusOfLists(script=[httpx.Response(503)] * 4)
    site = PushSite(store, keys=(P0, P1))
    site.log.write(P0, launches(1, 10, name="stays"))
    site.log.write(P1, launches(1, 10, name="goes"))
    site.member.due = [lambda: None] * 2 + [lambda: site.member.leave(site.backlog, P1)]
    while not store.by_kernel():
        site.pusher.step()
    assert store.by_kernel() == {"stays": {10: 1.0}}
    assert site.log.committed.get(P1, 0) == 0
    assert site.log.committed[P0] == 1


def test_a_group_that_starts_at_the_end_stays_there_even_if_it_dies_before_the_first_point() -> None:
    log, store = Log(), PrometheusOfLists()
    log.write(P0, launches(1, 10))
    first = PushSite(store, log=log, start="end")
    first.pusher.step()
    log.write(P0, launches(2, 20))
    second = PushSite(store, log=log, start="end")
    second.push_all()
    assert store.by_kernel() == {"gemm": {20: 2.0}}


def test_a_partition_made_later_is_read_from_its_beginning() -> None:
    store = PrometheusOfLists()
    site = PushSite(store, start="end")
    site.log.write(P1, launches(1, 10))
    site.member.join(site.backlog, P1)
    site.push_all()
    assert store.by_kernel() == {"gemm": {10: 1.0}}


def test_what_retention_took_before_it_was_sent_is_counted() -> None:
    log = Log(committed={P0: 2}, first={P0: 5})
    for time_ms in range(10, 20):
        log.write(P0, launches(1, time_ms))
    store = PrometheusOfLists()
    site = PushSite(store, log=log)
    site.push_all()
    assert site.own("lost_messages_total") == 3
    assert sorted(store.by_kernel()["gemm"]) == list(range(15, 20))


def test_the_marker_of_a_transaction_is_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PushSite(PrometheusOfLists())
    site.log.write(P0, launches(1, 10))
    monkeypatch.setattr(site.member, "known_high", lambda _partition: 2)
    site.member.reached = [TopicPartition(*P0, 2)]
    site.pusher.step()
    assert site.log.committed == {P0: 2}
    assert site.backlog.lag() == 0


def test_a_count_of_written_samples_with_thousands_of_digits_is_more_than_were_sent() -> None:
    written = {"X-Prometheus-Remote-Write-Samples-Written": "9" * 5000}
    site = PushSite(PrometheusOfLists(script=[httpx.Response(204, headers=written)]))
    site.log.write(P0, launches(1, 10))
    site.push_all()
    assert site.log.committed == {P0: 1}
    assert site.discarded() == {}


def test_messages_that_are_no_metrics_are_counted_and_stop_nothing() -> None:
    store = PrometheusOfLists()
    site = PushSite(store)
    site.log.write(P0, launches(1, 10))
    site.log.write_body(P0, b"\xffpoison")
    site.log.write_body(P0, None)
    site.log.write(P0, launches(2, 20))
    site.push_all()
    assert store.by_kernel() == {"gemm": {10: 1.0, 20: 2.0}}
    assert site.own("undecodable_messages_total", error="DecodeError") == 1
    assert site.log.committed == {P0: 4}


def test_a_fault_of_ours_costs_only_the_message_that_meets_it() -> None:
    store = PrometheusOfLists()
    site = PushSite(store)
    whole = site.pusher.stages.payloads

    def fragile(messages: Sequence[StampedMessage]) -> Iterator[tuple[list[int], list[Any]]]:
        if any(message.value() == b"crash" for message in messages):
            raise ZeroDivisionError("a fault of ours")
        return whole(messages)

    site.pusher.stages = replace(site.pusher.stages, payloads=fragile)
    site.log.write(P0, launches(1, 10))
    site.log.write_body(P0, b"crash")
    site.log.write(P0, launches(2, 20))
    site.push_all()
    assert store.by_kernel() == {"gemm": {10: 1.0, 20: 2.0}}
    assert site.own("undecodable_messages_total", error="internal") == 1


@pytest.mark.parametrize("kind", ["remote_write", "otlp"])
def test_what_a_batch_leaves_out_counts_once_though_a_fault_of_ours_makes_it_start_again(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    whole, faults = BatchCounts.commit, [ZeroDivisionError("a fault of ours")]

    def fails_once(counts: BatchCounts) -> None:
        if faults:
            raise faults.pop()
        whole(counts)

    monkeypatch.setattr(BatchCounts, "commit", fails_once)
    site = PushSite(PrometheusOfLists(), kind=kind)
    site.log.write(P0, Sample(kernel.VARIANT_LAUNCHES, (("variant", "v"),), 10 * MS, 1, MS))
    site.log.write_body(P0, b"\xffpoison")
    site.push_all()
    assert site.discarded() == {"wire_only": 1}
    assert site.own("undecodable_messages_total", error="DecodeError") == 1


EVENTS = st.lists(st.sampled_from(["write", "write", "push", "fail", "kill", "move"]), min_size=10, max_size=40)


@given(events=EVENTS, version=st.sampled_from([1, 2]))
def test_whatever_happens_every_point_arrives_and_none_twice(events: list[str], version: int) -> None:
    store, log = PrometheusOfLists(versions=(1, version)), Log()
    site = PushSite(store, log=log, keys=(P0, P1), max_points=7)
    written: dict[str, dict[int, float]] = {}
    for step, event in enumerate([*events, "push"], start=1):
        match event:
            case "write":
                for key in (P0, P1):
                    names = [f"{key[1]}-{i}" for i in range(5)]
                    log.write(key, *(launches(step, step, name=name) for name in names))
                    for name in names:
                        written.setdefault(name, {})[step] = float(step)
            case "push":
                site.push_all()
            case "fail":
                store.script = [*store.script, *[httpx.Response(503)] * 3]
            case "kill":  # after the receiver has taken something, before Kafka has the commit
                site.member.takes_commits = False
                site.pusher.step()
                site = PushSite(store, log=log, clock=site.clock, keys=(P0, P1), max_points=7)
            case "move":
                site.member.leave(site.backlog, P1)
                site.member.join(site.backlog, P1)
    assert store.by_kernel() == written
    assert log.committed == ({P0: len(log.messages[P0]), P1: len(log.messages[P1])} if written else {P0: 0, P1: 0})


def test_messages_that_expire_while_the_receiver_is_down_are_counted_as_lost() -> None:
    site = PushSite(PrometheusOfLists(script=[httpx.Response(503)] * 3))
    site.log.write(P0, launches(1, 10))

    def expire() -> None:
        for time_ms in range(20, 30):
            site.log.write(P0, launches(2, time_ms))
        site.log.first[P0] = 6

    site.member.due = [lambda: None, lambda: None, expire]
    site.push_all()
    assert site.log.committed == {P0: 11}
    assert site.own("lost_messages_total") == 5


def test_messages_that_expired_are_counted_once_though_what_follows_them_is_read_again() -> None:
    site = PushSite(PrometheusOfLists(script=[httpx.Response(503)] * 9), keys=(P0, P1))
    site.log.write(P0, launches(1, 10))

    def expire() -> None:
        for time_ms in range(20, 30):
            site.log.write(P0, launches(2, time_ms))
        site.log.first[P0] = 6

    def rebalance() -> None:
        site.member.leave(site.backlog, P1)
        site.member.join(site.backlog, P1)

    site.log.write(P1, launches(1, 10, name="moves"))
    site.member.due = [lambda: None, lambda: None, expire, lambda: None, rebalance, *[lambda: None] * 3, rebalance]
    while site.log.committed.get(P0) != 11:
        site.pusher.step()
    assert site.own("lost_messages_total") == 6, "the first message expired as well before it was sent"


def test_a_partition_that_comes_back_counts_only_messages_that_expired_since() -> None:
    site = PushSite(PrometheusOfLists(script=[httpx.Response(503)] * 9))
    site.log.committed[P0] = 0
    for time_ms in range(20, 30):
        site.log.write(P0, launches(2, time_ms))
    for first in (4, 6):
        site.log.first[P0] = first
        site.member.leave(site.backlog, P0, lost=True)
        site.member.join(site.backlog, P0)
    site.push_all()
    assert site.own("lost_messages_total") == 6


@pytest.mark.parametrize("read_before", [0, 1], ids=["nothing_read_before", "messages_read_before"])
def test_a_restart_while_the_receiver_is_down_counts_only_messages_that_no_process_has_counted(
    read_before: int,
) -> None:
    site = PushSite(PrometheusOfLists(script=[httpx.Response(503)] * 99))
    for time_ms in range(30):
        site.log.write(P0, launches(2, time_ms))
    site.member.at_once = read_before

    def expire() -> None:
        site.log.first[P0] = 10
        site.member.at_once = 5

    def stop() -> None:
        site.stopping = True

    site.member.due = [lambda: None, expire, *[lambda: None] * 40, stop]
    while not site.stopping:
        site.pusher.step()
    assert site.waits, "the receiver was down"
    site.log.first[P0] = 12
    after = PushSite(PrometheusOfLists(), log=site.log, clock=site.clock)
    after.push_all()
    counts = [each.own("lost_messages_total") or 0 for each in (site, after)]
    assert sum(counts) == 12, counts


def test_gaps_of_a_compacted_topic_are_compared_with_what_kafka_keeps_once_per_second_and_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries: list[TopicPartition] = []

    def counted(_member: GroupMember, partition: TopicPartition) -> tuple[int, int]:
        queries.append(partition)
        return 0, 100

    monkeypatch.setattr(GroupMember, "watermarks", counted)
    site = PushSite(PrometheusOfLists())
    for time_ms in range(100):
        site.log.write(P0, launches(2, time_ms))
    site.log.messages[P0] = site.log.messages[P0][::4]
    monkeypatch.setattr(site.member, "known_high", lambda _partition: 100)
    queries.clear()
    site.pusher.step()
    assert len(queries) == 1
    assert site.own("lost_messages_total") == 0


def test_all_messages_that_expired_are_counted_even_if_none_is_left() -> None:
    site = PushSite(PrometheusOfLists())
    site.log.write(P0, launches(1, 10))
    site.push_all()
    for time_ms in range(20, 30):
        site.log.write(P0, launches(2, time_ms))
    site.log.first[P0] = 11
    site.member.reached = [TopicPartition(*P0, 11)]
    site.pusher.step()
    assert site.own("lost_messages_total") == 10


def test_offsets_of_transaction_markers_and_compacted_messages_are_not_lost_messages() -> None:
    site = PushSite(PrometheusOfLists())
    site.log.write(P0, launches(1, 10))
    site.push_all()
    for time_ms in range(20, 30):
        site.log.write(P0, launches(2, time_ms))
    site.member.position[P0] = 6
    site.push_all()
    assert site.own("lost_messages_total") == 0


def test_the_age_of_a_backlog_is_that_of_its_oldest_message_in_any_partition() -> None:
    ages: list[float] = []

    def receiver(_request: httpx.Request) -> httpx.Response:
        ages.append(site.backlog.age_seconds())
        return httpx.Response(204)

    site = PushSite(receiver, keys=(P0, P1), protocol="1.0")
    now_ms = site.clock.now_ns() // MS
    (body,) = (export.body for export in encode(RESOURCE, [launches(1, 10)], scope=""))
    site.log.messages = {
        P0: [Record((*P0, 0), body, append_ms=now_ms - 1_000)],
        P1: [Record((*P1, 0), body, append_ms=now_ms - 7_000)],
    }
    site.push_all()
    assert ages[0] == pytest.approx(7, abs=0.5)


def test_the_end_of_a_partition_that_was_revoked_and_comes_back_commits_nothing_that_was_not_sent() -> None:
    store, log = PrometheusOfLists(), Log()
    log.write(P1, launches(1, 10))
    for time_ms in (10, 20):
        log.write(P0, launches(1, time_ms, name="copy"))
    before = PushSite(store, log=log, keys=(P0, P1))
    before.member.at_once = 1

    def revoke() -> None:
        before.member.leave(before.backlog, P0)
        before.member.reached = [TopicPartition(*P0, 2)]

    def pause() -> None:
        before.member.at_once = 0

    before.member.due = [revoke, lambda: before.member.join(before.backlog, P0), pause]
    before.pusher.step()
    after = PushSite(store, log=log, keys=(P0, P1))
    after.push_all()
    assert store.by_kernel() == {"gemm": {10: 1.0}, "copy": {10: 1.0, 20: 1.0}}


def make_again(site: PushSite, *times_ms: int) -> None:
    """Delete the topic, make it again, and write to it; Kafka's client then reads it from its beginning."""
    site.log.messages.clear()
    site.log.committed.clear()
    site.log.first.clear()
    for time_ms in times_ms:
        site.log.write(P0, launches(2, time_ms))
    site.member.position[P0] = 0


def test_a_topic_that_is_made_again_is_committed_from_its_beginning_and_has_a_lag() -> None:
    store = PrometheusOfLists()
    site = PushSite(store)
    for time_ms in range(10, 30):
        site.log.write(P0, launches(1, time_ms))
    site.push_all()
    make_again(site, 40, 50, 60)
    store.script = [httpx.Response(503)] * 9
    lags: list[float | None] = []
    site.member.due = [lambda: lags.append(site.own("lag_messages", topic=P0[0], partition="0"))] * 30
    site.push_all()
    assert 3 in lags
    assert site.log.committed == {P0: 3}
    assert list(store.by_kernel()["gemm"]) == [*range(10, 30), 40, 50, 60]


def test_a_topic_made_again_while_the_receiver_is_down_loses_no_message_of_the_old_or_the_new_one() -> None:
    store = PrometheusOfLists(script=[httpx.Response(503)] * 5)
    site = PushSite(store)
    for time_ms in range(10, 30):
        site.log.write(P0, launches(1, time_ms))

    def recreate() -> None:
        make_again(site, 40, 50, 60)
        site.member.paused.clear()

    site.member.due = [*[lambda: None] * 8, recreate]
    site.pusher.step()
    assert site.log.committed.get(P0, 0) == 0, "the end of the old topic"
    site.push_all()
    assert site.log.committed == {P0: 3}
    assert list(store.by_kernel()["gemm"]) == [*range(10, 30), 40, 50, 60]
