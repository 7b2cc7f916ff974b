"""A batch of messages, read from Kafka and decoded; one that cannot be decoded is put aside and stops nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from kernelcast.bridge.columns import MessageColumns
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.ownership import Ownership, Partition
from kernelcast.columnar import Decoded, SeriesIdentity
from kernelcast.wire.errors import DecodeError

LOG_APPEND_TIME: Final = 2
"""confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: Kafka stamped the message, not its producer."""


class Message(Protocol):
    """The part of confluent_kafka.Message that is needed here."""

    def topic(self) -> str | None:
        """Where it was read."""

    def partition(self) -> int | None:
        """In which partition."""

    def offset(self) -> int | None:
        """At which offset."""

    def key(self) -> bytes | None:
        """Its key."""

    def value(self) -> bytes | None:
        """Its value."""

    def timestamp(self) -> tuple[int, int]:
        """Kind of timestamp, and milliseconds."""


class MetricsDecoder(Protocol):
    """The part of columnar.Decoder that is needed here."""

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decode a batch."""

    def identity(self, number: int) -> SeriesIdentity:
        """What a series number stands for."""

    def forget(self, numbers: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        """Give numbers back."""


class Aside(Protocol):
    """Where messages go that could not be used."""

    def send(self, message: Message, error: Exception) -> None:
        """Put a message aside."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of partitions that are ours, with where each came from.

    Attributes:
        messages: Those that have a value.
        columns: One row for each of them.
        partitions: What brought something, with the offset after its last message, and its newest append time.
        append_time: By topic, whether Kafka stamps its messages.
    """

    messages: tuple[Message, ...]
    columns: MessageColumns
    partitions: tuple[tuple[Partition, int, int], ...]
    append_time: dict[str, bool]

    @classmethod
    def of(cls, received: Sequence[Message], ownership: Ownership, now_ms: int) -> "Batch":
        """Sort what was received.

        Messages of partitions that went in the meantime are left out. Producers' own timestamps are used where Kafka
        adds none, but never from the future: they would age everything else.
        """
        kept: list[Message] = []
        rows: list[tuple[int, int, int]] = []
        reached: dict[int, tuple[Partition, int, int]] = {}
        append_time: dict[str, bool] = {}
        for message in received:
            topic, offset = message.topic() or "", message.offset() or 0
            partition = ownership.get((topic, message.partition() or 0))
            if partition is None:
                continue
            kind, append_ms = message.timestamp()
            append_time[topic] = kind == LOG_APPEND_TIME
            if kind != LOG_APPEND_TIME:
                append_ms = min(append_ms, now_ms) if append_ms > 0 else now_ms
            _, _, newest_ms = reached.get(partition.number, (partition, 0, 0))
            reached[partition.number] = (partition, offset + 1, max(newest_ms, append_ms))
            if message.value() is not None:
                kept.append(message)
                rows.append((partition.number, offset, append_ms))
        table = np.array(rows, np.int64).reshape(-1, 3)
        columns = MessageColumns(table[:, 0].astype(np.int32), table[:, 1].copy(), table[:, 2].copy())
        return cls(tuple(kept), columns, tuple(reached.values()), append_time)

    def one(self, index: int) -> "Batch":
        """The batch of one of its messages."""
        only = slice(index, index + 1)
        partition, offset, append_ms = self.columns
        columns = MessageColumns(partition[only], offset[only], append_ms[only])
        return Batch(self.messages[only], columns, (), {})


def decode(
    batch: Batch, decoder: MetricsDecoder, aside: Aside, instruments: Instruments
) -> list[tuple[Batch, Decoded]]:
    """Decode a batch; normally into one result.

    Should the decoder itself fail, the messages are decoded one by one, so that only those are lost that make it fail.
    """
    try:
        decoded = decoder.decode([message.value() or b"" for message in batch.messages])
    except Exception as error:  # noqa: BLE001  a fault of ours must not become everybody's: see above
        if len(batch.messages) == 1:
            _put_aside(batch.messages[0], error, aside, instruments)
            return []
        return [part for i in range(len(batch.messages)) for part in decode(batch.one(i), decoder, aside, instruments)]
    for index, failure in decoded.failures:
        _put_aside(batch.messages[index], failure, aside, instruments)
    return [(batch, decoded)]


def _put_aside(message: Message, error: Exception, aside: Aside, instruments: Instruments) -> None:
    kind = type(error).__name__ if isinstance(error, DecodeError) else "internal"
    instruments.decode_failures.labels(message.topic() or "", kind).inc()
    aside.send(message, error)
