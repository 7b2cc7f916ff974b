"""A broker inside this process: librdkafka's mock cluster, to which other processes can connect, too.

`kernelcast demo`, `lab.tune_replay` and tests use it.

It keeps about 5 MiB per partition and has no CreateTopics, no time index, no compaction and no append time. It
creates a topic when the topic's metadata is queried. The first member of a group waits 3 s; one that joins later
waits until a session times out.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

from kernelcast.wire.errors import BrokerError
from kernelcast.wire.topics import TOPICS

EMBEDDED_PARTITIONS: Final = 4
"""Number of partitions of every topic in the mock cluster; librdkafka has no property for it."""

_START_TIMEOUT_SECONDS: Final = 10.0


class EmbeddedBroker:
    """A Kafka broker for the duration of a block, on a free port of 127.0.0.1. librdkafka serves it on its own threads.

    ::

        with EmbeddedBroker() as broker:
            settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(self, *, topics: Iterable[str] | None = None, brokers: int = 1) -> None:
        self._topics = tuple(topics) if topics is not None else tuple(topic.name for topic in TOPICS)
        self._brokers = brokers
        self._cluster: Producer | None = None
        self.bootstrap_servers = ""

    def start(self) -> Self:
        """Start the broker and create its topics, so that the first subscriber need not wait for them.

        Raises:
            BrokerError: The cluster did not start.
        """
        if self._cluster is not None:
            return self
        try:
            self._cluster = Producer(
                {"bootstrap.servers": "embedded", "test.mock.num.brokers": str(self._brokers), "log_level": "0"}
            )
            metadata = self._cluster.list_topics(timeout=_START_TIMEOUT_SECONDS)
            self.bootstrap_servers = ",".join(f"{node.host}:{node.port}" for node in metadata.brokers.values())
            self.add_topics(self._topics)
        except KafkaException as error:
            self.stop()
            raise BrokerError(f"the embedded broker did not start: {error.args[0].str()}") from error
        return self

    def add_topics(self, names: Iterable[str]) -> None:
        """Create topics by querying their metadata, as the mock cluster does."""
        client = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": "0"})
        for name in names:
            client.list_topics(name, timeout=_START_TIMEOUT_SECONDS)

    def stop(self) -> None:
        """Stop the broker; its clients see a closed connection."""
        self._cluster = None
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
