"""The consumer of all services: reads batches, calls back for rebalances, commits offsets only on demand.

Each consuming thread of exporter, bridge and predictor has its own; `kernelcast findings` and `hints` read with one.
"""

import ctypes
import math
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kernelcast.runtime.kafka.clients import Rebalance
from kernelcast.runtime.kafka.closing import end_client
from kernelcast.runtime.kafka.connect import GROUP_PROTOCOL, Client, broker_errors, connect, consumer_properties
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.offsets import REQUEST_TIMEOUT_SECONDS
from kernelcast.runtime.kafka.reader import PartitionReader
from kernelcast.runtime.kafka.stalls import Key
from kernelcast.runtime.kafka.topic_names import TopicNames
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError

CLOSE_SECONDS: Final = 5.0
"""Default time limit of `close`. librdkafka itself waits as long as a broker does not answer a commit."""
NO_OFFSET: Final = confluent_kafka.OFFSET_INVALID
"""Result of `committed` for a partition without a committed offset."""
SPARE_SECONDS: Final = 10.0
"""Time without an assignment after which a member with the new protocol (KIP-848) counts as a spare one."""
LOOK_SECONDS: Final = 1.0
"""Time limit of a query for the topics, while the group has assigned nothing."""
_TOPIC_ERRORS: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
)
"""Reasons for a refused commit that concern a topic, not the membership."""


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
        metrics: ConsumerMetrics | None = None,
        client: Client = confluent_kafka.Consumer,
        prompt: bool = False,
    ) -> None:
        """Prepare to read; it connects in the background.

        Args:
            settings: Settings of the connection.
            group_id: The consumer group; also names this client in the broker's logs.
            overrides: The service's own properties; the settings' properties have precedence over them.
            metrics: The metrics of the process's consumers; None does not expose them.
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
        self._subscribed: tuple[list[str], Rebalance | None] | None = None
        self._awaits_assignment = False  # with the classic protocol, which always calls back
        self._cooperative = self._new_protocol or "cooperative" in effective.get("partition.assignment.strategy", "")
        self._group_id = group_id
        self._abandoned = False  # abandoned: `close` gave up, so no callback may run any more
        self._revoking = threading.Lock()  # held during `Rebalance.revoked`, which `close` may call on its own thread
        self._closed = True  # until there is something to close
        make_client = partial(connect, client, settings, properties=properties)
        super().__init__(settings, make_client, connection=connection, metrics=metrics, prompt=prompt)
        self._detector.spare_seconds = SPARE_SECONDS if self._new_protocol else math.inf
        self._closed = False

    def subscribe(self, topics: Iterable[str], rebalance: Rebalance | None = None) -> None:
        """Join the group; names that begin with `^` are regular expressions."""
        subscribed = list(topics), rebalance
        self._subscribe(*subscribed)
        self._subscribed = subscribed

    def _subscribe(self, topics: list[str], rebalance: Rebalance | None) -> None:
        client = self._client  # a callback of a client that was replaced concerns nobody

        def assigned(_client: object, partitions: list[TopicPartition]) -> None:
            if client is self._client:
                self._assigned(rebalance, partitions)

        def revoked(_client: object, partitions: list[TopicPartition], *, lost: bool = False) -> None:
            if client is self._client:
                self._revoked(rebalance, partitions, lost=lost)

        with broker_errors("subscribing"):
            client.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=partial(revoked, lost=True))
        self._awaits_assignment = not self._new_protocol
        self._detector.unconfirmed()

    @property
    def _leaves(self) -> bool:
        """Whether the client has to leave the group when it is closed."""
        return self._is_dynamic_member and self._subscribed is not None and not self._failed

    def settled(self) -> bool:
        """Whether the group has answered since the last change of the assignment; False without a group.

        The new protocol (KIP-848) does not call back for an assignment that stays as it is, or that is empty. A member
        that gets nothing is settled once Kafka has answered for `SPARE_SECONDS`.
        """
        return self._subscribed is not None and self._detector.is_confirmed

    def committed(
        self, partitions: Sequence[TopicPartition], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; `NO_OFFSET` for a partition without one."""
        with broker_errors("asking for committed offsets"):
            return list(self._client.committed(list(partitions), timeout=timeout_seconds))

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit the offsets of the next messages to be read; without `wait`, a failure is logged, not raised."""
        if not offsets:
            return
        with broker_errors("committing offsets"):
            try:
                self._client.commit(offsets=list(offsets), asynchronous=not wait)
            except KafkaException as error:
                self._note_commit(error.args[0])
                raise
        if wait:
            self._note_commit(None)

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Leave the group, so that the others take over at once; a second call does nothing.

        Args:
            timeout_seconds: The time limit; `Rebalance.revoked` may be called on another thread during that time, and
                never after it.
        """
        if self._closed:
            return
        self._closed = True
        if not end_client(self._client, self._group_id, timeout_seconds, leaves=self._leaves):
            with self._revoking:  # a call that has begun ends first: it has time limits of its own
                self._abandoned = True

    def _replace_client(self) -> None:
        progress, former = self._detector.progress, self._client
        starts = [TopicPartition(*key, one.target) for key, one in progress.items()]
        paused = [TopicPartition(*key) for key, one in progress.items() if one.paused]
        if starts and self._subscribed is not None:
            self._revoked(self._subscribed[1], starts, lost=not self._detector.is_confirmed)
        self._use(self._make_client())
        end_client(former, self._group_id, CLOSE_SECONDS, leaves=self._leaves)
        if self._subscribed is not None:
            self._subscribe(*self._subscribed)
            return
        self.assign(starts)
        self.pause(paused)

    def _keys_to_ask(self) -> list[Key]:
        keys = super()._keys_to_ask()
        if keys or self._subscribed is None or self._detector.is_confirmed:
            return keys
        names = TopicNames(self._subscribed[0])
        try:
            leaders = self.leaders(timeout_seconds=LOOK_SECONDS)
        except BrokerError:  # its clock stands still
            return []
        return [key for key in leaders if key[0] in names]

    def __del__(self) -> None:
        """Leak the client of a consumer that was not closed: it is never destroyed.

        librdkafka's destructor and its `close` can wait for ever for the answer to a rebalance, or for a broker that is
        gone. Inside a garbage collection that would stop the whole program. The broker removes the member after its
        session time-out.
        """
        if not getattr(self, "_closed", True):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._client))
            warnings.warn("a Kafka consumer was not closed", ResourceWarning, stacklevel=2, source=self)

    def _assigned(self, rebalance: Rebalance | None, partitions: list[TopicPartition]) -> None:
        self._connection.clear()
        with self._in_callback():
            start = list((rebalance.assigned(partitions) if rebalance is not None else None) or partitions)
        if self._cooperative:
            self._client.incremental_assign(start)
        else:
            self._client.assign(start)
        self._watch(start)
        self._awaits_assignment = False
        self._detector.confirmed()

    def _revoked(self, rebalance: Rebalance | None, partitions: list[TopicPartition], *, lost: bool) -> None:
        with self._revoking, self._in_callback():
            if self._abandoned:
                return
            self._forget([(each.topic, each.partition) for each in partitions])
            if not self._new_protocol or not self._detector.progress:
                self._awaits_assignment = not self._new_protocol
                self._detector.unconfirmed()
            if rebalance is not None:
                rebalance.revoked(partitions, lost=lost)

    @contextmanager
    def _in_callback(self) -> Iterator[None]:
        self._rebalancing = True
        try:
            yield
        finally:
            self._rebalancing = False

    def _on_commit(self, error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() == KafkaError._NO_OFFSET:  # noqa: SLF001 - librdkafka's local error
            return
        self._note_commit(error)
        if error is not None:
            self._log.warning("offsets not committed", error=error.name(), reason=error.str())

    def _note_commit(self, error: KafkaError | None) -> None:
        """Note the group's answer to a commit: it refuses those of a member that it has removed."""
        if error is None and not self._awaits_assignment:
            self._detector.confirmed()
        if error is not None and self._subscribed is not None and error.code() not in _TOPIC_ERRORS:
            self._detector.unconfirmed()
