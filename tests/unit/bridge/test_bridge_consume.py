import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bridge.fleet import MARKER, ListKafka, Site, page, values

from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel

P0, P1 = ("kernels", 0), ("kernels", 1)
LAUNCHES = "cuda_kernel_launches_total"


def launches(number: int, *, time_ns: int, name: str = "gemm", start_ns: int = 1) -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), time_ns, number, start_ns)


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
    run(site, 2)
    assert site.intake.ownership.readiness() == (True, "")
    assert site.own("kernelcast_bridge_lag_messages", topic="kernels", partition="0") == 0


def test_series_expire_in_a_partition_whose_last_offset_holds_no_message() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.kafka.write(*P0, None, append_ms=0, kind=MARKER)
    site.read_all()
    site.kafka.end(*P0, 2)
    run(site, 200)
    assert values(site.store, LAUNCHES) == [1]
    run(site, 120)
    assert page(site.store) == ""


def test_a_partition_without_a_leader_waits_alone_and_is_read_from_where_it_should_have_been() -> None:
    site = Site()
    for number in range(1, 4):
        site.export(0, launches(number, time_ns=number, name="a"))
        site.export(1, launches(number, time_ns=number, name="b"))
    site.kafka.leaderless = {P1}
    site.kafka.assign(site.intake, P0, P1)
    site.export(1, launches(4, time_ns=4, name="b"))
    site.kafka.end(*P1, 4)
    site.read_all()
    assert values(site.store, LAUNCHES) == [3]
    site.kafka.leaderless = set()
    run(site, 2)
    site.read_all()
    assert sorted(values(site.store, LAUNCHES)) == [3, 4]
    assert site.own("kernelcast_bridge_messages_total", topic="kernels") == 8
    assert site.intake.ownership.readiness() == (True, "")


def test_a_topic_that_is_deleted_and_made_again_goes_on_from_its_new_beginning() -> None:
    site = Site()
    site.kafka.at_once = 100
    site.kafka.assign(site.intake, P0)
    for number in range(1, 50):
        site.export(0, launches(number, time_ns=number))
    site.read_all()
    site.kafka.logs[P0], site.kafka.reading[P0] = [], 0
    site.export(0, launches(1, time_ns=100, start_ns=90))
    site.kafka.write(*P0, b"poison", append_ms=1)
    run(site, 2)
    assert values(site.store, LAUNCHES) == [1]
    assert site.own("kernelcast_bridge_offset_restarts_total", topic="kernels") == 1
    assert len(site.shelf.messages) == 1
    for number in range(2, 5):
        site.export(0, launches(number, time_ns=100 + number, start_ns=90))
    run(site, 2)
    assert values(site.store, LAUNCHES) == [4]
    assert site.own("kernelcast_bridge_lag_messages", topic="kernels", partition="0") == 0


def test_messages_without_a_key_are_refused_in_a_group_and_the_remedy_is_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="keyed"))
    site.export(0, launches(2, time_ns=2, name="unkeyed"), keyed=None)
    site.read_all()
    assert values(site.store, LAUNCHES) == [1]
    assert site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 1
    assert "set bridge.mode to sharded" in capsys.readouterr().out
    assert site.intake.ownership.readiness() == (True, "")


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
        run(site, 1)
    assert 0 < asked_seconds <= 0.15 * 600


def test_one_partition_that_lags_does_not_hide_the_others() -> None:
    site = Site()
    site.export(0, launches(1, time_ns=1, name="a"))
    for number in range(5):
        site.export(1, launches(number, time_ns=number, name="b"))
    site.kafka.assign(site.intake, P0, P1)
    site.intake.step()
    assert values(site.store, LAUNCHES) == [1]
    assert "1 of 2 partitions" in site.intake.ownership.readiness()[1]


@settings(max_examples=60, deadline=None)
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


def run(site: Site, seconds: float) -> None:
    for _ in range(math.ceil(seconds)):
        site.clock.seconds += min(seconds, 1.0)
        seconds -= 1.0
        site.intake.step()


def test_a_series_expires_one_time_to_live_after_its_last_message() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.read_all()
    run(site, 299)
    assert values(site.store, LAUNCHES) == [1]
    run(site, 15)
    assert page(site.store) == ""
    assert site.own("kernelcast_bridge_removed_series_total", cause="expired") == 1


def test_a_series_that_is_written_on_stays_while_a_silent_one_of_the_same_partition_goes() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="silent"))
    for step in range(1, 40):
        site.export(0, launches(step, time_ns=step, name="busy"))
        run(site, 10)
        site.read_all()
    assert values(site.store, LAUNCHES) == [39]


def test_what_lags_does_not_expire_however_late_it_is_read() -> None:
    site = Site(ttl_seconds=300)
    for number in range(3):
        site.export(0, launches(number, time_ns=number))
    site.kafka.assign(site.intake, P0)
    site.intake.step()
    site.kafka.at_once = 0
    run(site, 400)
    assert site.store.states()["catching_up"] == 1


@pytest.mark.parametrize("wrong_ns", [-3_600 * 10**9, 3_600 * 10**9])
def test_a_wrong_local_clock_neither_keeps_series_nor_drops_them(wrong_ns: int) -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.clock.offset_ns = wrong_ns
    site.read_all()
    run(site, 200)
    assert values(site.store, LAUNCHES) == [1]
    run(site, 120)
    assert page(site.store) == ""


def test_a_producers_clock_in_the_future_expires_nothing_where_kafka_stamps_no_messages() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="right"))
    site.export(0, launches(1, time_ns=1, name="ahead"), append_ms=round((site.clock.seconds + 9_000) * 1000))
    site.kafka.logs[P0] = [type(r)(r.at, r.body, r.append_ms, kind=1) for r in site.kafka.logs[P0]]
    site.read_all()
    run(site, 12)
    assert sorted(values(site.store, LAUNCHES)) == [1, 1]
    assert site.own("kernelcast_bridge_append_time_available", topic="kernels") == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=10, max_size=30), st.sampled_from([-600, -5, 0, 5, 9, 60, 600]))
def test_points_sent_again_in_any_order_change_nothing_whatever_their_producers_clock(
    delays: list[int], ahead_seconds: int
) -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    began_ns = site.clock.now_ns() + ahead_seconds * 10**9
    for newest, delay in enumerate(delays):
        site.clock.seconds += 1
        for number in {newest, max(0, newest - delay)}:
            site.export(0, launches(number, time_ns=began_ns + number * 10**9, start_ns=began_ns))
            site.read_all()
        assert values(site.store, LAUNCHES) == [newest]


def test_a_clock_that_was_ahead_and_is_put_right_blocks_nothing() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    for number, ahead_seconds in enumerate((600, 600, 0, 0, 12, 600, 2), start=1):
        site.clock.seconds += 10
        site.export(0, launches(number, time_ns=site.clock.now_ns() + ahead_seconds * 10**9))
        site.read_all()
        assert values(site.store, LAUNCHES) == [number]


def test_numbers_of_series_that_went_are_given_back_to_the_decoder() -> None:
    site = Site(ttl_seconds=10)
    site.kafka.assign(site.intake, P0)
    for generation in range(20):
        site.export(0, *(launches(1, time_ns=generation + 1, name=f"k{generation}-{i}") for i in range(50)))
        site.export(0, Sample(kernel.VARIANT_LAUNCHES, (("variant", f"v{generation}"),), 1, 1, 1))
        run(site, 11)
        site.read_all()
    [wires] = site.store._wires.values()
    assert len(wires.columns.slot) == 1024
    assert site.store._slots.used <= 150


def test_a_broker_that_does_not_answer_at_assignment_delays_the_gate_and_never_opens_it_early() -> None:
    site = Site()
    for number in range(1, 4):
        site.export(0, launches(number, time_ns=number))

    site.kafka.answers = False
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert page(site.store) == ""
    site.kafka.answers = True
    run(site, 2)
    assert page(site.store) == ""
    site.read_all()
    assert values(site.store, LAUNCHES) == [3]


def test_positions_are_committed_for_those_who_watch_the_lag() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.read_all()
    run(site, 10)
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


def test_what_was_stored_after_a_scrape_began_waits_for_the_next() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=site.clock.now_ns()))
    site.read_all()
    site.clock.seconds += 1
    site.intake.freshness.scraped(2.0, 100)
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_count", topic="kernels") == 0
    site.intake.freshness.scraped(0.5, 100)
    assert site.own("kernelcast_bridge_event_to_scrape_seconds_count", topic="kernels") == 1


def test_lag_is_told_in_seconds_and_gone_with_its_partition() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    for number in range(3):
        site.export(0, launches(number, time_ns=number))
    site.intake.step()
    site.kafka.at_once = 0
    run(site, 30)
    assert site.own("kernelcast_bridge_lag_seconds", topic="kernels", partition="0") == pytest.approx(30)
    site.kafka.at_once = 1
    site.read_all()
    run(site, 2)
    assert site.own("kernelcast_bridge_lag_seconds", topic="kernels", partition="0") == 0
    site.kafka.revoke(site.intake, P0)
    for name in ("lag_seconds", "lag_messages"):
        assert site.own(f"kernelcast_bridge_{name}", topic="kernels", partition="0") is None
