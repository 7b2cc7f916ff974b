"""A queue on disk: first in, first out; each record is kept until its owner has settled it.

Three owners: `DiskSpool` (one lane for each topic), `OutcomeLog` and `FinalReports`.
"""

import os
import struct
import zlib
from collections import deque
from pathlib import Path
from typing import Final

from kernelcast.exporter.delivery.spool.record import SpooledMessage
from kernelcast.exporter.delivery.spool.segment import SUFFIX, Segment
from kernelcast.exporter.private_files import make_directory, open_private
from kernelcast.runtime.logging import get_logger

HEAD_FILE: Final = "head"
_HEAD: Final = struct.Struct("<QI")
"""The number of the first record that Kafka has not confirmed, and the CRC-32 of its eight bytes."""

_log = get_logger(__name__)


class Lane:
    """A queue of segments. Not thread-safe.

    A record is appended, read (passed to librdkafka) and settled (confirmed by Kafka). After `rewind`, unsettled
    records are read again. A segment whose records are all settled is deleted. The number of the first unsettled record
    is written to the file `head` from time to time: after a crash a few records are sent twice, none is lost.

    Args:
        directory: The lane's own directory.
        segment_bytes: Size at which a new segment is started.

    Attributes:
        cut: Records removed from damaged segments so far.
    """

    def __init__(self, directory: Path, *, segment_bytes: int) -> None:
        # Example: head 3, reader 6, next 9: records 3 to 5 were read and not settled, 6 to 8 wait. `_settled` holds
        # numbers above the head; `_saved` is the head in the file `head`; `_place` is segment, number and offset of the
        # record after the one that was read last; `_roll` starts a new segment with the next append, after damage.
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: deque[Segment] = deque()
        self._head = self._reader = self._next = self._saved = 0
        self._settled: set[int] = set()
        self._place: tuple[Segment, int, int] | None = None
        self._roll = False
        self.cut = 0

    def open(self) -> None:
        """Open the segments of an earlier run.

        Raises:
            OSError: The directory cannot be made, read or written.
        """
        make_directory(self._directory)
        damaged: list[int] = []
        for path in sorted(path for path in self._directory.glob(f"*{SUFFIX}") if path.stem.isdecimal()):
            segment = Segment.load(path)
            self.cut += segment.cut
            damaged += [] if segment.damaged_at is None else [segment.damaged_at]
            if segment.count:
                self._segments.append(segment)
            else:
                segment.remove()
        self._saved = self._load_head()
        # After damage numbers may be lower than before, so it is unknown whether a record there was settled.
        self._head = self._reader = self._next = min([self._saved, *damaged])
        if self._segments:
            self._next = max(self._segments[-1].end, self._next)
            self._advance()
            self._reader = self._head

    @property
    def head(self) -> int:
        """The number of the first record that is not settled."""
        return self._head

    @property
    def next(self) -> int:
        """The number that the next record gets."""
        return self._next

    def start_at(self, number: int) -> None:
        """Set the lowest number for records from now on."""
        self._next = max(self._next, number)

    @property
    def size_bytes(self) -> int:
        """Size of the segments on disk."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def messages(self) -> int:
        """Records that Kafka has not confirmed."""
        return sum(segment.end - max(segment.first, min(self._head, segment.end)) for segment in self._segments) - len(
            self._settled
        )

    @property
    def unread(self) -> int:
        """Number of records that have not been passed to librdkafka, or have failed."""
        behind = sum(segment.end - max(segment.first, min(self._reader, segment.end)) for segment in self._segments)
        return behind - sum(number >= self._reader for number in self._settled)

    @property
    def oldest_ns(self) -> int:
        """Time at which the first record of the oldest segment was sent; 0 without any."""
        return self._segments[0].oldest_ns if self._segments else 0

    @property
    def oldest_newest_ns(self) -> int:
        """Time at which the last record of the oldest segment was sent; 0 without any."""
        return self._segments[0].newest_ns if self._segments else 0

    def append(self, record: SpooledMessage) -> int:
        """Append a record; returns its number.

        Raises:
            OSError: The disk fails; the lane is unchanged.
        """
        tail = self._segments[-1] if self._segments else None
        if tail is None or self._roll or tail.end != self._next or tail.size_bytes >= self._segment_bytes:
            if tail is not None:
                tail.sync()
            tail = Segment.create(self._directory, self._next)
            self._segments.append(tail)
            self._roll = False
        tail.append(record)
        number, self._next = self._next, self._next + 1
        return number

    def read(self) -> tuple[int, SpooledMessage] | None:
        """Return the next record and its number; None if there is none."""
        while (segment := self._segment_of(self._reader)) is not None:
            number = max(self._reader, segment.first)
            if number in self._settled:
                self._reader = number + 1
                continue
            offset = self._offset(segment, number)
            found = segment.read(offset)
            if found is None:
                self._pass_over(segment, number, offset)
                continue
            record, after = found
            self._place = (segment, number + 1, after)
            self._reader = number + 1
            return number, record
        return None

    def holds(self, number: int) -> bool:
        """Whether a record is still on disk and not settled."""
        segment = self._segment_of(number)
        return segment is not None and segment.first <= number and number >= self._head and number not in self._settled

    def settle(self, number: int) -> bool:
        """Mark a record as settled, because Kafka has it or it is obsolete; False if it was not here any more."""
        if not self.holds(number):
            return False
        self._settled.add(number)
        self._advance()
        return True

    def rewind(self) -> None:
        """Read all unsettled records again, from the oldest on."""
        self._reader, self._place = self._head, None

    def skip(self) -> None:
        """Mark all records as read, because the caller has passed them to librdkafka as well."""
        self._reader, self._place = self._next, None

    def drop_oldest(self) -> int:
        """Delete the oldest segment; returns the lost records, without those in flight, which may still reach Kafka."""
        segment = self._segments.popleft()
        start = max(segment.first, self._reader)
        lost = sum(number not in self._settled for number in range(start, segment.end))
        self._forget(segment)
        self._head = max(self._head, segment.end)
        self._reader = max(self._reader, self._head)
        self._advance()
        return lost

    def tail(self) -> int | None:
        """Return a second file descriptor of the segment being written, which the caller syncs and closes.

        None if there is no segment, or no descriptor is free: the records are then written, but not synced.
        """
        try:
            return self._segments[-1].duplicate() if self._segments else None
        except OSError as error:
            _log.warning("records cannot be synced", path=str(self._directory), reason=str(error))
            return None

    def save_head(self) -> None:
        """Write the number of the first unsettled record, if it has changed.

        Raises:
            OSError: The disk fails; the next start sends more records twice.
        """
        head = self._head  # it may move meanwhile
        if head == self._saved:
            return
        number = head.to_bytes(8, "little")
        file = open_private(self._directory / HEAD_FILE, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(file, number + zlib.crc32(number).to_bytes(4, "little"), 0)
        finally:
            os.close(file)
        self._saved = head

    def close(self) -> None:
        """Close the files; safe to call twice."""
        for segment in self._segments:
            segment.close()

    def _load_head(self) -> int:
        try:
            data = (self._directory / HEAD_FILE).read_bytes()
        except FileNotFoundError:
            data = b""
        if len(data) == _HEAD.size:
            number, checksum = _HEAD.unpack(data)
            if zlib.crc32(data[:8]) == checksum:
                return int(number)
        return self._segments[0].first if self._segments else 0

    def _segment_of(self, number: int) -> Segment | None:
        """Return the segment that has a record, or else the first one after it."""
        return next((segment for segment in self._segments if number < segment.end), None)

    def _offset(self, segment: Segment, number: int) -> int:
        if self._place is not None and self._place[:2] == (segment, number):
            return self._place[2]
        return segment.offset_of(number)

    def _pass_over(self, segment: Segment, number: int, offset: int) -> None:
        """Continue after a record that is damaged on disk."""
        after = segment.skip_damage(number, offset)
        lost = set(range(number, after)) - self._settled
        self.cut += len(lost)
        self._settled |= lost
        self._reader = after
        self._roll = self._roll or segment is self._segments[-1]
        self._advance()

    def _advance(self) -> None:
        """Move the head over settled records, and delete segments that are completely settled."""
        while self._segments:
            segment = self._segments[0]
            self._head = max(self._head, segment.first)
            while self._head in self._settled:
                self._settled.remove(self._head)
                self._head += 1
            if self._head < segment.end:
                return
            self._segments.popleft()
            self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        self._settled = {number for number in self._settled if number >= segment.end}
        if self._place is not None and self._place[0] is segment:
            self._place = None
        try:
            segment.remove()
        except OSError as error:  # the next start deletes it: its records are below the head
            _log.warning("file of a spool cannot be deleted", path=str(segment.path), reason=str(error))
