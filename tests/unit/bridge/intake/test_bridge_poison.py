"""Undecodable messages go to the dead-letter topic once; all other messages are processed."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.fleet import Site, values
from tests.support.bridge.list_kafka import ListKafka
from tests.support.examples import parser_examples

from kernelcast.columnar import Decoded, Decoder, Sample
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.topics import DEADLETTER

P0, P1 = ("kernels", 0), ("kernels", 1)
LAUNCHES = "cuda_kernel_launches_total"


def launches(number: int, *, time_ns: int, name: str = "gemm", start_ns: int = 1) -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), time_ns, number, start_ns)


POISON = [
    b"\xff" * 10,
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0b" * 50,
    b"not otlp at all",
    b"\x0a\x05ab",
]


def test_undecodable_messages_become_dead_letters_and_the_rest_is_processed() -> None:
    site = Site()
    site.kafka.at_once = 100
    site.kafka.assign(site.intake, P0)
    for number, body in enumerate(POISON, start=1):
        site.export(0, launches(number, time_ns=number))
        site.kafka.write(*P0, body, append_ms=site.clock.now_ns() // 1_000_000)
    site.export(0, launches(99, time_ns=99))
    site.kafka.write(*P0, None, append_ms=1, keyed=b"unknown")
    site.read_all()
    assert values(site.store, LAUNCHES) == [99]
    assert [message.value() for message, _ in site.shelf.messages] == POISON
    failures = site.own("kernelcast_bridge_decode_failures_total", topic="kernels", error="DecodeError")
    assert failures == len(POISON)
    assert site.intake.ownership.readiness() == (True, "")


@parser_examples(60)
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


def test_an_undecodable_message_becomes_one_dead_letter_however_often_it_is_read() -> None:
    site = Site()
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(1, time_ns=1))
    site.kafka.write(*P0, b"poison", append_ms=site.clock.now_ns() // 1_000_000)
    site.read_all()
    site.kafka.revoke(site.intake, P0)
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert len(site.shelf.messages) == 1
    again = Site(kafka=ListKafka(site.kafka.logs, commits=site.kafka.commits), clock=site.clock)
    again.kafka.assign(again.intake, P0)
    again.kafka.write(*P0, b"more poison", append_ms=site.clock.now_ns() // 1_000_000)
    again.read_all()
    assert [message.value() for message, _ in again.shelf.messages] == [b"more poison"]
    assert again.own("kernelcast_bridge_deadletters_left_total", reason="repeated") == 1


def test_a_dead_letter_that_is_read_makes_no_second_dead_letter() -> None:
    site = Site()
    site.kafka.assign(site.intake, (DEADLETTER.name, 0))
    site.kafka.write(DEADLETTER.name, 0, b"poison", append_ms=1)
    site.read_all()
    assert site.shelf.messages == []
    assert site.own("kernelcast_bridge_deadletters_left_total", reason="dead_letter") == 1


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
