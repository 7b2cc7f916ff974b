import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.support.bridge.fleet import LAUNCHES, Site, launches, page, values
from tests.support.bridge.list_kafka import MARKER, ListKafka
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.intake.batch import MessageBatch
from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.runtime.kafka.topic_names import TopicNames
from kernelcast.wire.errors import BrokerError

P0, P1 = ("kernels", 0), ("kernels", 1)


def make_old(site: Site) -> None:
    """Give both partitions a message from before one time-to-live, as a topic has that was not made just now."""
    for partition in (0, 1):
        site.export(partition, launches(1, time_ns=1, name="before"), append_ms=1)


def test_nothing_of_a_partition_shows_before_it_has_been_read_to_where_it_stood_at_assignment() -> None:
    site = Site()
    for number in range(1, 6):
        site.export(0, launches(number, time_ns=number))
    site.kafka.assign(site.intake, P0)
    for _ in range(4):
        site.intake.step()
        assert page(site.store) == ""
        assert site.intake.ownership.readiness()[0] is False
    site.intake.step()
    assert values(site.store, LAUNCHES) == [5]
    assert site.intake.ownership.readiness() == (True, "")


def test_a_member_to_which_the_group_gives_nothing_without_a_word_is_ready_once_the_group_says_so() -> None:
    site = Site()
    site.intake.step()
    assert site.intake.ownership.readiness()[0] is False
    site.kafka.settles = True
    site.clock.seconds += 1
    site.intake.step()
    assert site.intake.ownership.readiness() == (True, "")


def test_an_empty_partition_passes_at_once_and_an_empty_assignment_is_ready() -> None:
    site = Site()
    assert site.intake.ownership.readiness()[0] is False
    site.kafka.assign(site.intake)
    assert site.intake.ownership.readiness() == (True, "")
    site.kafka.assign(site.intake, P0)
    assert site.intake.ownership.readiness() == (True, "")


def test_a_partition_whose_last_offsets_hold_no_message_is_exposed_once_its_end_is_reached() -> None:
    site = Site()
    site.export(0, launches(1, time_ns=1))
    site.kafka.write(*P0, None, append_ms=0, kind=MARKER)
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert page(site.store) == ""
    site.kafka.end(*P0, 2)
    site.intake.step()
    assert values(site.store, LAUNCHES) == [1]
    site.run(2)
    assert site.intake.ownership.readiness() == (True, "")
    assert site.own("kernelcast_bridge_lag_messages", topic="kernels", partition="0") == 0


def test_series_expire_in_a_partition_whose_last_offset_holds_no_message() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.kafka.write(*P0, None, append_ms=0, kind=MARKER)
    site.read_all()
    site.kafka.end(*P0, 2)
    site.run(200)
    assert values(site.store, LAUNCHES) == [1]
    site.run(120)
    assert page(site.store) == ""


def test_a_partition_without_a_leader_waits_alone_and_is_read_from_where_it_should_have_been() -> None:
    site = Site()
    make_old(site)
    for number in range(1, 4):
        site.export(0, launches(number, time_ns=number, name="a"))
        site.export(1, launches(number, time_ns=number, name="b"))
    site.kafka.leaderless = {P1}
    site.kafka.assign(site.intake, P0, P1)
    site.export(1, launches(4, time_ns=4, name="b"))
    site.kafka.end(*P1, 5)
    site.read_all()
    assert values(site.store, LAUNCHES) == [3]
    site.kafka.leaderless = set()
    site.run(2)
    site.read_all()
    assert sorted(values(site.store, LAUNCHES)) == [3, 4]
    assert site.own("kernelcast_bridge_messages_total", topic="kernels") == 8
    assert site.intake.ownership.readiness() == (True, "")


def test_a_topic_that_is_deleted_and_created_again_is_read_from_its_new_beginning() -> None:
    site = Site()
    site.kafka.at_once = 100
    site.kafka.assign(site.intake, P0)
    for number in range(1, 50):
        site.export(0, launches(number, time_ns=number))
    site.read_all()
    site.kafka.logs[P0], site.kafka.reading[P0] = [], 0
    site.export(0, launches(1, time_ns=100, start_ns=90))
    site.kafka.write(*P0, b"poison", append_ms=1)
    site.run(2)
    assert values(site.store, LAUNCHES) == [1]
    assert site.own("kernelcast_bridge_offset_restarts_total", topic="kernels") == 1
    assert len(site.shelf.messages) == 1
    for number in range(2, 5):
        site.export(0, launches(number, time_ns=100 + number, start_ns=90))
    site.run(2)
    assert values(site.store, LAUNCHES) == [4]
    assert site.own("kernelcast_bridge_lag_messages", topic="kernels", partition="0") == 0


def test_messages_without_a_key_are_refused_in_a_group_and_the_remedy_is_logged() -> None:
    with capture_logs() as logs:  # whatever an earlier test has configured
        site = Site()
        site.kafka.assign(site.intake, P0, P1)
        site.export(0, launches(1, time_ns=1, name="keyed"))
        site.export(0, launches(2, time_ns=2, name="unkeyed"), keyed=None)
        site.read_all()
    assert values(site.store, LAUNCHES) == [1]
    assert site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 1
    assert any("set bridge.mode to replica" in each["event"] for each in logs)
    assert site.intake.ownership.readiness() == (True, "")


def test_messages_without_a_key_are_taken_in_a_group_where_a_topic_has_one_partition() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="keyed"))
    site.export(0, launches(2, time_ns=2, name="unkeyed"), keyed=None)
    site.read_all()
    assert values(site.store, LAUNCHES) == [1, 2]
    assert site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 0


def test_messages_without_a_key_are_taken_before_kafka_has_listed_the_one_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    with monkeypatch.context() as patch:
        patch.setattr(ListKafka, "leaders", unanswered)
        site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="unkeyed"), keyed=None)
    site.read_all()
    assert values(site.store, LAUNCHES) == [1]
    assert site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 0


def test_messages_without_a_key_are_refused_once_kafka_has_listed_several_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    site.kafka.logs[P1] = []
    with monkeypatch.context() as patch:
        patch.setattr(ListKafka, "leaders", unanswered)
        site.kafka.assign(site.intake, P0)
    site.clock.seconds += 2
    site.run(2)
    site.export(0, launches(1, time_ns=1, name="unkeyed"), keyed=None)
    site.read_all()
    assert values(site.store, LAUNCHES) == []
    assert site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 1


def unanswered(_kafka: ListKafka) -> dict[tuple[str, int], int]:
    raise BrokerError("no broker answers")


def test_the_partitions_of_the_topics_that_are_read_are_shown_whoever_has_them() -> None:
    site = Site(policy=IntakePolicy(topics=TopicNames(["kernels"])))
    site.kafka.logs["elsewhere", 0] = []
    site.kafka.logs[P1] = []
    site.kafka.assign(site.intake, P0)
    site.run(12)
    assert site.own("kernelcast_bridge_topic_partitions", topic="kernels") == 2
    assert site.own("kernelcast_bridge_partitions", state="exposed") == 1
    assert site.own("kernelcast_bridge_topic_partitions", topic="elsewhere") is None


def test_the_end_of_a_partition_that_has_gone_is_passed_over() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.kafka.end(*P1, 7)
    site.intake.step()
    assert site.intake.ownership.get(P1) is None


def test_questions_to_a_broker_that_hangs_take_a_tenth_of_the_time_and_the_rest_is_for_reading() -> None:
    site = Site()
    site.kafka.answers = False
    asked_seconds = 0

    def hang() -> None:
        nonlocal asked_seconds
        site.clock.seconds += 5
        asked_seconds += 5

    site.kafka.on_silence = hang
    site.kafka.assign(site.intake, P0, P1)
    began = site.clock.seconds
    while site.clock.seconds < began + 600:
        site.run(1)
    assert 0 < asked_seconds <= 0.15 * 600


def test_a_suspension_of_the_process_within_a_query_delays_the_next_one_for_less_than_a_time_to_live() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.answers = False

    def suspended() -> None:
        site.clock.seconds += 120
        site.kafka.on_silence = lambda: None

    site.kafka.on_silence = suspended
    site.kafka.assign(site.intake, P0)
    site.kafka.on_silence = suspended
    site.run(2)
    asked = site.kafka.questions
    site.run(200)
    assert site.kafka.questions > asked


def test_one_partition_that_lags_does_not_hide_the_others() -> None:
    site = Site()
    make_old(site)
    site.export(0, launches(1, time_ns=1, name="a"))
    for number in range(5):
        site.export(1, launches(number, time_ns=number, name="b"))
    site.kafka.assign(site.intake, P0, P1)
    site.intake.step()
    assert values(site.store, LAUNCHES) == [1]
    assert "1 of 2 partitions" in site.intake.ownership.readiness()[1]


@given(st.lists(st.sampled_from(["export", "step", "restart", "move", "back"]), min_size=20, max_size=40))
def test_no_scrape_ever_sees_a_counter_fall(events: list[str]) -> None:
    site, count, seen = Site(), 0, 0.0
    site.kafka.assign(site.intake, P0)
    for event in events:
        site.clock.seconds += 1
        match event:
            case "export":
                count += 1
                site.export(0, launches(count, time_ns=count))
            case "step":
                site.intake.step()
            case "restart":
                site = Site(kafka=ListKafka(site.kafka.logs), clock=site.clock)
                site.kafka.assign(site.intake, P0)
            case "move" if P0 in site.kafka.reading:
                site.kafka.revoke(site.intake, P0)
                assert page(site.store) == ""
            case "back" if P0 not in site.kafka.reading:
                site.kafka.assign(site.intake, P0)
        for value in values(site.store, LAUNCHES):
            assert value >= seen
            seen = value


@pytest.mark.parametrize("lost", [False, True])
def test_series_of_a_revoked_partition_disappear_at_once_and_those_of_others_stay(*, lost: bool) -> None:
    site = Site()
    site.kafka.assign(site.intake, P0, P1)
    site.export(0, launches(1, time_ns=1, name="a"))
    site.export(1, launches(2, time_ns=1, name="b"))
    site.read_all()
    site.kafka.revoke(site.intake, P1, lost=lost)
    assert values(site.store, LAUNCHES) == [1]
    assert site.intake.ownership.readiness()[0] is False
    site.kafka.assign(site.intake)
    assert site.intake.ownership.readiness() == (True, "")
    assert site.own("kernelcast_bridge_removed_series_total", cause="revoked") == 1


def test_a_message_of_a_partition_that_has_just_gone_is_left_out() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    late, _ = site.kafka.consume()
    site.kafka.revoke(site.intake, P0)
    site.intake._store_batch(late)
    assert page(site.store) == ""


def test_a_restart_reads_one_time_to_live_again_and_no_more() -> None:
    site = Site(ttl_seconds=100)
    for age in (500, 90, 10):
        site.export(0, launches(1, time_ns=1, name=f"k{age}"), append_ms=round((site.clock.seconds - age) * 1000))
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert site.own("kernelcast_bridge_messages_total", topic="kernels") == 2


def test_a_broker_that_does_not_answer_at_assignment_delays_the_gate_and_never_opens_it_early() -> None:
    site = Site()
    for number in range(1, 4):
        site.export(0, launches(number, time_ns=number))

    site.kafka.answers = False
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert page(site.store) == ""
    site.kafka.answers = True
    site.run(2)
    assert page(site.store) == ""
    site.read_all()
    assert values(site.store, LAUNCHES) == [3]


def test_positions_are_committed_for_those_who_watch_the_lag() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.read_all()
    site.run(10)
    assert site.kafka.commits == {P0: 1}
    assert site.own("kernelcast_bridge_lag_messages", topic="kernels", partition="0") == 0


def test_points_are_counted_by_topic_with_their_delay() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    now_ns = site.clock.now_ns()
    site.export(0, launches(1, time_ns=now_ns - 3 * 10**9), launches(1, time_ns=now_ns - 2 * 10**9, name="b"))
    site.read_all()
    assert site.own("kernelcast_bridge_points_total", topic="kernels") == 2
    assert site.own("kernelcast_bridge_event_to_store_seconds_sum", topic="kernels") == pytest.approx(2.0)
    assert site.own("kernelcast_bridge_clock_ahead_seconds", topic="kernels") == pytest.approx(-2.0)


def test_the_time_until_a_scrape_shows_a_point_is_observed_once_and_not_while_it_is_hidden() -> None:
    site = Site()
    site.export(0, launches(1, time_ns=site.clock.now_ns()))
    site.kafka.assign(site.intake, P0)
    site.read_all()
    site.clock.seconds += 1
    site.intake.freshness.scraped(0.5, 100)
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_count", topic="kernels") == 0
    site.export(0, launches(2, time_ns=site.clock.now_ns() - 10**9))
    site.read_all()
    site.clock.seconds += 4
    for _ in range(2):
        site.intake.freshness.scraped(0.5, 100)
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_count", topic="kernels") == 1
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_sum", topic="kernels") == pytest.approx(5.0)


def test_points_stored_during_a_scrape_wait_for_the_next_one() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=site.clock.now_ns()))
    site.read_all()
    site.clock.seconds += 1
    site.intake.freshness.scraped(2.0, 100)
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_count", topic="kernels") == 0
    site.intake.freshness.scraped(0.5, 100)
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_count", topic="kernels") == 1


def test_lag_is_exposed_in_seconds_and_removed_with_its_partition() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    for number in range(3):
        site.export(0, launches(number, time_ns=number))
    site.intake.step()
    site.kafka.at_once = 0
    site.run(30)
    assert site.own("kernelcast_bridge_lag_seconds", topic="kernels", partition="0") == pytest.approx(30)
    site.kafka.at_once = 1
    site.read_all()
    site.run(2)
    assert site.own("kernelcast_bridge_lag_seconds", topic="kernels", partition="0") == 0
    site.kafka.revoke(site.intake, P0)
    for name in ("lag_seconds", "lag_messages"):
        assert site.own(f"kernelcast_bridge_{name}", topic="kernels", partition="0") is None


@given(times=st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=3))
def test_messages_of_several_partitions_are_read_by_time_and_each_partition_in_order(times: list[list[int]]) -> None:
    ownership = Ownership()
    for number in range(len(times)):
        ownership.assign(("kernels", number), start=0, gate=0)
    received = [
        Record(("kernels", number, offset), b"", append_ms)
        for number, appended in enumerate(times)
        for offset, append_ms in enumerate(appended)
    ]
    columns = MessageBatch.of(received, ownership, 100, keyed=lambda _topic: False).columns
    read = list(zip(columns.partition.tolist(), columns.offset.tolist(), columns.append_ms.tolist(), strict=True))
    newest = dict.fromkeys(range(len(times)), 0)
    for number in newest:
        assert [offset for partition, offset, _ in read if partition == number] == list(range(len(times[number])))
    order = []
    for partition, _, append_ms in read:
        newest[partition] = max(newest[partition], append_ms)
        order.append(newest[partition])
    assert order == sorted(order)
