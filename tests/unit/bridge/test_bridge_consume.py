from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bridge.fleet import MARKER, ListKafka, Site, page, values

from kernelcast.columnar import Decoded, Decoder, Sample
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


def test_a_partition_that_retention_has_emptied_meanwhile_passes_at_its_end() -> None:
    site = Site()
    site.kafka.answers = False
    site.kafka.assign(site.intake, P0)
    site.intake.step()
    assert site.intake.ownership.readiness()[0] is False
    site.kafka.end(*P0, 7)
    site.intake.step()
    assert site.intake.ownership.readiness() == (True, "")


def test_the_end_of_a_partition_that_has_gone_is_passed_over() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.kafka.end(*P1, 7)
    site.intake.step()
    assert site.intake.ownership.get(P1) is None


def test_a_broker_that_stays_silent_is_asked_for_gates_ever_more_rarely() -> None:
    site = Site()
    site.kafka.answers = False
    site.kafka.assign(site.intake, P0, P1)
    for _ in range(600):
        run(site, 1)
    assert site.kafka.questions <= 20


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
    site.clock.seconds += seconds
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
    run(site, 4000)
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


def test_numbers_of_series_that_went_are_given_back_to_the_decoder() -> None:
    site = Site(ttl_seconds=10)
    site.kafka.assign(site.intake, P0)
    for generation in range(20):
        site.export(0, *(launches(1, time_ns=generation + 1, name=f"k{generation}-{i}") for i in range(50)))
        site.export(0, Sample(kernel.VARIANT_LAUNCHES, (("variant", f"v{generation}"),), 1, 1, 1))
        run(site, 11)
        site.read_all()
    assert int(site.store._wires.slot.shape[0]) == 1024
    assert site.store._slots.used <= 150


POISON = [
    b"\xff" * 10,
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0b" * 50,
    b"not otlp at all",
    b"\x0a\x05ab",
]


def test_poison_is_put_aside_and_counted_and_everything_else_goes_on() -> None:
    site = Site()
    site.kafka.at_once = 100
    site.kafka.assign(site.intake, P0)
    for number, body in enumerate(POISON, start=1):
        site.export(0, launches(number, time_ns=number))
        site.kafka.write(*P0, body, append_ms=site.clock.now_ns() // 1_000_000)
    site.export(0, launches(99, time_ns=99))
    site.kafka.write(*P0, None, append_ms=1)
    site.read_all()
    assert values(site.store, LAUNCHES) == [99]
    assert [message.value() for message, _ in site.shelf.messages] == POISON
    failures = site.own("kernelcast_bridge_decode_failures_total", topic="kernels", error="DecodeError")
    assert failures == len(POISON)
    assert site.intake.ownership.readiness() == (True, "")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_stop_it(bodies: list[bytes]) -> None:
    site = Site()
    site.kafka.at_once = 100
    site.kafka.assign(site.intake, P0)
    for body in bodies:
        site.kafka.write(*P0, body, append_ms=1)
    site.export(0, launches(1, time_ns=1))
    site.read_all()
    assert values(site.store, LAUNCHES)[-1:] == [1]


class FragileDecoder(Decoder):
    """A decoder with a fault: it raises where it should report."""

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        if any(message == b"crash" for message in messages):
            raise ZeroDivisionError("a fault of ours")
        return super().decode(messages)


def test_a_fault_in_the_decoder_costs_only_the_message_that_meets_it() -> None:
    site = Site(decoder=FragileDecoder())
    site.kafka.at_once = 100
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.kafka.write(*P0, b"crash", append_ms=1)
    site.export(0, launches(2, time_ns=2))
    site.read_all()
    assert values(site.store, LAUNCHES) == [2]
    assert [message.value() for message, _ in site.shelf.messages] == [b"crash"]
    assert site.own("kernelcast_bridge_decode_failures_total", topic="kernels", error="internal") == 1


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
    assert values(site.store, LAUNCHES) == [3]


def test_positions_are_committed_for_those_who_watch_the_lag() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.read_all()
    run(site, 10)
    assert [(item.topic, item.partition, item.offset) for item in site.kafka.committed] == [(*P0, 1)]
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
