"""Jobs of each GPU, by dcgm-exporter's convention: a scheduler's prolog writes a file, its epilog removes it.

A directory has a file for each GPU, named by its index (`0`) or, for a MIG instance, index and GPU instance (`0.3`);
each line is a job's id. Source: dcgm-exporter, internal/pkg/transformation/hpc.go.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kernelcast.runtime.logging import get_logger

MAX_FILE_BYTES: Final = 64 * 1024
MAX_JOBS: Final = 64
"""Limit for one GPU; each job is a copy of all its series."""
MAX_ID_CHARACTERS: Final = 128

_log = get_logger(__name__)

_NAME: Final = re.compile(r"\d{1,4}(?:\.\d{1,4})?")

Jobs = Mapping[str, tuple[str, ...]]
"""A file's name to the job ids in it."""


class _Seen(NamedTuple):
    """A file when it was last read: its modification time in nanoseconds, size and inode, and its job ids."""

    mark: tuple[int, int, int]
    jobs: tuple[str, ...]


class JobDirectory:
    """Reads the directory; files that have not changed are not read again.

    Args:
        path: Its path.
        on_bad: Called for each file without valid job ids; its GPU has no job, other GPUs keep theirs.
    """

    def __init__(self, path: Path, *, on_bad: Callable[[], None]) -> None:
        self._path = path
        self._on_bad = on_bad
        self._seen: dict[str, _Seen] = {}
        self.reads = 0
        """Number of files read since the start."""

    def jobs(self) -> Jobs:
        """Return the jobs of every GPU that has some.

        Raises:
            OSError: The directory cannot be read.
        """
        seen: dict[str, _Seen] = {}
        with os.scandir(self._path) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    self._read_changed(entry, seen)
        self._seen = seen
        return {name: found.jobs for name, found in seen.items() if found.jobs}

    def _read_changed(self, entry: os.DirEntry[str], seen: dict[str, _Seen]) -> None:
        try:
            status = entry.stat()
            if not stat.S_ISREG(status.st_mode):
                return
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
            before = self._seen.get(entry.name)
            seen[entry.name] = before if before and before.mark == mark else _Seen(mark, self._read(entry.path))
        except FileNotFoundError:
            return  # an epilog has deleted it
        except OSError as error:  # the jobs of other GPUs are still known
            self._on_bad()
            _log.warning("job file cannot be read; its GPU has no job", path=entry.path, reason=error.strerror)

    def _read(self, path: str) -> tuple[str, ...]:
        self.reads += 1
        with open(path, "rb") as file:  # noqa: PTH123  scandir gives a text
            raw = file.read(MAX_FILE_BYTES + 1)
        lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
        ids = tuple(dict.fromkeys(line for line in lines if line))
        longest = max(map(len, ids), default=0)
        if len(raw) <= MAX_FILE_BYTES and len(ids) <= MAX_JOBS and longest <= MAX_ID_CHARACTERS:
            return ids
        self._on_bad()
        _log.warning(
            "job file is not used; write one job id per line",
            path=path,
            ids=len(ids),
            max_ids=MAX_JOBS,
            longest_id=longest,
            longest_allowed=MAX_ID_CHARACTERS,
        )
        return ()
