"""Reads a folder of NCCL Inspector's `.prom` files, one for each GPU; programs of any user write them.

The plugin truncates a file once an interval and appends a line at a time, without a temporary file: one that has just
been changed, has no line feed at its end or changes while it is read may be half of it. Labels are not escaped. Only
files whose name has a GPU's UUID are opened, never through a link; size, lines and every value have a limit.

Source: NVIDIA/nccl 2.30.7 (5067397c), plugins/profiler/inspector, inspector_prom.cc and README.md.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelcast.runtime.prometheus_text import LINE_FEED, samples
from kernelcast.wire.errors import DecodeError

FILE_NAME: Final = re.compile(
    r"nccl_inspector_metrics_([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.prom"
)
MAX_FILES: Final = 64
"""Of a folder; a node has 16 GPUs at most."""
MAX_FILE_BYTES: Final = 2**20
"""A communicator has about 1 KB for each operation and size."""
MAX_OPERATIONS: Final = 512
"""Series of a file and metric; what comes later is left out."""
SETTLED_SECONDS: Final = 2.0
"""A file that was changed since may be half written."""
MICROSECONDS: Final = 1e-6
GIGABYTES: Final = 1e9
_BANDWIDTHS: Final = frozenset({"nccl_bus_bandwidth_gbs", "nccl_p2p_bus_bandwidth_gbs"})
_TIMES: Final = frozenset({"nccl_collective_exec_time_microseconds", "nccl_p2p_exec_time_microseconds"})
_LARGEST: Final = dict.fromkeys(_BANDWIDTHS, 1e5) | dict.fromkeys(_TIMES, 1e11)
"""100 TB/s, and a day."""
_LABELS: Final = {
    "hpc_job": ("slurm_job_id", re.compile(r"[\w.\[\]-]{1,64}")),
    "communicator": ("comm_name", re.compile(r"[ -~]{1,128}")),
    "ranks": ("nranks", re.compile(r"[0-9]{1,7}")),
    "nodes": ("n_nodes", re.compile(r"[0-9]{1,7}")),
    "message_size": ("message_size", re.compile(r"0B|[0-9]{1,4}-[0-9]{1,4}[KMGT]?B")),
}
_OPERATION: Final = re.compile(r"[A-Za-z0-9]{1,32}")
_ALGORITHM: Final = re.compile(r"\w{1,64}", re.ASCII)
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class OperationReading:
    """One value of the operations of a communicator.

    Attributes:
        is_time: Whether it is a time in seconds; else it is a bandwidth in bytes a second.
        labels: Sorted labels of `wire.catalogue.devices.nccl` that the file has.
        value: The value.
    """

    is_time: bool
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class FileReading:
    """A whole file.

    Attributes:
        uuid: The GPU's, without the word before it.
        written_ns: When it was written, Unix nanoseconds.
        operations: Its values.
        refused: Lines that were left out.
    """

    uuid: str
    written_ns: int
    operations: tuple[OperationReading, ...]
    refused: int


class InspectorFolder:
    """The files of a folder, each as it was when it was last whole. For one thread.

    Args:
        directory: The folder.
        stale_seconds: Age from which a file is left out: its program has ended, or hangs.
    """

    def __init__(self, directory: Path, stale_seconds: float) -> None:
        self._directory = directory
        self._stale_ns = round(stale_seconds * 1e9)
        self._files: dict[str, FileReading] = {}

    def read(self, now_ns: int) -> tuple[FileReading, ...]:
        """Read what has changed; returns the files that are not stale at `now_ns`, Unix nanoseconds.

        Raises:
            OSError: The folder cannot be read.
        """
        found = dict[str, FileReading]()
        with os.scandir(self._directory) as entries:
            names = sorted(entry.name for entry in entries if FILE_NAME.fullmatch(entry.name))[:MAX_FILES]
        for name in names:
            reading = _read(self._directory / name, now_ns, self._files.get(name)) or self._files.get(name)
            if reading is not None and now_ns - reading.written_ns < self._stale_ns:
                found[name] = reading
        self._files = found
        return tuple(found.values())


def _read(path: Path, now_ns: int, before: FileReading | None) -> FileReading | None:
    """Read a file; None while it is written, where it is none of the plugin's, or is too large."""
    named = FILE_NAME.fullmatch(path.name)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(opened)
        is_settled = status.st_mtime_ns <= now_ns - round(SETTLED_SECONDS * 1e9)
        if named is None or not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES or not is_settled:
            return None
        if before is not None and before.written_ns == status.st_mtime_ns:
            return before
        content = os.read(opened, MAX_FILE_BYTES + 1)
        after = os.fstat(opened)
    except OSError:
        return None
    finally:
        os.close(opened)
    if (len(content), after.st_mtime_ns) != (status.st_size, status.st_mtime_ns) or content[-1:] not in {b"", b"\n"}:
        return None
    lines = content.decode(errors="replace").split(LINE_FEED)
    operations = [*_operations(lines[: 4 * MAX_OPERATIONS])]
    known = dict.fromkeys(one for one in operations if one is not None)
    whole = [
        *[one for one in known if one.is_time][:MAX_OPERATIONS],
        *[one for one in known if not one.is_time][:MAX_OPERATIONS],
    ]
    return FileReading(named[1], status.st_mtime_ns, tuple(whole), sum(1 for line in lines if line) - len(whole))


def _operations(lines: list[str]) -> Iterator[OperationReading | None]:
    for line in lines:
        if line:
            yield _operation(line)


def _operation(line: str) -> OperationReading | None:
    """One line; None where it is none of the plugin's, or a value is outside of its limits or unknown."""
    try:
        (sample,) = samples([line])
    except (DecodeError, ValueError):
        return None
    largest = _LARGEST.get(sample.name)
    if largest is None or not 0 < sample.value <= largest:  # 0 stands for an unknown bandwidth
        return None
    labels = {name: sample.labels.get(theirs, "") for name, (theirs, _) in _LABELS.items()}
    operation = sample.labels.get("collective") or sample.labels.get("p2p_operation", "")
    algorithm = sample.labels.get("algo_proto", _UNKNOWN)
    if not (_OPERATION.fullmatch(operation) and _ALGORITHM.fullmatch(algorithm)):
        return None
    if not all(_LABELS[name][1].fullmatch(value) for name, value in labels.items()):
        return None
    labels |= {"operation": operation, "algorithm": algorithm}
    is_time = sample.name in _TIMES
    known = tuple(sorted((name, value) for name, value in labels.items() if value != _UNKNOWN))
    return OperationReading(is_time, known, sample.value * (MICROSECONDS if is_time else GIGABYTES))
