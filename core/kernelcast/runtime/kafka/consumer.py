"""The consumer of all services: reads batches, calls back for rebalances, commits offsets only on demand.

Each consuming thread of exporter, bridge and predictor has its own; `kernelcast findings` and `hints` read with one.
"""

import ctypes
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
from confluent_kafka import ConsumerGroupState, KafkaError, TopicPartition
from prometheus_client import CollectorRegistry

from kernelcast.runtime.kafka.clients import Rebalance
from kernelcast.runtime.kafka.connect import GROUP_PROTOCOL, Client, broker_errors, connect, consumer_properties
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.offsets import REQUEST_TIMEOUT_SECONDS
from kernelcast.runtime.kafka.reader import PartitionReader
from kernelcast.runtime.settings.service import KafkaSettings

CLOSE_SECONDS: Final = 5.0
"""Default time limit of `close`. librdkafka itself waits as long as a broker does not answer a commit."""
NO_OFFSET: Final = confluent_kafka.OFFSET_INVALID
"""Result of `committed` for a partition without a committed offset."""

COORDINATOR_PROBE: Final = TopicPartition("__consumer_offsets", 0)
"""A partition whose committed offset is queried only to see that the group's coordinator answers."""


class Consumer(PartitionReader):
    """Reads from Kafka, in a group (`subscribe`) or without one (`assign`). Only one thread may use it.

    Membership of the group is here, reading in `PartitionReader`, queries in `OffsetQueries`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        group_id: str,
        overrides: Mapping[str, str] | None = None,
        registry: CollectorRegistry | None = None,
        client: Client = confluent_kafka.Consumer,
        prompt: bool = False,
    ) -> None:
        """Prepare to read; it connects in the background.

        Args:
            settings: Settings of the connection.
            group_id: The consumer group; also names this client in the broker's logs.
            overrides: The service's own properties; the settings' properties have precedence over them.
            registry: Registry of the consumer's own metrics; None does not expose them.
            client: Replaces librdkafka's client in tests.
            prompt: See `PartitionReader`.

        Raises:
            ConfigurationError: librdkafka refuses a property.
        """
        connection = ConnectionErrors()
        own: dict[str, Any] = {"group.id": group_id, "client.id": group_id, "on_commit": self._on_commit}
        own["error_cb"] = connection.note
        properties = consumer_properties(settings, {**own, **(overrides or {})})
        effective = {**properties, **settings.properties}
        self._is_dynamic_member = "group.instance.id" not in effective
        self._new_protocol = effective.get(GROUP_PROTOCOL) == "consumer"
        self._cooperative = self._new_protocol or "cooperative" in effective.get("partition.assignment.strategy", "")
        self._group_id = group_id
        self._leaves_on_close = self._abandoned = False  # abandoned: `close` gave up, so no callback may run any more
        self._revoking = threading.Lock()  # held during `Rebalance.revoked`, which `close` may call on its own thread
        self._closed = True  # until there is something to close
        made = connect(client, settings, properties=properties)
        super().__init__(settings, made, connection=connection, registry=registry, prompt=prompt)
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
        self._leaves_on_close = self._is_dynamic_member

    def settled(self) -> bool:
        """Whether the group is stable and its assignment to this member equals the partitions being read.

        Call it while no `assigned` comes: the new protocol (KIP-848) has no callback for a member that gets no
        partitions, or none in place of those it has given up. The old protocol always calls back; False there.

        librdkafka 2.16 aborts the process when the coordinator dies before a client describes a group (its issue 4605),
        so the consumer's own connection is tried first: without a coordinator that fails and aborts nothing. The two
        requests are milliseconds apart; a coordinator that dies between them can still abort the process.

        Raises:
            BrokerError: Kafka does not answer.
        """
        if not self._new_protocol:
            return False
        with broker_errors("asking for the group"):
            self._client.committed([COORDINATOR_PROBE], timeout=REQUEST_TIMEOUT_SECONDS)
            asked = self._admin().describe_consumer_groups([self._group_id], request_timeout=REQUEST_TIMEOUT_SECONDS)
            group = asked[self._group_id].result()
        own = {(each.topic, each.partition) for each in self._client.assignment()}
        return group.state is ConsumerGroupState.STABLE and any(
            {(each.topic, each.partition) for each in member.assignment.topic_partitions} == own
            for member in group.members
            if member.member_id == self._client.memberid()
        )

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
        if self._leaves_on_close and not self._failed and not self._client.assignment():
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

    def _on_commit(self, error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:  # noqa: SLF001 - librdkafka's local error
            self._log.warning("offsets not committed", error=error.name(), reason=error.str())
