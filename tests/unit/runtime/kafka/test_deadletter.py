"""Dead letters: their content, truncation and rate limit."""

import hashlib
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from tests.support.runtime.kafka_record import Record

from kernelcast.runtime.kafka.deadletter import BURST, RATE_PER_SECOND, DeadLetters
from kernelcast.wire.errors import DecodeError

COUNTED = "kernelcast_deadletter_messages_total"


def message(value: bytes | None = b"poison", key: bytes | None = b"k") -> Record:
    return Record(("kernelcast.device", 3, 17), value, keyed=key)


class Sent:
    def __init__(self, *, broken: bool = False) -> None:
        self.letters: list[tuple[str, bytes | None, bytes | None, dict[str, bytes]]] = []
        self.broken = broken

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        if self.broken:
            raise RuntimeError("no")
        self.letters.append((topic, key, value, dict(headers)))


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_dead_letter_is_the_message_with_where_it_came_from_and_why() -> None:
    sent = Sent()

    DeadLetters(sent).send(message(), DecodeError("field 3 ends after the message"))

    assert sent.letters == [
        (
            "kernelcast.deadletter",
            b"k",
            b"poison",
            {
                "kernelcast.topic": b"kernelcast.device",
                "kernelcast.partition": b"3",
                "kernelcast.offset": b"17",
                "kernelcast.error": b"field 3 ends after the message",
                "kernelcast.error_type": b"DecodeError",
            },
        )
    ]


def test_a_value_over_the_limit_is_cut_and_its_checksum_kept() -> None:
    sent = Sent()

    DeadLetters(sent, max_value_bytes=4).send(message(b"123456"), DecodeError("x"))

    _topic, _key, value, headers = sent.letters[0]
    assert value == b"1234"
    assert headers["kernelcast.truncated"] == b"6"
    assert headers["kernelcast.sha256"] == hashlib.sha256(b"123456").hexdigest().encode()


def test_a_long_error_and_a_long_key_stay_within_the_headroom() -> None:
    sent = Sent()

    DeadLetters(sent).send(message(key=bytes(10**6)), DecodeError("\udcff" * 10**6))

    _topic, key, value, headers = sent.letters[0]
    assert key is not None
    assert len(key) + sum(len(name) + len(text) for name, text in headers.items()) < 64 * 1024
    assert value == b"poison"


def test_a_tombstone_can_be_a_dead_letter() -> None:
    sent = Sent()

    DeadLetters(sent).send(message(None, None), DecodeError("x"))

    assert sent.letters[0][1:3] == (None, None)


def test_a_flood_is_limited_and_dropped_lines_are_counted() -> None:
    sent, clock, registry = Sent(), Clock(), CollectorRegistry()
    letters = DeadLetters(sent, clock=clock, registry=registry)
    letters.expect("kernelcast.kernels")

    for _ in range(int(BURST) + 5):
        letters.send(message(), DecodeError("x"))
    flooded = len(sent.letters)
    clock.seconds += 1
    for _ in range(int(RATE_PER_SECOND) + 5):
        letters.send(message(), DecodeError("x"))

    labels = {"topic": "kernelcast.device", "outcome": "dropped"}
    assert flooded == BURST
    assert len(sent.letters) == BURST + RATE_PER_SECOND
    assert registry.get_sample_value(COUNTED, labels) == 10
    assert registry.get_sample_value(COUNTED, {"topic": "kernelcast.kernels", "outcome": "dropped"}) == 0


def test_a_producer_that_fails_never_stops_the_consumer() -> None:
    registry = CollectorRegistry()

    DeadLetters(Sent(broken=True), registry=registry).send(message(), DecodeError("x"))

    assert registry.get_sample_value(COUNTED, {"topic": "kernelcast.device", "outcome": "dropped"}) == 1
