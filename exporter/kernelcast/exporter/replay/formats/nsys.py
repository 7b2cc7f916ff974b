"""Nsight Systems' SQLite export (`nsys export --type sqlite`): kernels, copies, fills and waits that CUPTI recorded.

Source: Nsight Systems user guide, "SQLite Schema Reference". A table is missing if nothing of its kind was recorded,
and columns differ between versions, so each query selects only columns that the table has.
"""

import sqlite3
from collections.abc import Hashable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kernelcast.exporter.replay import trace
from kernelcast.exporter.replay.calls import ApiCall, Calls, Range
from kernelcast.exporter.replay.formats import content
from kernelcast.exporter.replay.regions import plain_name
from kernelcast.exporter.replay.trace import LaunchConfiguration, Span, Trace, TraceBuilder, TraceOrigin
from kernelcast.wire.errors import TraceError

KERNEL_TABLE: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPY_TABLE: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET_TABLE: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNC_TABLE: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CALL_TABLE: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGE_TABLE: Final = "NVTX_EVENTS"
_PUSH_POP: Final = 59
"""`NvtxPushPopRange`, in ENUM_NSYS_EVENT_TYPE; start/end ranges (60) may cross threads, so no launch is within one."""
_MARK_TABLES: Final = ("META_DATA_EXPORT", "StringIds", "TARGET_INFO_SESSION_START_TIME", KERNEL_TABLE)
_SQLITE_MAGIC: Final = b"SQLite format 3\x00"

# CUpti_ActivityMemcpyKind, CUpti_ActivitySynchronizationType, and nsys's ENUM_CUDA_MEM_KIND
_COPY_KINDS: Final = {
    1: trace.H2D,
    2: trace.D2H,
    3: trace.H2D,
    4: trace.D2H,
    5: trace.D2D,
    6: trace.D2D,
    7: trace.D2D,
    8: trace.D2D,
    9: trace.H2H,
    10: trace.P2P,
}
_SYNC_KINDS: Final = {1: "event", 2: "stream_wait", 3: "stream", 4: "context"}
_MEMORY_KINDS: Final = {0: trace.PAGEABLE, 1: trace.PINNED}
_HOST_SIDE: Final = {trace.H2D: "srcKind", trace.D2H: "dstKind", trace.H2H: "srcKind"}

Row = dict[str, Any]


def read(path: Path) -> Trace:
    """Read an export; one without GPU activity is a trace.

    Args:
        path: The SQLite file.

    Raises:
        TraceError: The file cannot be read, is damaged, or is not an export of Nsight Systems.
    """
    _check_magic(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda text: text.decode(errors="replace")
            return _read(path, database)
    except sqlite3.Error as error:
        raise TraceError(f"{path} is a damaged SQLite file: {error}; export it again with nsys export") from error


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise content.unreadable(path, error) from error
    if head != _SQLITE_MAGIC:
        raise TraceError(
            f"{path} is not a SQLite file; it starts with {head!r}; make one with nsys export --type sqlite"
        )


def _read(path: Path, database: sqlite3.Connection) -> Trace:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if not tables.intersection(_MARK_TABLES):
        raise TraceError(
            f"{path} is SQLite but no export of Nsight Systems: none of {', '.join(_MARK_TABLES)} is in it; "
            "make one with nsys export --type sqlite"
        )
    reader = _NsysReader(database, tables)
    reader.kernels()
    reader.copies()
    reader.memsets()
    reader.syncs()
    return reader.recorder.trace(
        TraceOrigin(title=path.name, digest=content.digest(path), models=_models(reader), rank="", world_size=0)
    )


class _NsysReader:
    """Passes the rows of the tables to a `TraceBuilder`; a missing table has no rows."""

    def __init__(self, database: sqlite3.Connection, tables: set[str]) -> None:
        self._database = database
        self._tables = tables
        self.recorder = TraceBuilder()
        self._origin_ns = self._session_start_ns()
        self._strings = {row.get("id"): str(row.get("value") or "") for row in self.rows("StringIds", ("id", "value"))}

    def kernels(self) -> None:
        """Kernel launches, by demangled name."""
        ranges = list(self._ranges())
        for one in ranges:
            self.recorder.range(one.start_ns, one.end_ns - one.start_ns, one.name)
        calls = Calls(self._calls(), ranges)
        columns = ("demangledName", "shortName", "mangledName", "streamId", "registersPerThread", "globalPid")
        shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory")
        more = ("localMemoryPerThread", "correlationId", "graphNodeId")
        for row, span in self._spans(KERNEL_TABLE, (*columns, *shape, *more)):
            names = (self._strings.get(row.get(column)) for column in columns[:3])
            name = next((name for name in names if name), trace.UNKNOWN)
            correlation = (_process(row.get("globalPid")), row.get("correlationId"))
            cause = calls.cause(correlation, span.start_ns, graph=bool(_whole(row.get("graphNodeId"))))
            self.recorder.launch(span, name, _configuration(row), _whole(row.get("streamId")), cause)

    def copies(self) -> None:
        """Copies, pinned or pageable by the kind of memory on the host's side."""
        for row, span in self._spans(COPY_TABLE, ("copyKind", "bytes", "srcKind", "dstKind")):
            kind = _COPY_KINDS.get(_whole(row.get("copyKind")), trace.UNKNOWN)
            pinned = _MEMORY_KINDS.get(_whole(row.get(_HOST_SIDE.get(kind, "")), -1), "")
            self.recorder.copy(span, kind, pinned, _whole(row.get("bytes")))

    def memsets(self) -> None:
        """Fills."""
        for row, span in self._spans(MEMSET_TABLE, ("bytes",)):
            self.recorder.memset(span, _whole(row.get("bytes")))

    def syncs(self) -> None:
        """Waits."""
        for row, span in self._spans(SYNC_TABLE, ("syncType",)):
            self.recorder.sync(span, _SYNC_KINDS.get(_whole(row.get("syncType")), trace.UNKNOWN))

    def _calls(self) -> dict[Hashable, ApiCall]:
        """Calls of the runtime, by process and correlation id."""
        calls: dict[Hashable, ApiCall] = {}
        for row in self.rows(CALL_TABLE, ("start", "globalTid", "correlationId", "nameId")):
            start, thread, correlation = row.get("start"), row.get("globalTid"), row.get("correlationId")
            if isinstance(start, int) and isinstance(thread, int) and isinstance(correlation, int):
                graph = "GraphLaunch" in self._strings.get(row.get("nameId"), "")
                calls[_process(thread), correlation] = ApiCall(thread, self._origin_ns + start, graph)
        return calls

    def _ranges(self) -> Iterator[Range]:
        """NVTX ranges that were pushed and popped."""
        for row in self.rows(RANGE_TABLE, ("start", "end", "eventType", "text", "textId", "globalTid")):
            start, end, thread = row.get("start"), row.get("end"), row.get("globalTid")
            if row.get("eventType") != _PUSH_POP or not isinstance(start, int) or not isinstance(end, int):
                continue
            if isinstance(thread, int) and 0 <= end - start <= trace.MAX_DURATION_NS and abs(start) <= 2**61:
                name = plain_name(str(row.get("text") or self._strings.get(row.get("textId")) or ""))
                yield Range(thread, self._origin_ns + start, self._origin_ns + end, name)

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        """The rows of a table, with those of the columns that it has; none where there is no such table."""
        if table not in self._tables:
            return
        present = {row[1] for row in self._database.execute(f'PRAGMA table_info("{table}")')}
        wanted = [column for column in columns if column in present]
        if not wanted:
            return
        listed = ", ".join(f'"{column}"' for column in wanted)
        for values in self._database.execute(f'SELECT {listed} FROM "{table}"'):  # noqa: S608 - our own constants
            yield dict(zip(wanted, values, strict=True))

    def _spans(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Row, Span]]:
        for row in self.rows(table, ("start", "end", "deviceId", *columns)):
            span = self._span(row)
            if span is None:
                self.recorder.unusable()
            else:
                yield row, span

    def _span(self, row: Row) -> Span | None:
        start, end = row.get("start"), row.get("end")
        if not isinstance(start, int) or not isinstance(end, int) or abs(start) > 2**61:
            return None
        if not 0 <= end - start <= trace.MAX_DURATION_NS:
            return None
        return Span(self._origin_ns + start, end - start, _whole(row.get("deviceId")))

    def _session_start_ns(self) -> int:
        """Times in the export count from here."""
        for row in self.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
            start_ns = row.get("utcEpochNs")
            if isinstance(start_ns, int) and 0 <= start_ns < 2**61:
                return start_ns
        return 0


def _configuration(row: Row) -> LaunchConfiguration:
    return LaunchConfiguration(
        grid=_dimensions(row, "grid"),
        block=_dimensions(row, "block"),
        registers=_whole(row.get("registersPerThread")),
        shared_memory_bytes=_whole(row.get("staticSharedMemory")) + _whole(row.get("dynamicSharedMemory")),
        local_memory_bytes=_whole(row.get("localMemoryPerThread")),
    )


def _dimensions(row: Row, stem: str) -> str:
    parts = [_whole(row.get(stem + axis), -1) for axis in "XYZ"]
    return "" if -1 in parts else "x".join(str(part) for part in parts)


def _process(number: Any) -> int:
    """The process in a serialised global thread or process id: its low 24 bits name the thread."""
    return number >> 24 if isinstance(number, int) else -1


def _whole(value: Any, absent: int = 0) -> int:
    """A whole number that fits a column; SQLite does not hold a column to its type."""
    return value if isinstance(value, int) and 0 <= value <= trace.MAX_WHOLE else absent


def _models(reader: _NsysReader) -> dict[int, str]:
    """Product names by CUDA's device number; nsys's own number for the GPU may differ from it."""
    models: dict[int, str] = {}
    for row in reader.rows("TARGET_INFO_GPU", ("id", "cuDevice", "name")):
        own, by_cuda = row.get("id"), row.get("cuDevice")
        number = own if by_cuda is None else by_cuda
        if isinstance(number, int):
            models[number] = str(row.get("name") or "")
    return models
