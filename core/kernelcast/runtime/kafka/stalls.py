"""Finds partitions that a consumer reads no further although Kafka answers, and decides what to do about them.

librdkafka can stop fetching a partition for good, or never join its group again, without an error. Example: Kafka
stands still for 35 s, then a topic is deleted and created again; librdkafka 2.16 keeps the deleted topic's id, and
nothing is read until the client is replaced.

`reader.PartitionReader` notes here what it reads and what Kafka answers, and takes the steps that are due.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING

Key = tuple[str, int]
"""Topic and partition."""

ANSWER_SECONDS: Final = 10.0
"""Age of Kafka's last answer about a partition's end up to which its clock runs: in an outage nothing is judged."""
SEEK_SECONDS: Final = 8.0
"""Time without progress after which a partition is sought again at its position."""
REPLACE_SECONDS: Final = 16.0
"""Time without progress after which the client is replaced by a new one."""
FAILED_SECONDS: Final = 32.0
"""Time without progress after which a partition counts as failed. The others go on."""
UNCONFIRMED_SECONDS: Final = 30.0
"""Time without membership of the group after which the client is replaced. A rebalance takes some seconds; it may take
longer where another member is slow, and then a new client waits like the former one."""
REPLACE_PAUSE_SECONDS: Final = 20.0
"""Shortest time between two new clients of one consumer; it doubles with each up to `LONGEST_PAUSE_SECONDS`."""
LONGEST_PAUSE_SECONDS: Final = 600.0
EXIT_PAUSE_SECONDS: Final = 600.0
"""Shortest time from the start of a consumer to the end of its process because nothing is read. A restarted process
knows nothing of the former one, so this also is the shortest time between two ends."""
LONGEST_TICK_SECONDS: Final = 1.0
"""Longest time that counts between two calls of `consume`: the service was busy, or the process was suspended."""


@dataclass(slots=True)
class PartitionProgress:
    """Progress of one partition that is being read.

    Attributes:
        position: The next offset to be read; negative if it is not known, one of librdkafka's names for an offset.
        end: The next offset that Kafka will write, by its last answer; None before the first.
        moved_seconds: Time of the last progress, by a monotonic clock.
        answered_seconds: Time of that answer, by a monotonic clock.
        still_seconds: Time without progress, while Kafka answered and there was something to read.
        paused: Whether the service has paused it.
        sought: Whether it was sought since its last progress.
        failed: Whether it counts as failed.
    """

    position: int
    end: int | None = None
    moved_seconds: float = -math.inf
    answered_seconds: float = -math.inf
    still_seconds: float = 0.0
    paused: bool = False
    sought: bool = False
    failed: bool = False

    @property
    def at_end(self) -> bool:
        """Whether nothing is known to be unread."""
        return self.end is None or self.end == self.position

    @property
    def target(self) -> int:
        """Where to go on: at the position, or at the beginning of a log that ends before it and so is another one."""
        return OFFSET_BEGINNING if self.end is not None and self.position > self.end else self.position


class StallDetector:
    """Progress of all partitions of a consumer and its membership of a group; only the consumer's thread uses it.

    A partition makes progress by a message, by an end of the partition (control records move the end without a
    message), or by a reported error. Its clock runs while it is not paused, Kafka has told another end within
    `ANSWER_SECONDS`, and the client holds no fetched messages that wait to be read.

    Attributes:
        progress: The partitions that are read.
        spare_seconds: Time without an answer of the group and without partitions, after which the member counts as a
            spare one; infinite where the group always answers.

    >>> detector = StallDetector(now_seconds=0.0)
    >>> detector.assigned({("metrics", 0): 40}, now_seconds=0.0)
    >>> detector.answered({("metrics", 0): 50}, asked_seconds=0.0, now_seconds=0.0)
    >>> for second in range(10):
    ...     detector.tick(float(second), drained=True)
    >>> detector.take_seeks()
    {('metrics', 0): 40}
    """

    def __init__(self, *, now_seconds: float) -> None:
        """Start without partitions and without a group."""
        self.spare_seconds = math.inf
        self.progress: dict[Key, PartitionProgress] = {}
        self._began_seconds = self._tick_seconds = now_seconds
        self._replaced_seconds, self._pause_seconds = -math.inf, 0.0
        self._moved = False
        self._unconfirmed_seconds: float | None = None
        self._answered_seconds = -math.inf

    def assigned(self, starts: Mapping[Key, int], *, now_seconds: float) -> None:
        """Note partitions that are read from now on, with their first offsets."""
        self.progress.update((key, PartitionProgress(offset)) for key, offset in starts.items())
        self._tick_seconds = now_seconds

    def removed(self, keys: Iterable[Key]) -> list[Key]:
        """Forget partitions that are read no more; returns those that had failed."""
        gone = [(key, self.progress.pop(key)) for key in list(keys) if key in self.progress]
        return [key for key, progress in gone if progress.failed]

    def pause(self, keys: Iterable[Key], *, paused: bool) -> None:
        """Note that partitions are paused, or fetched again."""
        for key in keys:
            if key in self.progress:
                self.progress[key].paused = paused

    def moved(self, key: Key, position: int | None, *, now_seconds: float) -> bool:
        """Note progress of a partition, to a position if it is known; returns whether it had failed."""
        progress = self.progress.get(key)
        if progress is None:
            return False
        self._moved = True
        had_failed, progress.moved_seconds = progress.failed, now_seconds
        if position is not None:
            progress.position = position
            progress.end = None if progress.end is None else max(progress.end, position)
        progress.still_seconds, progress.sought, progress.failed = 0.0, False, False
        return had_failed

    def answered(self, ends: Mapping[Key, int], *, asked_seconds: float, now_seconds: float) -> None:
        """Note Kafka's answer about ends of partitions, ours or others; what was read meanwhile may be newer."""
        if ends:
            self._answered_seconds = now_seconds
        for key, end in ends.items():
            if (progress := self.progress.get(key)) is not None:
                is_older = progress.moved_seconds >= asked_seconds
                progress.end = max(end, progress.position) if is_older else end
                progress.answered_seconds = now_seconds

    def confirmed(self) -> None:
        """Note that the group has answered: with an assignment, or by accepting a commit."""
        self._unconfirmed_seconds = None

    def unconfirmed(self) -> None:
        """Note that the group has to answer: after subscribing, a revocation, or a refused commit."""
        self._unconfirmed_seconds = self._unconfirmed_seconds or 0.0

    @property
    def is_confirmed(self) -> bool:
        """Whether the group has answered since the last change."""
        return self._unconfirmed_seconds is None

    @property
    def unconfirmed_seconds(self) -> float:
        """For how long the group has not answered, while Kafka did; 0 if it has."""
        return self._unconfirmed_seconds or 0.0

    def tick(self, now_seconds: float, *, drained: bool) -> None:
        """Let the clocks run.

        Args:
            now_seconds: Time of a monotonic clock.
            drained: Whether all messages that the client had fetched have been read.
        """
        passed_seconds = min(now_seconds - self._tick_seconds, LONGEST_TICK_SECONDS)
        self._tick_seconds = now_seconds
        if self._unconfirmed_seconds is not None and now_seconds - self._answered_seconds <= ANSWER_SECONDS:
            self._unconfirmed_seconds += passed_seconds
        if not self.progress and self.unconfirmed_seconds >= self.spare_seconds:
            self.confirmed()
        for progress in self.progress.values():
            if progress.at_end:
                progress.still_seconds = 0.0
            elif drained and not progress.paused and now_seconds - progress.answered_seconds <= ANSWER_SECONDS:
                progress.still_seconds += passed_seconds

    def take_seeks(self) -> dict[Key, int]:
        """Return the partitions to be sought now, with the offsets; each once until it makes progress."""
        due = {
            key: progress
            for key, progress in self.progress.items()
            if not progress.sought and progress.still_seconds >= SEEK_SECONDS
        }
        for progress in due.values():
            progress.sought = True
        return {key: progress.target for key, progress in due.items()}

    def take_replacement(self, now_seconds: float) -> bool:
        """Return whether to replace the client now; it counts as done then."""
        still = any(progress.still_seconds >= REPLACE_SECONDS for progress in self.progress.values())
        still |= self.unconfirmed_seconds >= UNCONFIRMED_SECONDS
        since_seconds = now_seconds - self._replaced_seconds
        due = still and since_seconds >= self._pause_seconds
        if due:
            calm = since_seconds >= LONGEST_PAUSE_SECONDS and self._pause_seconds < LONGEST_PAUSE_SECONDS
            self._pause_seconds = REPLACE_PAUSE_SECONDS if calm else min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            self._replaced_seconds, self._moved = now_seconds, False
            self._unconfirmed_seconds = None if self._unconfirmed_seconds is None else 0.0
        return due

    def take_failed(self) -> list[Key]:
        """Return the partitions that count as failed from now on."""
        due = [
            key
            for key, progress in self.progress.items()
            if not progress.failed and progress.still_seconds >= FAILED_SECONDS
        ]
        for key in due:
            self.progress[key].failed = True
        return due

    def take_end(self, now_seconds: float) -> bool:
        """Return whether to end the process: no partition has moved since the client was replaced.

        It counts as done then; a reader that does not end with its error goes on.
        """
        failed = any(progress.failed for progress in self.progress.values())
        due = failed and not self._moved and now_seconds - self._began_seconds >= EXIT_PAUSE_SECONDS
        if due:
            self._began_seconds = now_seconds
        return due
