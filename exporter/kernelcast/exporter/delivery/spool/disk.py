"""The lanes of all topics in one directory, with one size limit: messages beyond it, or too old, are dropped."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Self

from kernelcast.exporter.delivery.spool.lane import Lane
from kernelcast.exporter.delivery.spool.record import SpooledMessage
from kernelcast.exporter.delivery.spool.segment import SUFFIX
from kernelcast.exporter.private_files import make_directory, open_private
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

REASONS: Final = ("bound", "age", "disk", "torn", "refused")
"""Reasons for lost messages: over the byte limit, too old, a disk error on writing or reading, cut off by a crash, or
refused by Kafka for ever."""
SEGMENTS: Final = 32
"""Number of segments that the byte limit holds: messages beyond it are dropped a segment at a time."""
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that takes new messages in the place of old ones."""
MIN_SEGMENT_BYTES: Final = 32 * 1024
MAX_SEGMENT_BYTES: Final = 8 * 2**20

_log = get_logger(__name__)


class DiskSpool:
    """Queues on disk, one for each topic. Not thread-safe.

    An appended record is in the kernel's cache at once, so a killed process loses nothing. `sync` writes the records to
    the disk, so a machine that loses power loses the records since the last call.

    Args:
        directory: The spool's own directory; created if needed.
        max_bytes: Size limit of all segments together.
        max_age_seconds: Older messages are dropped.
        on_drop: Called with the reason and the number of messages, for each loss.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        max_age_seconds: float,
        on_drop: Callable[[str, int], None] = lambda _reason, _count: None,
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._max_age_ns = round(max_age_seconds * NANOSECONDS_PER_SECOND)
        self._segment_bytes = min(max(max_bytes // SEGMENTS, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES)
        self._on_drop = on_drop
        self._lock: int | None = None
        self._lanes: dict[str, Lane] = {}
        self._dirty: set[str] = set()

    def open(self, topics: Iterable[str]) -> Self:
        """Open the records of an earlier run, and lock the directory until `close`.

        Raises:
            ConfigurationError: The directory cannot be used, or another exporter uses it.
        """
        try:
            make_directory(self._directory)
            self._lock = open_private(self._directory / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = {path.parent.name for path in self._directory.glob(f"*/*{SUFFIX}")}
            for topic in sorted({*topics, *left}):
                self._open(topic)
        except BlockingIOError:
            self.close()
            raise ConfigurationError(
                f"exporter.spool.directory {self._directory} is used by another exporter; give each its own"
            ) from None
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"exporter.spool.directory {self._directory} cannot be used: {error.strerror}; name one that can be "
                "written, or null to keep nothing on disk"
            ) from None
        return self

    def close(self) -> None:
        """Write the rest and unlock the directory; safe to call twice."""
        if self._lock is not None:
            self.sync(self.unsynced())
            for lane in self._lanes.values():
                lane.close()
            os.close(self._lock)
            self._lock = None

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that have a lane."""
        return tuple(self._lanes)

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(lane.size_bytes for lane in self._lanes.values())

    @property
    def messages(self) -> int:
        """Messages that Kafka has not confirmed."""
        return sum(lane.messages for lane in self._lanes.values())

    def lane(self, topic: str) -> Lane:
        """The queue of a topic that has one."""
        return self._lanes[topic]

    def append(self, topic: str, record: SpooledMessage) -> int | None:
        """Append a message to its topic's lane; returns its number, or None if it cannot be written.

        If the disk is full, older messages are deleted first; no other error is a reason to delete them.
        """
        lane = self._lanes[topic]
        while True:
            try:
                number = lane.append(record)
            except OSError as error:
                _log.warning("spool cannot be written", directory=str(self._directory), reason=str(error))
                if error.errno not in NO_ROOM or not self._drop_oldest("disk"):
                    return None
            else:
                break
        self._dirty.add(topic)
        while self.size_bytes > self._max_bytes and self._drop_oldest("bound"):
            pass
        return number

    def expire(self, now_ns: int) -> None:
        """Delete the segments whose last message is too old."""
        for lane in self._lanes.values():
            while lane.oldest_ns and lane.oldest_newest_ns < now_ns - self._max_age_ns:
                self._on_drop("age", lane.drop_oldest())

    def read(self, topic: str) -> tuple[int, SpooledMessage] | None:
        """Return the next message of a topic that has not been passed to librdkafka; None if there is none."""
        lane = self._lanes[topic]
        before = lane.cut
        found = lane.read()
        if lane.cut > before:
            self._on_drop("disk", lane.cut - before)
        return found

    def unsynced(self) -> list[int]:
        """File descriptors to give to `sync`: of segments that were written since the last call."""
        tails = [self._lanes[topic].tail() for topic in self._dirty]
        self._dirty.clear()
        return [tail for tail in tails if tail is not None]

    def sync(self, files: Iterable[int]) -> None:
        """Sync written records to the disk, and note how far they are settled; needs no lock while others append."""
        for file in files:
            try:
                os.fdatasync(file)
            except OSError as error:
                _log.warning("spool cannot be synced", directory=str(self._directory), reason=str(error))
            finally:
                os.close(file)
        for lane in self._lanes.values():
            try:
                lane.save_head()
            except OSError as error:
                _log.warning("spool's head cannot be written", directory=str(self._directory), reason=str(error))

    def _open(self, topic: str) -> None:
        lane = Lane(self._directory / topic, segment_bytes=self._segment_bytes)
        lane.open()
        self._lanes[topic] = lane
        if lane.cut:
            _log.warning("spool was damaged; the rest of it is used", topic=topic, lost=lane.cut)
            self._on_drop("torn", lane.cut)

    def _drop_oldest(self, reason: str) -> bool:
        """Delete the oldest segment of all lanes; False if there is none."""
        lanes = [lane for lane in self._lanes.values() if lane.size_bytes]
        if not lanes:
            return False
        self._on_drop(reason, min(lanes, key=lambda lane: lane.oldest_ns).drop_oldest())
        return True
