"""Snapshots of partitions on `kernelcast.state`: written at intervals, read to the topic's end at each assignment."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING

from kernelcast.predictor.engine import Partition
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.series.saved.writer import Message
from kernelcast.runtime.kafka.clients import ConfirmingSender
from kernelcast.runtime.kafka.producer import DeliveryListener
from kernelcast.runtime.kafka.replay import ReplayConsumer, to_end
from kernelcast.wire.topics import STATE


class SnapshotStore:
    """The snapshots of one consumer group; `Partitions` uses it under a lock of its own."""

    def __init__(
        self,
        group_id: str,
        producer: ConfirmingSender,
        open_reader: Callable[[], ReplayConsumer],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = f"predictor|{group_id}|"
        self._producer = producer
        self._open_reader = open_reader
        self._monotonic = monotonic

    def write(self, partition: Partition, messages: Iterable[Message], undelivered: Callable[[str], None]) -> int:
        """Queue a snapshot's messages; returns their bytes.

        Args:
            partition: Whose state it is.
            messages: Keys within it, and values.
            undelivered: Called with the key of a message that Kafka did not take, on any thread.
        """
        size = 0
        for key, value in messages:
            full = f"{self._prefix}{partition[0]}|{partition[1]}|{key}".encode()
            self._producer.send(STATE.name, key=full, value=value, on_delivery=if_failed(undelivered, key))
            size += len(value or b"")
        return size

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, StateReader]:
        """The saved state of each partition that has one."""
        wanted = set(partitions)
        readers: dict[Partition, StateReader] = {}
        if not wanted:
            return readers
        for message in self._messages():
            partition, key = self._parse(message.key() or b"")
            if partition in wanted:
                readers.setdefault(partition, StateReader()).put(key, message.value())
        return readers

    def _messages(self) -> Iterable[Any]:
        reader = self._open_reader()
        try:
            partitions = reader.partitions(STATE.name)
            for partition in partitions:
                partition.offset = OFFSET_BEGINNING
            yield from to_end(reader, partitions, monotonic=self._monotonic)
        finally:
            reader.close()

    def _parse(self, key: bytes) -> tuple[Partition, str]:
        """The partition and the key within its state; a partition without a name for keys of others."""
        text = key.decode(errors="replace")
        topic, _, rest = text.removeprefix(self._prefix).partition("|")
        number, _, within = rest.partition("|")
        mine = text.startswith(self._prefix) and number.isdecimal()
        return ((topic, int(number)), within) if mine else (("", -1), "")


def if_failed(undelivered: Callable[[str], None], key: str) -> DeliveryListener:
    """A listener that reports the key of a message that Kafka did not take."""

    def settled(reason: object) -> None:
        if reason is not None:
            undelivered(key)

    return settled
