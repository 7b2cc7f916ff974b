import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.fleet import LAUNCHES, Site, launches, page, values

from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel

P0, P1 = ("kernels", 0), ("kernels", 1)


def test_a_series_expires_one_time_to_live_after_its_last_message() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.read_all()
    site.run(299)
    assert values(site.store, LAUNCHES) == [1]
    site.run(15)
    assert page(site.store) == ""
    assert site.own("kernelcast_bridge_removed_series_total", cause="expired") == 1


def test_a_series_that_is_written_on_stays_while_a_silent_one_of_the_same_partition_goes() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="silent"))
    for step in range(1, 40):
        site.export(0, launches(step, time_ns=step, name="busy"))
        site.run(10)
        site.read_all()
    assert values(site.store, LAUNCHES) == [39]


def test_what_lags_does_not_expire_however_late_it_is_read() -> None:
    site = Site(ttl_seconds=300)
    for number in range(3):
        site.export(0, launches(number, time_ns=number))
    site.kafka.assign(site.intake, P0)
    site.intake.step()
    site.kafka.at_once = 0
    site.run(400)
    assert site.store.states()["catching_up"] == 1


@pytest.mark.parametrize("wrong_ns", [-3_600 * 10**9, 3_600 * 10**9])
def test_a_wrong_local_clock_neither_keeps_series_nor_drops_them(wrong_ns: int) -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.clock.offset_ns = wrong_ns
    site.read_all()
    site.run(200)
    assert values(site.store, LAUNCHES) == [1]
    site.run(120)
    assert page(site.store) == ""


def test_a_producers_clock_in_the_future_expires_nothing_where_kafka_stamps_no_messages() -> None:
    site = Site(ttl_seconds=300)
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1, name="right"))
    site.export(0, launches(1, time_ns=1, name="ahead"), append_ms=round((site.clock.seconds + 9_000) * 1000))
    site.kafka.logs[P0] = [type(r)(r.at, r.body, r.append_ms, kind=1) for r in site.kafka.logs[P0]]
    site.read_all()
    site.run(12)
    assert sorted(values(site.store, LAUNCHES)) == [1, 1]
    assert site.own("kernelcast_bridge_append_time_available", topic="kernels") == 0


@given(st.lists(st.integers(1, 20), min_size=10, max_size=30), st.sampled_from([-600, -5, 0, 5, 9, 60, 600]))
def test_points_sent_again_in_any_order_change_nothing_with_any_producers_clock(
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


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_point_with_a_future_time_that_is_read_late_is_not_newer_than_one_after_the_clock_is_corrected(
    at_once: int,
) -> None:
    site = Site()
    site.kafka.at_once = at_once
    for number, (partition, ahead_seconds) in enumerate([(0, 600), (0, 600), (0, 600), (1, 600), (1, 0)], start=1):
        site.clock.seconds += 10
        site.export(partition, launches(number, time_ns=site.clock.now_ns() + ahead_seconds * 10**9))
    site.kafka.assign(site.intake, P0, P1)
    site.read_all()
    assert values(site.store, LAUNCHES) == [5]


def test_a_message_from_before_a_clock_was_corrected_that_kafka_takes_after_it_changes_nothing() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0, P1)
    waited_seconds = 600
    for number, partition, ahead_seconds in [(1, 0, 3600), (3, 1, 3600), (4, 1, 0), (2, 0, 3600 - waited_seconds)]:
        site.clock.seconds += 10
        site.export(partition, launches(number, time_ns=site.clock.now_ns() + ahead_seconds * 10**9))
        site.read_all()
    assert values(site.store, LAUNCHES) == [4]


def test_numbers_of_removed_series_are_returned_to_the_decoder() -> None:
    site = Site(ttl_seconds=10)
    site.kafka.assign(site.intake, P0)
    for generation in range(20):
        site.export(0, *(launches(1, time_ns=generation + 1, name=f"k{generation}-{i}") for i in range(50)))
        site.export(0, Sample(kernel.VARIANT_LAUNCHES, (("variant", f"v{generation}"),), 1, 1, 1))
        site.run(11)
        site.read_all()
    [wires] = site.store._wires.values()
    assert len(wires.columns.slot) == 1024
    assert site.store._slots.used <= 150
