"""Snapshots on `kernelcast.state`: written at intervals, read to the topic's end at each assignment."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING

from kernelcast.predictor.engine import Partition
from kernelcast.predictor.series.snapshot import PartitionSnapshot, dump, load
from kernelcast.runtime.kafka.producer import Headers
from kernelcast.runtime.kafka.replay import ReplayConsumer, to_end
from kernelcast.wire.errors import WireError
from kernelcast.wire.topics import STATE


class Sender(Protocol):
    """The sending method of a producer."""

    def send(self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Queue a message."""
        ...


class SnapshotStore:
    """The snapshots of one consumer group."""

    def __init__(
        self,
        group_id: str,
        producer: Sender,
        open_reader: Callable[[], ReplayConsumer],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group_id = group_id
        self._producer = producer
        self._open_reader = open_reader
        self._monotonic = monotonic

    def write(self, partition: Partition, snapshot: PartitionSnapshot) -> int:
        """Queue a snapshot's parts; returns their bytes. The first goes last: a snapshot counts once it is whole."""
        parts = dump(snapshot)
        for number in reversed(range(len(parts))):
            self._producer.send(STATE.name, key=self._key(partition, number), value=parts[number])
        return sum(map(len, parts))

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionSnapshot | WireError]:
        """The newest snapshot of each partition that has one, or the error that makes it unusable."""
        wanted = {self._prefix(partition): partition for partition in partitions}
        found: dict[Partition, dict[bytes, bytes]] = {}
        if not wanted:
            return {}
        for message in self._messages():
            key = message.key() or b""
            partition = wanted.get(key.rpartition(b"|")[0])
            if partition is not None and message.value() is not None:
                found.setdefault(partition, {})[key] = message.value()
        return {partition: _load(list(parts.values())) for partition, parts in found.items()}

    def _messages(self) -> Iterable[Any]:
        reader = self._open_reader()
        try:
            partitions = reader.partitions(STATE.name)
            for partition in partitions:
                partition.offset = OFFSET_BEGINNING
            yield from to_end(reader, partitions, monotonic=self._monotonic)
        finally:
            reader.close()

    def _prefix(self, partition: Partition) -> bytes:
        return f"predictor|{self._group_id}|{partition[0]}|{partition[1]}".encode()

    def _key(self, partition: Partition, part: int) -> bytes:
        return self._prefix(partition) + f"|{part}".encode()


def _load(parts: list[bytes]) -> PartitionSnapshot | WireError:
    try:
        return load(parts)
    except WireError as error:
        return error
