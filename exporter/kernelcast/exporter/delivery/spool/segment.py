"""One file of a spool: consecutive records; the file's name is the number of the first one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from kernelcast.exporter.delivery.spool.record import (
    HEAD_BYTES,
    SpooledMessage,
    body_length,
    find,
    pack,
    possible_lengths,
    unpack,
)
from kernelcast.exporter.private_files import open_private

MAGIC: Final = b"kcspool1"
"""First bytes of each file; the digit is the version of the format."""
SUFFIX: Final = ".segment"


class Segment:
    """Records with consecutive numbers; appended at the end, read at any offset. Not thread-safe.

    Attributes:
        path: The file.
        first: The number of its first record.
        count: Records in it.
        size_bytes: The file's length.
        oldest_ns: When its first record was sent, Unix nanoseconds; 0 while it has none.
        newest_ns: When its last record was sent.
        cut: Incomplete or damaged records that were removed when it was opened.
        damaged_at: The number of the first record after removed damage; None without any. The number of damaged records
            is an estimate, so numbers from here on may be lower than before.
    """

    def __init__(self, path: Path, file: int) -> None:
        self.path, self._file = path, file
        self.damaged_at: int | None = None
        self._resumed: list[tuple[int, int]] = []
        """Numbers and offsets of records that follow damage met while reading."""
        self.first = int(path.stem)
        self.count = self.size_bytes = self.oldest_ns = self.newest_ns = self.cut = 0

    @classmethod
    def create(cls, directory: Path, first: int) -> Self:
        """Create an empty segment.

        Raises:
            OSError: The disk fails.
        """
        path = directory / f"{first:020d}{SUFFIX}"
        segment = cls(path, open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        try:
            segment._write(MAGIC)
            _sync_directory(directory)
        except OSError:
            segment.remove()
            raise
        return segment

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load an existing segment; incomplete or damaged records are removed and counted in `cut`.

        Raises:
            OSError: It cannot be read or cut.
        """
        segment = cls(path, open_private(path, os.O_RDWR))
        length = os.fstat(segment._file).st_size
        segment.size_bytes = len(MAGIC)
        if os.pread(segment._file, len(MAGIC), 0) != MAGIC:
            os.pwrite(segment._file, MAGIC, 0)
            segment._cut_out_damage(max(length, len(MAGIC)))
            segment.cut = segment.cut if segment.count else max(segment.cut, 1)
            return segment
        while (found := segment.read(segment.size_bytes)) is not None:
            record, segment.size_bytes = found
            segment._noted(record)
        if segment.size_bytes < length:
            segment._cut_out_damage(length)
        return segment

    @property
    def end(self) -> int:
        """The number that the next record gets."""
        return self.first + self.count

    def append(self, record: SpooledMessage) -> None:
        """Append a record.

        Raises:
            OSError: The disk fails; the file is unchanged.
        """
        self._write(pack(record))
        self._noted(record)

    def read(self, offset: int) -> tuple[SpooledMessage, int] | None:
        """Return the record at an offset and the offset of the next; None at the end, or if the record is damaged."""
        head = os.pread(self._file, HEAD_BYTES, offset)
        length = body_length(head)
        if length < 0:
            return None
        record = unpack(head + os.pread(self._file, length, offset + HEAD_BYTES))
        return None if record is None else (record, offset + HEAD_BYTES + length)

    def offset_of(self, number: int) -> int:
        """Return the offset of a record in the segment."""
        known = [place for place in self._resumed if place[0] <= number]
        start, offset = max(known, default=(self.first, len(MAGIC)))
        for _ in range(number - start):
            offset += HEAD_BYTES + body_length(os.pread(self._file, HEAD_BYTES, offset))
        return offset

    def skip_damage(self, number: int, offset: int) -> int:
        """Find the next undamaged record.

        Args:
            number: Number of the damaged record.
            offset: Its offset.

        Returns:
            The number of the next undamaged record; `end` if there is none.
        """
        data = self._bytes(offset, self.size_bytes)
        begin = find(data, 1)
        if begin < 0:
            return self.end
        after = max(number + 1, self.end - sum(good + lost for good, lost in _runs(data, begin)))
        self._resumed.append((after, offset + begin))
        return after

    def sync(self) -> None:
        """Flush written records to the disk.

        Raises:
            OSError: The disk fails.
        """
        os.fdatasync(self._file)

    def duplicate(self) -> int:
        """Return a second file descriptor, for syncing while others write; the caller closes it."""
        return os.dup(self._file)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        """Write all bytes, or none."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self.size_bytes + written)
        except OSError:
            os.truncate(self._file, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def _noted(self, record: SpooledMessage) -> None:
        self.oldest_ns = self.oldest_ns or record.time_ns
        self.newest_ns = record.time_ns
        self.count += 1

    def _cut_out_damage(self, length: int) -> None:
        """Close the holes between undamaged records, and truncate the file after the last one."""
        data = self._bytes(self.size_bytes, length)
        kept = bytearray()
        offset = 0
        while offset < len(data):
            begin = find(data, offset)
            self.cut += _lengths(data, offset, begin if begin >= 0 else len(data))
            if begin < 0:
                break
            if begin > offset and self.damaged_at is None:
                self.damaged_at = self.end
            offset = begin + HEAD_BYTES + body_length(data[begin : begin + HEAD_BYTES])
            record = unpack(data[begin:offset])
            if record is not None:
                self._noted(record)
                kept += data[begin:offset]
        self._write(bytes(kept))
        os.truncate(self._file, self.size_bytes)

    def _bytes(self, begin: int, end: int) -> bytes:
        """Read a part of the file."""
        parts = bytearray()
        while len(parts) < end - begin and (part := os.pread(self._file, end - begin - len(parts), begin + len(parts))):
            parts += part
        return bytes(parts)


def _runs(data: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield undamaged records and, judged by their lengths, damaged ones, from an undamaged one to the end."""
    while offset < len(data):
        begin = find(data, offset)
        if begin < 0:
            yield 0, _lengths(data, offset, len(data))
            return
        yield 1, _lengths(data, offset, begin)
        offset = begin + HEAD_BYTES + body_length(data[begin : begin + HEAD_BYTES])


def _lengths(data: bytes, offset: int, end: int) -> int:
    """Return the number of damaged records between two offsets, judged by their lengths; at least one unless empty.

    A record has its length twice, so one damaged byte leaves one that leads to the end.
    """
    records = 0
    while offset < end:
        records += 1
        after = [offset + HEAD_BYTES + length for length in possible_lengths(data, offset)]
        if not after or end in after:
            break
        offset = after[0]
    return records


def _sync_directory(directory: Path) -> None:
    """Sync the directory, so that a new file survives a power failure."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
