"""Assignment of partitions: their start offsets, their snapshots, and whether their past has been read.

The consumer of `service` calls it when partitions are assigned or revoked; `ready` answers the web server.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.measures import TOPICS, KafkaMeasures
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings
from kernelcast.predictor.state.state_topic import SnapshotStore
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import BrokerError

_log = get_logger(__name__)

KEEP_RATIO: Final = 0.5
"""Share of the permitted lag that is still read after a skip: some past is better than none."""
READ_ATTEMPTS: Final = 3
"""Attempts to read the saved states. Without them, the next snapshots replace weeks of hours on Kafka."""
READ_PAUSE_SECONDS: Final = 2.0
"""Time between two attempts: a broker may be restarting. The consumer waits, so it is short."""


class Client(Protocol):
    """The consumer's methods for offsets, seeking and the state of its group."""

    def watermarks(self, partition: Any) -> tuple[int, int]:
        """First offset kept, next offset written."""
        ...

    def offsets_for_time(self, partitions: Sequence[Any], time_ns: int) -> list[Any]:
        """The first message at or after a time."""
        ...

    def seek(self, partition: Any) -> None:
        """Continue to read at this partition's offset."""
        ...

    def settled(self) -> bool:
        """Whether the group's assignment equals the partitions being read; False where `assigned` is always called."""
        ...


class Partitions:
    """Restores partitions at assignment and saves them at revocation, on the thread that reads Kafka.

    `save` is also called by the thread that runs cycles, `ready` by the web server's.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        engine: Engine,
        store: SnapshotStore,
        measures: KafkaMeasures,
        *,
        clock_ns: Callable[[], int],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._store = store
        self._measures = measures
        self._clock_ns = clock_ns
        self._pause = pause
        self._client: Client | None = None
        self._goals: dict[Partition, int] = {}
        self._held: set[Partition] = set()
        self._assigned = False
        self._saving = threading.Lock()

    def use(self, client: Client) -> None:
        """The consumer that subscribes with this."""
        self._client = client

    @property
    def held(self) -> list[Partition]:
        """The partitions read now."""
        return sorted(self._held)

    def ready(self) -> tuple[bool, str]:
        """Whether partitions are assigned and their past is read."""
        if not self._assigned:
            return False, "no partitions assigned yet"
        behind = [
            partition for partition, goal in list(self._goals.items()) if self._engine.offsets.get(partition, 0) < goal
        ]
        return not behind, f"reading the past of {len(behind)} partitions" if behind else ""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Restore windows from snapshots; returns the offsets to start from."""
        if self._client is None or not partitions:
            self._assigned = True
            return partitions
        mine = [(one.topic, one.partition) for one in partitions]
        states = self._read(mine)
        rewound = self._rewound(partitions)
        starts, restored = [], len(states)
        for partition in mine:
            offset = rewound[partition]
            if partition in states:
                offset = max(offset, self._restore(partition, states.pop(partition)))
            self._expect(partition, offset)
            starts.append(TopicPartition(*partition, offset))
        self._held.update(mine)
        self._assigned = True
        _log.info("partitions assigned", partitions=len(mine), restored=restored)
        return starts

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Save the partitions' windows, unless another member has them already, then drop them."""
        mine = [(one.topic, one.partition) for one in partitions]
        if not lost:
            for partition in mine:
                self.save(partition)
        self._engine.leave(mine)
        for partition in mine:
            self._goals.pop(partition, None)
            self._held.discard(partition)

    def save(self, partition: Partition) -> None:
        """Write a partition's snapshot; called by the consuming and by the evaluating thread."""
        with self._saving:
            lost = partial(self._engine.states.undelivered, partition)
            if self._store.write(partition, self._engine.save(partition), lost):
                self._measures.snapshot_time.set(self._clock_ns() / NANOSECONDS_PER_SECOND)

    def watch_group(self) -> None:
        """Learn that there is no partition for this member, where the group's protocol does not say so unasked."""
        if not self._assigned and self._client is not None:
            self._assigned = self._client.settled()

    def watch_lag(self) -> None:
        """Measure how far behind each partition is; skip to its tail where that is too far."""
        lags = dict.fromkeys(TOPICS, 0)
        for partition in self.held:
            if self._client is None:
                return
            _, high = self._client.watermarks(TopicPartition(*partition))
            offset = self._engine.offsets.get(partition)
            behind = max(high - offset, 0) if offset is not None else 0
            if behind > self._settings.max_lag_messages and offset is not None:
                behind = self._skip(partition, offset, high)
            lags[partition[0]] = lags.get(partition[0], 0) + behind
        for topic, lag in lags.items():
            self._measures.lag.labels(topic).set(lag)

    def _skip(self, partition: Partition, at: int, high: int) -> int:
        keep = int(self._settings.max_lag_messages * KEEP_RATIO)
        to = high - keep
        if self._client is not None:
            self._client.seek(TopicPartition(*partition, to))
        self._measures.skipped.labels(partition[0]).inc(to - at)
        self._engine.offsets[partition] = to
        _log.warning("skipped messages", topic=partition[0], partition=partition[1], messages=to - at)
        return keep

    def _expect(self, partition: Partition, offset: int) -> None:
        """Set the offset up to which a partition must be read before the predictor is ready: its end now."""
        try:
            low, high = self._client.watermarks(TopicPartition(*partition)) if self._client is not None else (0, 0)
        except BrokerError as error:
            _log.warning("watermarks unknown", topic=partition[0], partition=partition[1], reason=str(error))
            return
        start = offset if offset >= 0 else low
        self._engine.offsets[partition] = max(start, low)
        self._goals[partition] = high

    def _rewound(self, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
        span_ns = self._settings.window_points * self._settings.interval_ns
        if self._client is None:
            return {}
        try:
            offsets = self._client.offsets_for_time(partitions, self._clock_ns() - span_ns)
        except BrokerError as error:
            _log.warning("offsets by time unknown; reading from the beginning", reason=str(error))
            offsets = [
                TopicPartition(partition.topic, partition.partition, OFFSET_BEGINNING) for partition in partitions
            ]
        return {(partition.topic, partition.partition): partition.offset for partition in offsets}

    def _read(self, mine: list[Partition]) -> dict[Partition, StateReader]:
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                return self._store.read(mine)
            except BrokerError as error:
                _log.warning("snapshots not read", attempt=attempt, attempts=READ_ATTEMPTS, reason=str(error))
            if attempt < READ_ATTEMPTS:
                self._pause(READ_PAUSE_SECONDS)
        self._measures.snapshot_failures.labels("unread").inc()
        return {}

    def _restore(self, partition: Partition, state: StateReader) -> int:
        """Restore a partition; returns the next message to be read, negative where the past is to be read again."""
        restored = self._engine.restore_saved(partition, state)
        self._measures.restored.inc(restored.series)
        for reason in restored.reasons[:1]:
            self._unusable(partition, reason)
        if restored.other_grid:
            self._measures.snapshot_failures.labels("other_grid").inc()
            _log.info("snapshot has another grid", topic=partition[0], partition=partition[1])
        return restored.offset if restored.offset is not None else OFFSET_BEGINNING

    def _unusable(self, partition: Partition, reason: str) -> None:
        self._measures.snapshot_failures.labels("unusable").inc()
        _log.warning("snapshot not used", topic=partition[0], partition=partition[1], reason=reason)
