"""Measures the age of points when they become available to scrapes, and when they are scraped."""

import contextlib
from collections import Counter, deque
from typing import Final

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.instruments import Instruments, last_of_each
from kernelcast.bridge.intake.batch import MessageBatch
from kernelcast.columnar import Decoded

MAX_UNSCRAPED_BATCHES: Final = 4096
"""Largest number of batches that wait for a scrape; without scrapes, later batches are not observed."""


class Freshness:
    """Measures delays; the reading thread calls `note`, the threads that answer scrapes call `scraped`."""

    def __init__(self, instruments: Instruments, clock: Clock) -> None:
        self._instruments, self._clock = instruments, clock
        self._awaited: deque[tuple[float, str, int]] = deque()

    def note(self, batch: MessageBatch, decoded: Decoded, exposed: frozenset[int]) -> None:
        """Count messages and points by topic, and observe the age of the newest points.

        Args:
            batch: The messages.
            decoded: Their points.
            exposed: Numbers of the exposed partitions; points of hidden ones have no delay yet.
        """
        now_ns = self._clock.now_ns()
        topics = [message.topic() or "" for message in batch.messages]
        for topic in set(topics):
            self._instruments.messages.labels(topic).inc(topics.count(topic))
        observed = {topic: self._instruments.freshness.labels(topic) for topic in set(topics)}
        append_ms, partitions = batch.columns.append_ms.tolist(), batch.columns.partition.tolist()
        points, ahead, slowest = Counter[str](), dict[str, float](), dict[str, int]()
        for columns in (decoded.numbers, decoded.histograms):
            last, before = last_of_each(columns.message), -1
            found = (columns.message[last], columns.time_ns[last], last)
            for message, time_ns, at in zip(*(column.tolist() for column in found), strict=True):
                topic = topics[message]
                points[topic] += at - before
                before = at
                ahead_seconds = time_ns / 1e9 - append_ms[message] / 1e3
                ahead[topic] = max(ahead.get(topic, ahead_seconds), ahead_seconds)
                if partitions[message] in exposed:
                    observed[topic].observe(max(0, now_ns - time_ns) / 1e9)
                    slowest[topic] = min(slowest.get(topic, time_ns), time_ns)
        for topic, count in points.items():
            self._instruments.points.labels(topic).inc(count)
        for topic, seconds in ahead.items():
            self._instruments.clock_ahead.labels(topic).set(seconds)
        self._await(slowest)

    def scraped(self, seconds: float, size: int) -> None:
        """Note an encoding that has just ended: points that were stored before it began have been scraped."""
        self._instruments.scraped(seconds, size)
        began_seconds, now_ns = self._clock.monotonic() - seconds, self._clock.now_ns()
        with contextlib.suppress(IndexError):  # none is left
            while True:
                awaited = self._awaited.popleft()
                stored_seconds, topic, time_ns = awaited
                if stored_seconds > began_seconds:
                    self._awaited.appendleft(awaited)
                    return
                self._instruments.served.labels(topic).observe(max(0, now_ns - time_ns) / 1e9)

    def _await(self, slowest: dict[str, int]) -> None:
        if len(self._awaited) < MAX_UNSCRAPED_BATCHES:
            stored_seconds = self._clock.monotonic()
            self._awaited.extend((stored_seconds, topic, time_ns) for topic, time_ns in slowest.items())
