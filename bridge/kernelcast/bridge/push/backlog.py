"""Kafka as the backlog of one destination: reads batches, commits them once they are delivered, measures the lag."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import structlog
from confluent_kafka import TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.push.instruments import DestinationMetrics
from kernelcast.bridge.push.losses import LostMessages
from kernelcast.runtime.kafka.clients import StampedMessage
from kernelcast.runtime.kafka.consumer import NO_OFFSET
from kernelcast.wire.errors import BrokerError

MESSAGES_AT_ONCE: Final = 32
"""Messages per call of `consume`: 16 MiB at most, at 512 KiB each. The call that fills a batch ends it."""
POLL_SECONDS: Final = 0.1
"""Longest wait of one poll, and so of a stop."""
MAX_POLL_GAP_SECONDS: Final = 5.0
"""Longest time between two polls while a batch is sent: a rebalance waits for a poll."""
UPKEEP_SECONDS: Final = 1.0
"""Interval at which the lag is updated."""
END_QUERY_SECONDS: Final = 10.0
"""Interval of queries for the end of the log while fetching is paused: without fetches librdkafka does not learn it."""

Key = tuple[str, int]


class PushConsumer(Protocol):
    """The part of a Kafka consumer that is needed here: `runtime.kafka.Consumer`."""

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        """Read messages, and errors apart from them."""

    def ends(self) -> list[TopicPartition]:
        """Partitions read to their end since the last call, with the offset after it."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset kept, and the next to be written."""

    def known_high(self, partition: TopicPartition) -> int:
        """The next offset to be written as far as is known, without a query."""

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets."""

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit the offsets of the next messages to be read."""

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading elsewhere."""

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching."""

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch again."""


@dataclass(slots=True)
class PartitionProgress:
    """Position of a partition.

    Attributes:
        acknowledged: The offset after the last message that was stored, rejected or lost; negative before it is known.
        high: The next offset that Kafka will write, as far as is known.
        committed: The last value of `acknowledged` that was committed.
        position: The offset after the last message that was read; negative before it is known.
    """

    acknowledged: int = -1
    high: int = -1
    committed: int = -1
    position: int = -1

    @property
    def lag(self) -> int:
        """Messages that wait."""
        return max(0, self.high - self.acknowledged) if self.acknowledged >= 0 else 0


@dataclass(slots=True)
class UnacknowledgedBatch:
    """Messages that were read and are not acknowledged.

    Attributes:
        messages: Those of each partition in the order of their offsets.
        ends: By partition that was read to its end, the end: transaction markers before it have offsets, too.
        has_lost_partition: Whether one of its partitions was revoked since it was read.
    """

    messages: list[StampedMessage] = field(default_factory=list)
    ends: dict[Key, int] = field(default_factory=dict)
    has_lost_partition: bool = False

    def reached(self) -> dict[Key, int]:
        """Return, by partition, the offset to continue from."""
        reached = {_key(message): (message.offset() or 0) + 1 for message in self.messages}
        for key, end in self.ends.items():
            reached[key] = max(end, reached.get(key, 0))
        return reached


class PushBacklog:
    """Reads batches, and commits them after the receiver has decided. `Pusher` drives it; rebalances run in its polls.

    The member's thread calls everything but `age_seconds` and `lag`. Cycle: `read`; `wait`, which polls to stay in the
    group, and puts messages that come in `_held` for the next batch; then `acknowledge`, or `rewind` if abandoned.

    Attributes:
        joined: Whether the group has assigned partitions, none included.
    """

    def __init__(
        self, source: PushConsumer, metrics: DestinationMetrics, clock: Clock, *, start: Literal["end", "beginning"]
    ) -> None:
        """Connect the parts.

        Args:
            source: The consumer.
            metrics: The destination's.
            clock: For upkeep and ages.
            start: Where partitions begin that the group has committed nothing of.
        """
        self._source, self._metrics, self._clock = source, metrics, clock
        self._start = start
        self._lost = LostMessages(source.watermarks, metrics, clock)
        self._log = structlog.stdlib.get_logger("bridge.push.backlog")
        self._progress: dict[Key, PartitionProgress] = {}
        self._held: list[StampedMessage] = []
        self._held_ends: dict[Key, int] = {}
        self._batch = UnacknowledgedBatch()
        self._upkeep_due = self._query_due = 0.0
        self._poll_due = 0.0
        self._starts_uncommitted = self._paused = False
        self.joined = False

    def assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets to read from: the committed ones, else the configured start.

        Only partitions that exist at the first assignment may start at their end. One that is added later is read from
        its beginning: messages written before we learnt of it must reach the receiver as well.
        """
        starts = self._starts(partitions)
        for start in starts:
            offset = start.offset if start.offset >= 0 else -1
            self._progress[start.topic, start.partition] = PartitionProgress(acknowledged=offset, position=offset)
        self.joined = self._starts_uncommitted = True
        self._log.info("partitions assigned", destination=self._metrics.name, partitions=len(starts))
        return starts

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Release partitions to another member, which reads unacknowledged messages again."""
        keys = {(item.topic, item.partition) for item in partitions}
        if not lost:
            self._commit(wait=True)
        for key in keys & self._progress.keys():
            del self._progress[key]
            self._lost.forget_gaps(key)
            self._held_ends.pop(key, None)
            self._batch.ends.pop(key, None)
            self._metrics.forget(*key)
        self._held = [message for message in self._held if _key(message) not in keys]
        self._batch.has_lost_partition |= any(_key(message) in keys for message in self._batch.messages)
        self._log.info("partitions revoked", destination=self._metrics.name, partitions=len(keys), lost=lost)

    def read(self, *, max_bytes: int, linger_seconds: float, stopping: Callable[[], bool]) -> UnacknowledgedBatch:
        """Return the next batch, empty if no message comes within a poll.

        Args:
            max_bytes: Size that fills a batch.
            linger_seconds: Longest wait for more messages after the first one.
            stopping: Whether to return at once.
        """
        self._batch = batch = UnacknowledgedBatch()
        batch.messages, self._held = self._held, []
        batch.ends, self._held_ends = self._held_ends, {}
        size = sum(len(message.value() or b"") for message in batch.messages)
        due = self._clock.monotonic() + linger_seconds if batch.messages else None
        while size < max_bytes and not stopping():
            received = self._consume(POLL_SECONDS, batch.ends)
            batch.messages += received
            size += sum(len(message.value() or b"") for message in received)
            if due is None:
                if not received:
                    break
                due = self._clock.monotonic() + linger_seconds
            if self._clock.monotonic() >= due:
                break
        # Another member reads the messages of partitions that were revoked meanwhile.
        batch.messages = [message for message in batch.messages if _key(message) in self._progress]
        batch.has_lost_partition = False
        self._upkeep()
        return batch

    def wait(self, seconds: float, *, stopping: Callable[[], bool]) -> bool:
        """Wait with fetching paused, and poll meanwhile; returns False if the batch must be abandoned.

        Args:
            seconds: How long. 0 only polls if that is due, also when the process stops: a request that can be sent
                without a wait is sent.
            stopping: Whether the process stops.
        """
        due = self._clock.monotonic() + seconds
        while not (seconds and stopping()):
            now = self._clock.monotonic()
            if now >= due and now < self._poll_due:
                return not self._batch.has_lost_partition
            self._source.pause([TopicPartition(*key) for key in self._progress])
            self._paused = True
            self._held += self._consume(min(max(due - now, 0.0), POLL_SECONDS), self._held_ends)
            if self._batch.has_lost_partition:
                return False
            self._query_ends()
            self._upkeep()
        return False

    def acknowledge(self, batch: UnacknowledgedBatch) -> None:
        """Commit a batch, all of which the receiver has stored or rejected; fetching goes on."""
        count = len(batch.messages)
        for key, offset in batch.reached().items():
            progress = self._progress.get(key)
            if progress is not None and offset <= progress.position:  # a later one is of a log that was replaced
                progress.acknowledged = self._lost.count_after(key, max(progress.acknowledged, offset))
        self._batch = UnacknowledgedBatch()
        self._metrics.committed(count)
        self._commit(wait=False)
        self._resume_fetching()

    def rewind(self) -> None:
        """Read unacknowledged messages again, in the partitions that are still ours."""
        self._held, self._held_ends = [], {}
        for key, progress in self._progress.items():
            self._lost.forget_gaps(key)
            progress.position = progress.acknowledged
            if progress.acknowledged >= 0:
                self._source.seek(TopicPartition(*key, progress.acknowledged))
        self._resume_fetching()

    def close(self) -> None:
        """Commit acknowledged offsets, and wait until Kafka has them."""
        self._commit(wait=True)

    def age_seconds(self) -> float:
        """Return the age of the oldest message that is read and not acknowledged; 0 without one. For any thread."""
        waiting = itertools.chain(self._batch.messages, self._held)
        oldest_ms = min((time_ms for message in waiting if (time_ms := message.timestamp()[1]) > 0), default=0)
        return max(0.0, self._clock.now_ns() / 1e9 - oldest_ms / 1e3) if oldest_ms else 0.0

    def lag(self) -> int:
        """Messages that wait in our partitions. For any thread."""
        return sum(progress.lag for progress in list(self._progress.values()))

    def _consume(self, timeout_seconds: float, ends: dict[Key, int]) -> list[StampedMessage]:
        received, _errors = self._source.consume(MESSAGES_AT_ONCE, timeout_seconds)
        self._poll_due = self._clock.monotonic() + MAX_POLL_GAP_SECONDS
        mine = [message for message in received if _key(message) in self._progress]
        skipped = False
        for message in mine:
            progress, offset = self._progress[_key(message)], message.offset() or 0
            if offset < progress.position:
                self._start_over(_key(message), offset)
            elif progress.acknowledged < 0:
                progress.acknowledged = offset
            skipped |= self._skip_lost(_key(message), progress, offset)
            progress.position = offset + 1
        for end in self._source.ends():
            key = end.topic, end.partition
            if (known := self._progress.get(key)) is not None:  # else the messages before it were left out, too
                ends[key] = end.offset
                skipped |= self._skip_lost(key, known, end.offset)
                known.position = max(known.position, end.offset)
        if skipped:  # a restart must not count them again, however long the receiver is down
            self._commit(wait=False)
        return mine

    def _start_over(self, key: Key, offset: int) -> None:
        """Forget the offsets of a log that was replaced: its topic was made again, or lost messages with a leader."""
        self._log.warning("offsets restarted", destination=self._metrics.name, topic=key[0], partition=key[1])
        progress = self._progress[key]
        progress.acknowledged = progress.position = offset
        progress.committed = progress.high = -1
        self._lost.forget(key)
        self._batch.ends.pop(key, None)
        self._held_ends.pop(key, None)

    def _skip_lost(self, key: Key, progress: PartitionProgress, offset: int) -> bool:
        """Acknowledge lost messages before `offset` if no message before them waits; returns whether there are any."""
        if not 0 <= progress.position < offset - 1:
            return False
        self._lost.note_gap(key, progress.position, offset)
        before, progress.acknowledged = progress.acknowledged, self._lost.count_after(key, progress.acknowledged)
        return progress.acknowledged > before

    def _starts(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        starts = []
        for known in self._source.committed(partitions) if partitions else []:
            low, high = self._source.watermarks(known)
            if known.offset == NO_OFFSET:
                at_end = self._start == "end" and not self.joined
                starts.append(TopicPartition(known.topic, known.partition, high if at_end else low))
                continue
            if known.offset >= 0:
                self._lost.note_start((known.topic, known.partition), known.offset, low, high)
            starts.append(TopicPartition(known.topic, known.partition, max(known.offset, low)))
        return starts

    def _commit(self, *, wait: bool) -> bool:
        """Commit new offsets; returns whether Kafka confirmed them within the wait."""
        changed = {
            key: progress for key, progress in self._progress.items() if progress.acknowledged > progress.committed
        }
        offsets = [TopicPartition(*key, progress.acknowledged) for key, progress in changed.items()]
        try:
            self._source.commit(offsets, wait=wait)
        except BrokerError as error:
            self._log.warning("offsets not committed", destination=self._metrics.name, reason=str(error))
            return False
        for progress in changed.values():
            progress.committed = progress.acknowledged
        return True

    def _resume_fetching(self) -> None:
        if self._paused:
            self._paused = False
            self._source.resume([TopicPartition(*key) for key in self._progress])

    def _query_ends(self) -> None:
        if self._clock.monotonic() < self._query_due:
            return
        self._query_due = self._clock.monotonic() + END_QUERY_SECONDS
        for key, progress in self._progress.items():
            try:
                _, progress.high = self._source.watermarks(TopicPartition(*key))
            except BrokerError as error:
                self._log.warning("lag unknown", destination=self._metrics.name, reason=str(error))
                return

    def _upkeep(self) -> None:
        if self._clock.monotonic() < self._upkeep_due:
            return
        self._upkeep_due = self._clock.monotonic() + UPKEEP_SECONDS
        for key, progress in self._progress.items():
            progress.high = max(progress.high, self._source.known_high(TopicPartition(*key)))
        self._metrics.lag((*key, progress.lag) for key, progress in self._progress.items())
        if self._starts_uncommitted:  # a crash before the first point must not move a start at the end
            self._starts_uncommitted = not self._commit(wait=True)


def _key(message: StampedMessage) -> Key:
    return message.topic() or "", message.partition() or 0
