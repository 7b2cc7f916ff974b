"""The ends of partitions that a reader reports, to callers that ask for them often, seldom or never."""

from typing import Any

from confluent_kafka import KafkaError

from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.reader import PartitionReader
from kernelcast.runtime.settings.service import KafkaSettings


class End:
    """librdkafka's report that a partition was read to its end."""

    def __init__(self, partition: int, offset: int) -> None:
        self._at = (partition, offset)

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)

    def topic(self) -> str:
        return "samples"

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]


class Client:
    """A consumer that reaches the end of two partitions in each batch."""

    def __init__(self) -> None:
        self.offset = 0

    def consume(self, _max_messages: int, _timeout_seconds: float) -> list[Any]:
        self.offset += 1
        return [End(0, self.offset), End(1, self.offset)]


def test_the_last_end_of_each_partition_is_reported_once() -> None:
    reader = PartitionReader(KafkaSettings(), Client, connection=ConnectionErrors())
    for _ in range(1000):
        assert reader.consume(100, 0.0) == ([], [])
    assert [(one.partition, one.offset) for one in reader.ends()] == [(0, 1000), (1, 1000)]
    assert reader.ends() == []
