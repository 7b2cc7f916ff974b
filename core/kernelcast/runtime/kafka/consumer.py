"""A batch consumer: separates messages from errors, calls back for rebalances, commits offsets only on demand."""

import ctypes
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import confluent_kafka
import structlog
from confluent_kafka import OFFSET_BEGINNING, ConsumerGroupState, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from kernelcast.runtime.instruments import counter
from kernelcast.runtime.kafka import queries
from kernelcast.runtime.kafka.connect import GROUP_PROTOCOL, Client, broker_errors, connect, consumer_properties
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import runtime
from kernelcast.wire.errors import BrokerError

REQUEST_TIMEOUT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 5.0
"""Default time limit of `close`. librdkafka itself waits as long as a broker does not answer a commit."""
NO_OFFSET: Final = confluent_kafka.OFFSET_INVALID
"""Result of `committed` for a partition without a committed offset."""


class Rebalance(Protocol):
    """Callbacks of a service for rebalances; called inside `consume` and `close`, on their thread."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """Take partitions that are new to this member; an empty assignment is reported as well.

        Returns:
            The same partitions with the offsets to start from, or None to start from the committed ones.
        """

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Give up partitions; `lost`: another member has them already, so nothing can be committed."""


class Consumer:
    """Reads from Kafka, in a group (`subscribe`) or without one (`assign`). Only one thread may use it."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        group_id: str,
        overrides: Mapping[str, str] | None = None,
        registry: CollectorRegistry | None = None,
        client: Client = confluent_kafka.Consumer,
    ) -> None:
        """Prepare to read; it connects in the background.

        Args:
            settings: Settings of the connection.
            group_id: The consumer group; also names this client in the broker's logs.
            overrides: The service's own properties; the settings' properties have precedence over them.
            registry: Registry of the consumer's own metrics; None does not expose them.
            client: Replaces librdkafka's client in tests.

        Raises:
            ConfigurationError: librdkafka refuses a property.
        """
        self._errors = counter(runtime.CONSUMER_ERRORS, registry if registry is not None else CollectorRegistry())
        self._log = structlog.stdlib.get_logger("kafka.consumer")
        self._connection = ConnectionErrors()
        own: dict[str, Any] = {"group.id": group_id, "client.id": group_id, "on_commit": self._on_commit}
        own["error_cb"] = self._connection.note
        properties = consumer_properties(settings, {**own, **(overrides or {})})
        effective = {**properties, **settings.properties}
        self._nameless = "group.instance.id" not in effective
        self._new_protocol = effective.get(GROUP_PROTOCOL) == "consumer"
        self._cooperative = self._new_protocol or "cooperative" in effective.get("partition.assignment.strategy", "")
        self._settings, self._group_id = settings, group_id
        self._asking: Any = None
        self._rebalancing = self._leaves = self._abandoned = False
        self._has_controller: bool | None = None
        self._revoking = threading.Lock()
        self._closed = True  # until there is something to close
        self._ends: list[TopicPartition] = []
        self._client = connect(client, settings, properties=properties)
        self._closed = False

    def subscribe(self, topics: Iterable[str], rebalance: Rebalance | None = None) -> None:
        """Join the group; names that begin with `^` are regular expressions."""
        callbacks: dict[str, Any] = {}
        if rebalance is not None:
            callbacks = {
                "on_assign": lambda _client, partitions: self._assigned(rebalance, partitions),
                "on_revoke": lambda _client, partitions: self._revoked(rebalance, partitions, lost=False),
                "on_lost": lambda _client, partitions: self._revoked(rebalance, partitions, lost=True),
            }
        with broker_errors("subscribing"):
            self._client.subscribe(list(topics), **callbacks)
        self._leaves = self._nameless

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions from their offsets, without a group's rebalancing."""
        with broker_errors("assigning partitions"):
            self._client.assign(list(partitions))

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Start reading further partitions from their offsets, without a group's rebalancing."""
        with broker_errors("adding partitions"):
            self._client.incremental_assign(list(partitions))

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions; the others continue."""
        with broker_errors("removing partitions"):
            self._client.incremental_unassign(list(partitions))

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Message], list[KafkaError]]:
        """Read available messages, up to a number and a time-out.

        Returns:
            Messages (a tombstone has no value: test for None, an empty message is falsy), and transient errors, which
            are counted and logged already.

        Raises:
            BrokerError: A permanent error, or a login that Kafka has refused for a minute.
        """
        with broker_errors("reading"):
            batch: list[Message] = self._client.consume(max_messages, timeout_seconds)
        good = [message for message in batch if message.error() is None]
        if good:
            self._connection.clear()
        self._connection.check_login()
        if len(good) == len(batch):
            return good, []
        errors = [error for message in batch if (error := message.error()) is not None and not self._is_end(message)]
        for error in errors:
            self._errors.labels(error.name()).inc()
            if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local error
                self._leaves = False
                raise BrokerError(f"reading failed for good: {error.str()}; restart the service")
            self._log.warning("read error", error=error.name(), reason=error.str())
        return good, errors

    def ends(self) -> list[TopicPartition]:
        """Return the partitions that `consume` has read to their end since the last call, with the end offset.

        The end offset may be beyond the last message: transaction markers use offsets, and retention and compaction
        remove messages. Needs `enable.partition.eof`.
        """
        ends, self._ends = self._ends, []
        return ends

    def settled(self) -> bool:
        """Whether the group is stable and its assignment to this member equals the partitions being read.

        Call it while no `assigned` comes: the new protocol (KIP-848) has no callback for a member that gets no
        partitions, or none in place of those it has given up. The old protocol always calls back; False there.

        Raises:
            BrokerError: Kafka does not answer.
        """
        if not self._new_protocol:
            return False
        with broker_errors("asking for the group"):
            asked = self._admin().describe_consumer_groups([self._group_id], request_timeout=REQUEST_TIMEOUT_SECONDS)
            group = asked[self._group_id].result()
        own = {(each.topic, each.partition) for each in self._client.assignment()}
        return group.state is ConsumerGroupState.STABLE and any(
            {(each.topic, each.partition) for each in member.assignment.topic_partitions} == own
            for member in group.members
            if member.member_id == self._client.memberid()
        )

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return list(self._client.assignment())

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the next offset to be read of each partition; negative before the first message."""
        return list(self._client.position(list(partitions)))

    def partitions(self, topic: str, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> list[TopicPartition]:
        """Return every partition of a topic, in order; none if the topic does not exist."""
        with broker_errors(f"asking for the partitions of {topic}"):
            found = self._knows_topics().list_topics(topic, timeout=timeout_seconds).topics[topic]
        return [] if found.error is not None else [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def leaders(self, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> dict[tuple[str, int], int]:
        """Return the leader of each partition of every visible topic; negative if it has none."""
        with broker_errors("asking for the topics"):
            topics = self._knows_topics().list_topics(timeout=timeout_seconds).topics
        return {
            (name, number): int(partition.leader)
            for name, topic in topics.items()
            if topic.error is None
            for number, partition in topic.partitions.items()
        }

    def watermarks(
        self, partition: TopicPartition, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> tuple[int, int]:
        """Return the low and the high watermark: the first offset kept, and the next one to be written."""
        with broker_errors(f"asking for the watermarks of {partition.topic}/{partition.partition}"):
            low, high = self._client.get_watermark_offsets(partition, timeout=timeout_seconds)
        return int(low), int(high)

    def known_high(self, partition: TopicPartition) -> int:
        """Return the high watermark of Kafka's last answer to a fetch, without a query; negative before one."""
        _, high = self._client.get_watermark_offsets(partition, cached=True)
        return int(high)

    def offsets_for_time(
        self, partitions: Sequence[TopicPartition], time_ns: int, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> list[TopicPartition]:
        """Return the first offset at or after a time, by partition.

        Returns:
            The partitions with offsets: the high watermark if no message is that young, the beginning if the broker
            keeps no time index.
        """
        found = self._offsets_at(partitions, max(0, time_ns // 1_000_000), timeout_seconds)
        return [
            partition if partition.offset >= 0 else self._beyond_index(partition, timeout_seconds)
            for partition in found
        ]

    def topic_ids(self, topics: Iterable[str], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> dict[str, str]:
        """Return Kafka's ids of topics; see `queries.topic_ids`."""
        with broker_errors("asking for the topics' ids"):
            if self._has_controller is None:
                metadata = self._admin().list_topics(timeout=timeout_seconds)
                self._has_controller = metadata.controller_id in metadata.brokers
            return queries.topic_ids(self._admin(), topics, timeout_seconds) if self._has_controller else {}

    def newest_timestamps_ms(
        self, partitions: Sequence[TopicPartition], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> dict[tuple[str, int], int]:
        """Return the newest timestamp in each partition; see `queries.newest_timestamps_ms`."""
        with broker_errors("asking for the newest timestamps"):
            return queries.newest_timestamps_ms(self._admin(), partitions, timeout_seconds)

    def committed(
        self, partitions: Sequence[TopicPartition], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; `NO_OFFSET` for a partition without one."""
        with broker_errors("asking for committed offsets"):
            return list(self._client.committed(list(partitions), timeout=timeout_seconds))

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit the offsets of the next messages to be read; without `wait`, a failure is logged, not raised."""
        if offsets:
            with broker_errors("committing offsets"):
                self._client.commit(offsets=list(offsets), asynchronous=not wait)

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at another offset."""
        with broker_errors(f"seeking in {partition.topic}/{partition.partition}"):
            self._client.seek(partition)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`, without leaving the group."""
        with broker_errors("pausing"):
            self._client.pause(list(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue fetching these partitions."""
        with broker_errors("resuming"):
            self._client.resume(list(partitions))

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Leave the group, so that the others take over at once; a second call does nothing.

        librdkafka's own `close` has no time limit: with a frozen broker it waits for minutes. So it runs on a separate
        thread. After the time limit the client is abandoned until the process ends, and Kafka removes the member from
        the group when its session times out.

        Args:
            timeout_seconds: The time limit; `Rebalance.revoked` may be called on another thread during that time, and
                never after it.
        """
        if self._closed:
            return
        self._closed = True
        closing = threading.Thread(target=self._close_client, name="close-consumer", daemon=True)
        closing.start()
        closing.join(timeout_seconds)
        if closing.is_alive():
            with self._revoking:  # a call that has begun ends first: it has time limits of its own
                self._abandoned = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._client))
            self._log.warning(
                "consumer not closed in time; Kafka removes it from its group when its session times out",
                group_id=self._group_id,
                limit_seconds=timeout_seconds,
            )

    def _close_client(self) -> None:
        if self._leaves and not self._client.assignment():
            # librdkafka 2.16 does not report to Kafka that a member without partitions leaves, and the others wait
            # until its session times out. It does report a member that has unsubscribed.
            self._client.unsubscribe()
        self._client.close()

    def __del__(self) -> None:
        """Leak the client of a consumer that was not closed: it is never destroyed.

        librdkafka's destructor and its `close` can wait for ever for the answer to a rebalance, or for a broker that is
        gone. Inside a garbage collection that would stop the whole program. The broker removes the member after its
        session time-out.
        """
        if not getattr(self, "_closed", True):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._client))
            warnings.warn("a Kafka consumer was not closed", ResourceWarning, stacklevel=2, source=self)

    def _is_end(self, message: Message) -> bool:
        """Whether an error is only the report that a partition was read to its end, which is then recorded."""
        error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
        if error is None or error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local error
            return False
        if topic is not None and partition is not None and offset is not None:
            self._ends.append(TopicPartition(topic, partition, offset))
        return True

    def _assigned(self, rebalance: Rebalance, partitions: list[TopicPartition]) -> None:
        self._connection.clear()
        with self._in_callback():
            start = list(rebalance.assigned(partitions) or partitions)
        if self._cooperative:
            self._client.incremental_assign(start)
        else:
            self._client.assign(start)

    def _revoked(self, rebalance: Rebalance, partitions: list[TopicPartition], *, lost: bool) -> None:
        with self._revoking, self._in_callback():
            if not self._abandoned:
                rebalance.revoked(partitions, lost=lost)

    @contextmanager
    def _in_callback(self) -> Iterator[None]:
        self._rebalancing = True
        try:
            yield
        finally:
            self._rebalancing = False

    def _knows_topics(self) -> Any:
        """Return the client for queries of topics: a separate one inside a callback.

        If a client of confluent_kafka is queried for topics while its `consume` serves a callback, it loses the state
        of `consume`: the next callback, even for a log line, aborts the process (2.16.1, `CallState_get`).
        """
        return self._admin() if self._rebalancing else self._client

    def _admin(self) -> Any:
        if self._asking is None:
            self._asking = connect(AdminClient, self._settings, properties={"log_level": "0"})
        return self._asking

    def _offsets_at(
        self, partitions: Sequence[TopicPartition], time_ms: int, timeout_seconds: float
    ) -> list[TopicPartition]:
        asked = [TopicPartition(partition.topic, partition.partition, time_ms) for partition in partitions]
        with broker_errors("asking for offsets by time"):
            return list(self._client.offsets_for_times(asked, timeout=timeout_seconds)) if asked else []

    def _beyond_index(self, partition: TopicPartition, timeout_seconds: float) -> TopicPartition:
        """Distinguish `no message is that young` from `this broker has no time index`; both are -1."""
        low, high = self.watermarks(partition, timeout_seconds=timeout_seconds)
        if low < high and self._offsets_at([partition], 0, timeout_seconds)[0].offset < 0:
            return TopicPartition(partition.topic, partition.partition, OFFSET_BEGINNING)
        return TopicPartition(partition.topic, partition.partition, high)

    def _on_commit(self, error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:  # noqa: SLF001 - librdkafka's local error
            self._log.warning("offsets not committed", error=error.name(), reason=error.str())
