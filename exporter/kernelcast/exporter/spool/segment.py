"""One file of a spool: records one after another, the number of the first in its name."""

import os
from pathlib import Path
from typing import Final, Self

from kernelcast.exporter.spool.record import HEAD_BYTES, Record, body_length, pack, unpack

MAGIC: Final = b"kcspool1"
SUFFIX: Final = ".segment"


class Segment:
    """Records with consecutive numbers; written at its end, read anywhere.

    Attributes:
        path: The file.
        first: The number of its first record.
        count: Records in it.
        size_bytes: The file's length.
        oldest_ns: When its first record was sent, Unix nanoseconds; 0 while it has none.
        newest_ns: When its last record was sent.
        cut: Records that were cut off when it was opened, because they were torn or damaged.
    """

    def __init__(self, path: Path, file: int) -> None:
        self.path, self._file = path, file
        self.first = int(path.stem)
        self.count = self.size_bytes = self.oldest_ns = self.newest_ns = self.cut = 0

    @classmethod
    def create(cls, directory: Path, first: int) -> Self:
        """A new, empty one.

        Raises:
            OSError: The disk does not take it.
        """
        path = directory / f"{first:020d}{SUFFIX}"
        segment = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        try:
            segment._write(MAGIC)
            _sync_directory(directory)
        except OSError:
            segment.remove()
            raise
        return segment

    @classmethod
    def load(cls, path: Path) -> Self:
        """One that is there; what a crash has torn, or the disk has damaged, is cut off and counted in `cut`.

        Raises:
            OSError: It cannot be read or cut.
        """
        segment = cls(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        length = os.fstat(segment._file).st_size
        segment.size_bytes = len(MAGIC)
        if os.pread(segment._file, len(MAGIC), 0) != MAGIC:
            os.truncate(segment._file, 0)
            os.pwrite(segment._file, MAGIC, 0)
            segment.cut = 1
            return segment
        while (found := segment.read(segment.size_bytes)) is not None:
            record, segment.size_bytes = found
            segment._noted(record)
        if segment.size_bytes < length:
            segment.cut = segment._plausible(length)
            os.truncate(segment._file, segment.size_bytes)
        return segment

    @property
    def end(self) -> int:
        """The number that the next record gets."""
        return self.first + self.count

    def append(self, record: Record) -> None:
        """Write a record at the end.

        Raises:
            OSError: The disk does not take it; the file is as it was.
        """
        self._write(pack(record))
        self._noted(record)

    def read(self, offset: int) -> tuple[Record, int] | None:
        """The record at an offset and the offset of the next one; None at the end, or where the bytes are damaged."""
        head = os.pread(self._file, HEAD_BYTES, offset)
        length = body_length(head)
        if length < 0:
            return None
        record = unpack(head + os.pread(self._file, length, offset + HEAD_BYTES))
        return None if record is None else (record, offset + HEAD_BYTES + length)

    def offset_of(self, number: int) -> int:
        """Where a record begins that is in it."""
        offset = len(MAGIC)
        for _ in range(number - self.first):
            offset += HEAD_BYTES + body_length(os.pread(self._file, HEAD_BYTES, offset))
        return offset

    def sync(self) -> None:
        """Have the disk take what was written.

        Raises:
            OSError: It does not.
        """
        os.fdatasync(self._file)

    def duplicate(self) -> int:
        """A second file descriptor, for syncing while others go on; the caller closes it."""
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
        """All of it or nothing."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self.size_bytes + written)
        except OSError:
            os.truncate(self._file, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def _noted(self, record: Record) -> None:
        self.oldest_ns = self.oldest_ns or record.time_ns
        self.newest_ns = record.time_ns
        self.count += 1

    def _plausible(self, length: int) -> int:
        """How many records lie behind the last good one, as far as their lengths tell; at least one."""
        records, offset = 0, self.size_bytes
        while offset < length:
            records += 1
            body = body_length(os.pread(self._file, HEAD_BYTES, offset))
            if body < 0:
                break
            offset += HEAD_BYTES + body
        return records


def _sync_directory(directory: Path) -> None:
    """Have a file that was made be there after a power cut, too."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
