"""Files in which programs have left their totals while there was no exporter; see `wire.frames.left`.

Programs of all users create files in the directory, so nothing in it is trusted: names, types, links and sizes are
checked, nothing is followed, and no call waits. A file is removed once the state on disk includes its totals. Totals
are cumulative, so a file that is read again, as after a crash, adds nothing.
"""

import contextlib
import os
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from kernelcast.exporter.programs.counts import USED, ProbeCounts
from kernelcast.exporter.programs.refusal_log import RefusalLog
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.frames.left import LEFT_NAME, MAX_LEFT_BYTES, UNFINISHED, left_directory

MODE: Final = 0o1733
"""Programs of any user create files; only the exporter lists them, and only a file's owner and it remove one."""
MAX_ALL_BYTES: Final = 64 * 2**20
"""Limit of all files together."""
MAX_FILES: Final = 4096
"""Files of one scan; the next one finds the others."""
SCAN_SECONDS: Final = 5.0
"""Interval between two scans."""
UNFINISHED_SECONDS: Final = 60.0
"""Age at which a file that is still being written belongs to a program that was killed."""
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file as a scan found it.

    Attributes:
        name: The nonce of its process.
        uid: Its owner.
        size_bytes: Its size.
        version: Inode and time of its last change; a program replaces its file, and the version changes.
    """

    name: str
    uid: int
    size_bytes: int
    version: tuple[int, int]

    @classmethod
    def of(cls, name: str, found: os.stat_result) -> "LeftFile":
        """Make one from `stat`."""
        return cls(name, found.st_uid, found.st_size, (found.st_ino, found.st_mtime_ns))


class LeftReports:
    """The directory of left reports. The probe server's thread uses it; `mark` and `release` are called under its lock.

    Args:
        socket_path: The probe's socket.
        allowed_uids: Users who may report; None for every user of the node.
        counts: Self metrics.
        refusals: Log of refused files.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        socket_path: Path,
        allowed_uids: Collection[int] | None,
        counts: ProbeCounts,
        refusals: RefusalLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(left_directory(str(socket_path)))
        self._allowed_uids = allowed_uids
        self._counts = counts
        self._refusals = refusals
        self._clock = clock
        self._directory: int | None = None
        self._next_scan = clock()
        self._waiting: deque[LeftFile] = deque()
        self._immovable: set[str] = set()
        self._read: dict[str, LeftFile | int] = {}
        """Files whose totals the next poll includes; of a process that has said `Bye`, its user alone is known."""
        self._polled: dict[str, LeftFile | int] = {}

    def open(self) -> None:
        """Make the directory, or use that of the last run; without one, programs leave nothing."""
        try:
            with contextlib.suppress(FileExistsError):
                self._path.mkdir(MODE)
            directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(directory).st_uid != os.geteuid():
                    raise PermissionError(f"{self._path} belongs to another user; remove it")
                os.fchmod(directory, MODE)
            except OSError:
                os.close(directory)
                raise
        except OSError as error:
            _log.warning("programs cannot leave reports while the exporter is away", reason=str(error))
            return
        self._directory = directory

    def close(self) -> None:
        """Close the directory, and leave it for programs; safe to call twice."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def wait_seconds(self) -> float | None:
        """Return the seconds until `next` may have a file; None without a directory."""
        if self._directory is None:
            return None
        return 0.0 if self._waiting else max(0.0, self._next_scan - self._clock())

    def next(self) -> LeftFile | None:
        """Return the next file to read; None if there is none for now."""
        if not self._waiting and self.wait_seconds() == 0.0 and self._directory is not None:
            self._next_scan = self._clock() + SCAN_SECONDS
            try:
                self._scan(self._directory)
            except OSError as error:
                self._counts.errors.inc()
                _log.warning("left reports cannot be listed", path=str(self._path), reason=str(error))
        return self._waiting.popleft() if self._waiting else None

    def content(self, file: LeftFile) -> bytes | None:
        """Return the content of a file; None if it has gone or is refused."""
        try:
            number = os.open(file.name, _FLAGS, dir_fd=self._directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.refuse(file, "file", str(error))
            return None
        try:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                self.refuse(file, "file", f"it is no regular file, or has {found.st_nlink} links")
                return None
            with open(number, "rb", closefd=False) as opened:
                content = opened.read(MAX_LEFT_BYTES + 1)
        finally:
            os.close(number)
        if LeftFile.of(file.name, found) != file or len(content) > MAX_LEFT_BYTES:
            return None  # the next scan finds it as it is now
        return content

    def used(self, file: LeftFile) -> None:
        """Note that the next poll includes the totals of a file."""
        self._counts.left[USED].inc()
        self._read[file.name] = file

    def ended(self, nonce: str, uid: int) -> None:
        """Note that a process of a user has said `Bye`: the next poll includes all that it may have left."""
        if self._directory is not None and LEFT_NAME.fullmatch(nonce):
            self._read[nonce] = uid

    def refuse(self, file: LeftFile, reason: str, detail: str) -> None:
        """Count, log and remove a file that cannot be used.

        Args:
            file: The file.
            reason: Value of the counter's label.
            detail: Description, for people.
        """
        self._counts.left[reason].inc()
        self._refusals.write(f"left {reason}", f"{file.name[:64]!r} in {self._path}: {detail}", uid=file.uid, pid=0)
        self._remove(file.name)

    def mark(self) -> None:
        """Note a poll: it includes everything that was read so far."""
        self._polled |= self._read
        self._read = {}

    def release(self) -> None:
        """Remove the files whose totals the last poll included, unless a program has replaced them since."""
        for name, known in self._polled.items():
            found = self._stat(name)
            if found is not None and known in (found, found.uid):
                self._remove(name)
        self._polled = {}

    def _scan(self, directory: int) -> None:
        files = list[LeftFile]()
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, MAX_FILES + len(self._immovable))]
        for name in names:
            file = self._stat(name)
            if file is not None and name not in self._immovable and self._is_usable(file):
                files.append(file)
        # In turns of users, so that none of them uses the limit up for the others.
        bytes_of = Counter[int]()
        turns = list[tuple[int, LeftFile]]()
        for file in files:
            bytes_of[file.uid] += file.size_bytes
            turns.append((bytes_of[file.uid], file))
        total_bytes = 0
        for _, file in sorted(turns, key=lambda turn: turn[0]):
            total_bytes += file.size_bytes
            if total_bytes > MAX_ALL_BYTES:
                self.refuse(file, "total", f"the limit is {MAX_ALL_BYTES} bytes together")
            else:
                self._waiting.append(file)

    def _is_usable(self, file: LeftFile) -> bool:
        """Whether a file is to be read; one that cannot be used is removed."""
        if {self._read.get(file.name), self._polled.get(file.name)} & {file, file.uid}:
            return False  # its totals are known
        stem = file.name.removesuffix(UNFINISHED)
        if not LEFT_NAME.fullmatch(stem):
            self.refuse(file, "file", "its name is not that of a process")
        elif self._allowed_uids is not None and file.uid not in self._allowed_uids:
            self.refuse(file, "user", f"user {file.uid} may not report here")
        elif file.size_bytes > MAX_LEFT_BYTES:
            self.refuse(file, "size", f"it has {file.size_bytes} bytes; the limit is {MAX_LEFT_BYTES}")
        elif stem != file.name:
            if time.time() - file.version[1] / 1e9 > UNFINISHED_SECONDS:
                self._remove(file.name)
        else:
            return True
        return False

    def _stat(self, name: str) -> LeftFile | None:
        """Return a file as it is now; None if it has gone."""
        try:
            return LeftFile.of(name, os.stat(name, dir_fd=self._directory, follow_symlinks=False))
        except OSError:
            return None

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._directory)
        except FileNotFoundError:
            pass
        except OSError:
            try:
                os.rmdir(name, dir_fd=self._directory)
            except OSError as error:  # such as a directory that is not empty: it is not read, and counted once
                if len(self._immovable) < MAX_FILES:
                    self._immovable.add(name)
                _log.warning("a left report cannot be removed", path=str(self._path), reason=str(error))
