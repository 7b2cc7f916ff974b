"""A batch of messages from Kafka and its decoding, for `Intake`; what cannot be decoded becomes a dead letter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from kernelcast.bridge.inputs import Input, Selection, timed
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.partitions.partition import Partition
from kernelcast.bridge.partitions.tombstones import Tombstone, Tombstones, hash_without_key, key_hash
from kernelcast.bridge.tables.columns import NO_KEY, MessageColumns
from kernelcast.columnar import Decoded
from kernelcast.runtime.kafka.clients import DeadLetterSink, StampedMessage
from kernelcast.wire.errors import DecodeError

LOG_APPEND_TIME: Final = 2
"""confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: Kafka stamped the message, not its producer."""


@dataclass(slots=True)
class Reached:
    """Progress of one partition by a batch.

    Attributes:
        partition: The partition.
        first: The offset of its first message.
        position: The offset after its last.
        append_ms: Its newest append time.
    """

    partition: Partition
    first: int
    position: int
    append_ms: int


def _by_time(received: Sequence[StampedMessage]) -> Sequence[StampedMessage]:
    """Return messages by their times; those of each partition stay in Kafka's order.

    Kafka's client returns partitions one after another. If a series has moved between two of them since the last batch,
    its newest point would come before those of its former partition, as if these were late.
    """
    newest: dict[tuple[str | None, int | None], int] = {}
    times: list[int] = []
    for message in received:
        key = message.topic(), message.partition()
        newest[key] = max(newest.get(key, 0), message.timestamp()[1])
        times.append(newest[key])
    if len(newest) < 2:
        return received
    return [received[place] for place in np.argsort(np.array(times), kind="stable").tolist()]


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages of assigned partitions, with the origin of each.

    Attributes:
        messages: Those with a value, and with a key if a key is required.
        columns: One row per message: partition, offset, append time, hash of the key.
        partitions: Progress of each partition that had messages.
        append_time: By topic, whether Kafka stamps its messages.
        unkeyed: By topic, messages left out because they have no key.
        tombstones: Messages without a value.
    """

    messages: tuple[StampedMessage, ...]
    columns: MessageColumns
    partitions: tuple[Reached, ...]
    append_time: dict[str, bool]
    unkeyed: dict[str, int] = field(default_factory=dict)
    tombstones: Tombstones = field(default_factory=Tombstones)

    @classmethod
    def of(
        cls, received: Sequence[StampedMessage], ownership: Ownership, now_ms: int, *, keyed: Callable[[str], bool]
    ) -> "MessageBatch":
        """Make a batch of received messages.

        Messages of partitions that were revoked in the meantime are left out. If Kafka does not stamp messages, their
        append time is the present. While a partition is read again, and for its lag, it is the producer's timestamp, at
        most the present: else series that have ended would be new.

        Args:
            received: Messages, those of each partition in Kafka's order.
            ownership: The assigned partitions.
            now_ms: Unix time by the local clock.
            keyed: Whether messages of a topic without a key are left out, because their series may be in several
                partitions.
        """
        kept: list[StampedMessage] = []
        rows: list[tuple[int, int, int, int]] = []
        tombstones = Tombstones()
        reached: dict[int, Reached] = {}
        append_time: dict[str, bool] = {}
        unkeyed: dict[str, int] = {}
        for message in _by_time(received):
            topic, number, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            partition = ownership.get((topic, number))
            if partition is None:
                continue
            kind, append_ms = message.timestamp()
            append_time[topic] = kind == LOG_APPEND_TIME
            if kind != LOG_APPEND_TIME:
                append_ms = min(append_ms, now_ms) if append_ms > 0 else now_ms
            stamped_ms = append_ms if kind == LOG_APPEND_TIME or not partition.passed else now_ms
            span = reached.get(partition.number)
            if span is None:
                span = reached[partition.number] = Reached(partition, offset, offset, append_ms)
            span.position, span.append_ms = offset + 1, max(span.append_ms, append_ms)
            hashed = key_hash(topic, number, message.key())
            if message.value() is None:
                tombstones.add(topic, Tombstone(len(kept), partition.number, offset, hashed))
            elif hashed == NO_KEY and keyed(topic):
                unkeyed[topic] = unkeyed.get(topic, 0) + 1
            else:
                kept.append(message)
                key = hash_without_key(topic) if hashed == NO_KEY else hashed
                rows.append((partition.number, offset, stamped_ms, key))
        table = np.array(rows, np.int64).reshape(-1, 4)
        columns = MessageColumns(table[:, 0].astype(np.int32), *(table[:, column].copy() for column in (1, 2, 3)))
        return cls(tuple(kept), columns, tuple(reached.values()), append_time, unkeyed, tombstones)

    def segments(self) -> "Iterator[tuple[MessageBatch, tuple[Tombstone, ...]]]":
        """Yield the batch in order: messages, and the tombstones that follow them."""
        if not self.tombstones.keyed:
            yield self, ()
            return
        begin = 0
        for end, tombstones in groupby(self.tombstones.keyed, key=lambda one: one.before):
            yield self.subset(range(begin, end)), tuple(tombstones)
            begin = end
        yield self.subset(range(begin, len(self.messages))), ()

    def subset(self, indices: Sequence[int]) -> "MessageBatch":
        """Return a batch of some of its messages."""
        if len(indices) == len(self.messages):
            return self
        rows = np.array(indices, np.intp)
        partition, offset, append_ms, keys = self.columns
        columns = MessageColumns(partition[rows], offset[rows], append_ms[rows], keys[rows])
        return MessageBatch(tuple(self.messages[index] for index in indices), columns, (), {})


class DecodedPart(NamedTuple):
    """Messages of a batch that one input has decoded.

    Attributes:
        batch: The messages.
        decoded: Their points.
        source: The input, which knows their series.
    """

    batch: MessageBatch
    decoded: Decoded
    source: Input


def decode(
    batch: MessageBatch, selection: Selection, dead_letters: DeadLetterSink, instruments: Instruments
) -> Iterator[DecodedPart]:
    """Decode a batch; yields one part for each format in it, or more for a long batch.

    If an input raises, its messages are decoded one by one, so that only the messages that make it raise are lost.
    """
    for group in selection.groups(batch.messages):
        messages = batch.subset(group.indices)
        for topic in {message.topic() or "" for message in messages.messages}:
            count = sum(message.topic() == topic for message in messages.messages)
            instruments.formats.labels(topic, group.format).inc(count)
        for message, failure in zip(messages.messages, group.failures, strict=False):
            _send_to_dead_letters(message, failure, dead_letters, instruments)
        if group.input is not None:
            yield from _decode(messages, group.bodies, group.input, dead_letters, instruments)
        group.bodies.clear()  # before further messages are unpacked


def _decode(
    batch: MessageBatch, bodies: Sequence[bytes], source: Input, dead_letters: DeadLetterSink, instruments: Instruments
) -> list[DecodedPart]:
    try:
        decoded = source.decode(bodies)
    except Exception as error:  # noqa: BLE001  a defect of one input must not stop the others
        if len(bodies) == 1:
            _send_to_dead_letters(batch.messages[0], error, dead_letters, instruments)
            return []
        return [
            part
            for index, body in enumerate(bodies)
            for part in _decode(batch.subset([index]), [body], source, dead_letters, instruments)
        ]
    for index, failure in decoded.failures:
        _send_to_dead_letters(batch.messages[index], failure, dead_letters, instruments)
    return [DecodedPart(batch, timed(decoded, batch.columns.append_ms), source)]


def _send_to_dead_letters(
    message: StampedMessage, error: Exception, dead_letters: DeadLetterSink, instruments: Instruments
) -> None:
    kind = type(error).__name__ if isinstance(error, DecodeError) else "internal"
    instruments.decode_failures.labels(message.topic() or "", kind).inc()
    dead_letters.send(message, error)
