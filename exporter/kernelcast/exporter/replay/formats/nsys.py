"""Nsight Systems' SQLite export (`nsys export --type sqlite`): kernels, copies, fills and waits that CUPTI recorded.

Source: Nsight Systems user guide, "SQLite Schema Reference". A table is missing if nothing of its kind was recorded,
and columns differ between versions, so each query selects only columns that the table has.
"""

import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kernelcast.exporter.replay import trace
from kernelcast.exporter.replay.calls import ApiCall, Calls, LaunchCause, Range
from kernelcast.exporter.replay.formats import content
from kernelcast.exporter.replay.formats.unread import LaunchedWork, unread
from kernelcast.exporter.replay.regions import plain_name
from kernelcast.exporter.replay.trace import LaunchConfiguration, Span, Trace, TraceBuilder, TraceOrigin
from kernelcast.wire.errors import TraceError
from kernelcast.wire.kernels import WHOLE_GRAPHS

KERNEL_TABLE: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPY_TABLE: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET_TABLE: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNC_TABLE: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
GRAPH_TABLE: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
"""Graphs as a whole: Nsight's default, `--cuda-graph-trace=graph`."""
CALL_TABLES: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
RANGE_TABLE: Final = "NVTX_EVENTS"
_READ: Final = {KERNEL_TABLE, COPY_TABLE, MEMSET_TABLE, SYNC_TABLE, GRAPH_TABLE, RANGE_TABLE, *CALL_TABLES}
_WORK_TABLES: Final = (KERNEL_TABLE, GRAPH_TABLE, COPY_TABLE, MEMSET_TABLE, SYNC_TABLE)
_VERSION: Final = re.compile(r"(.+)_V([0-9]+)")
"""A table of a later version of the schema: `NVTX_EVENTS_V2`."""
_NO_EVENTS: Final = ("ENUM_", "TARGET_INFO_", "META_DATA_", "ANALYSIS_")
_PUSH_POP: Final = 59
"""`NvtxPushPopRange`, in ENUM_NSYS_EVENT_TYPE."""
_START_END: Final = 60
"""Such a range may cross threads, so no launch is within one."""
_MARK_TABLES: Final = ("META_DATA_EXPORT", "StringIds", "TARGET_INFO_SESSION_START_TIME", KERNEL_TABLE)
_SQLITE_MAGIC: Final = b"SQLite format 3\x00"

# nsys's ENUM_CUDA_MEMCPY_OPER (11 to 13: unified memory), CUpti_ActivitySynchronizationType, ENUM_CUDA_MEM_KIND
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
    11: trace.H2D,
    12: trace.D2H,
    13: trace.D2D,
}
_SYNC_KINDS: Final = {1: "event", 2: "stream_wait", 3: "stream", 4: "context"}
_SYNC_CALLS: Final = {
    "DeviceSynchronize": "context",
    "CtxSynchronize": "context",
    "StreamSynchronize": "stream",
    "EventSynchronize": "event",
    "StreamWaitEvent": "stream_wait",
}
"""Parts of the names of calls that wait, of the runtime and of the driver."""
_MEMORY_KINDS: Final = {0: trace.PAGEABLE, 1: trace.PINNED}
_HOST_SIDE: Final = {trace.H2D: "srcKind", trace.D2H: "dstKind", trace.H2H: "srcKind"}

_PID_MASK: Final = 2**24 - 1
_NO_PROCESS: Final = -1
"""The process where an export names none."""

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
            database.execute("PRAGMA writable_schema = ON")  # or SQLite reads nothing of a file that is cut
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
    read = reader.recorder.trace(
        TraceOrigin(title=path.name, digest=content.digest(path), models=reader.gpus.models, rank="", world_size=0),
        plausible=True,
    )
    if reader.damaged and not read.has_gpu_activity:
        raise sqlite3.DatabaseError(reader.damaged[0])
    return replace(
        read,
        read_ratio=float("nan") if reader.damaged else read.read_ratio,
        categories=reader.counts(),
        notes=(*reader.damaged, *reader.gpus.notes, *read.notes, *reader.missing(), *reader.unread()),
    )


class _NsysGpus:
    """Numbers the GPUs of an export: each process has its own numbers, which the export maps to the machine's.

    Attributes:
        models: Product names, by number.
        notes: A sentence where numbers of several processes are not mapped.
    """

    def __init__(self, rows: Callable[[str, tuple[str, ...]], Iterator[Row]]) -> None:
        self._mapped: dict[tuple[int, int], int] = {}
        self._processes: dict[int, set[int]] = {}
        by_id: dict[int, str] = {}
        by_cuda: dict[int, str] = {}
        ids: dict[str, int] = {}
        for row in rows("TARGET_INFO_GPU", ("id", "cuDevice", "name", "uuid")):
            own, number = _number(row.get("id")), _number(row.get("cuDevice"))
            name = str(row.get("name") or "")
            if own is not None:
                by_id[own] = name
                ids[str(row.get("uuid"))] = own
            number = own if number is None else number
            if number is not None:
                by_cuda[number] = name if by_cuda.get(number, name) == name else ""
        for row in rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid", "uuid")):
            process, recorded, own = (_number(row.get(column)) for column in ("pid", "cudaId", "gpuId"))
            own = ids.get(str(row.get("uuid"))) if own is None else own
            if process is not None and recorded is not None and own is not None and own in by_id:
                self._mapped[process, recorded] = own
        self.models = by_id if self._mapped else by_cuda
        self._several = len(by_id) > 1

    def index(self, row: Row) -> int:
        """The number of the GPU that a row is of."""
        recorded = _whole(row.get("deviceId"))
        process = _process(_number(row.get("globalPid"))) & _PID_MASK
        number = self._mapped.get((process, recorded))
        if number is None:
            number = recorded
            self._processes.setdefault(recorded, set()).add(process)
        return number

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known about the numbers."""
        if not self._several:
            return ()
        return tuple(
            f"{len(processes)} processes call a GPU {number}, and the export does not say which GPUs these are: "
            "they are taken as one"
            for number, processes in sorted(self._processes.items())
            if len(processes) > 1
        )


class _NsysReader:
    """Passes the rows of the tables to a `TraceBuilder`; a missing table has no rows."""

    def __init__(self, database: sqlite3.Connection, tables: set[str]) -> None:
        self._database = database
        self._tables = tables
        self._named = _newest(tables)
        self.recorder = TraceBuilder()
        self.damaged: list[str] = []
        self._waits: dict[Hashable, str] = {}
        self._launched = LaunchedWork()
        self._unread_ranges: Counter[str] = Counter()
        self._origin_ns = self._session_start_ns()
        self.gpus = _NsysGpus(self.rows)
        self._strings = {row.get("id"): str(row.get("value") or "") for row in self.rows("StringIds", ("id", "value"))}

    def kernels(self) -> None:
        """Kernel launches, by demangled name."""
        ranges = list(self._ranges())
        for one in ranges:
            self.recorder.range(one.start_ns, one.end_ns - one.start_ns, one.name)
        calls = Calls(self._calls(), ranges)
        columns = ("demangledName", "shortName", "mangledName", "streamId", "registersPerThread")
        shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory")
        more = ("localMemoryPerThread", "correlationId", "graphNodeId", "contextId")
        by_node = set()
        for row, span in self._spans(KERNEL_TABLE, (*columns, *shape, *more)):
            names = (self._strings.get(row.get(column)) for column in columns[:3])
            name = next((name for name in names if name), trace.UNKNOWN)
            node = bool(_whole(row.get("graphNodeId")))
            correlation = _correlation(row)
            if node:
                by_node.add(correlation)
            self._launch(row, span, name, _configuration(row), calls.cause(correlation, span.start_ns, graph=node))
        for row, span in self._spans(GRAPH_TABLE, ("streamId", "correlationId", "contextId")):
            correlation = _correlation(row)
            if correlation not in by_node:
                cause = calls.cause(correlation, span.start_ns, graph=True)
                self._launch(row, span, WHOLE_GRAPHS, LaunchConfiguration(), cause)

    def _launch(self, row: Row, span: Span, name: str, configuration: LaunchConfiguration, cause: LaunchCause) -> None:
        context = (row.get("globalPid"), row.get("contextId"))
        self.recorder.launch(span, name, configuration, _whole(row.get("streamId")), cause, context=context)

    def copies(self) -> None:
        """Copies, pinned or pageable by the kind of memory on the host's side."""
        for row, span in self._spans(COPY_TABLE, ("copyKind", "bytes", "srcKind", "dstKind", "correlationId")):
            kind = _COPY_KINDS.get(_whole(row.get("copyKind")), trace.UNKNOWN)
            pinned = _MEMORY_KINDS.get(_whole(row.get(_HOST_SIDE.get(kind, "")), -1), "")
            self.recorder.copy(span, kind, pinned, _whole(row.get("bytes")))

    def memsets(self) -> None:
        """Fills."""
        for row, span in self._spans(MEMSET_TABLE, ("bytes", "correlationId")):
            self.recorder.memset(span, _whole(row.get("bytes")))

    def syncs(self) -> None:
        """Waits, by the call that waited; by their number only where no call was recorded.

        The number disagrees with the export's own ENUM_CUPTI_SYNC_TYPE: two public exports (2021, 2025) give 1 to
        `cudaDeviceSynchronize` and 2 to `cudaStreamSynchronize`.
        """
        for row, span in self._spans(SYNC_TABLE, ("syncType", "correlationId")):
            kind = self._waits.get(_correlation(row)) or _SYNC_KINDS.get(_whole(row.get("syncType")), trace.UNKNOWN)
            self.recorder.sync(span, kind)

    def _calls(self) -> dict[Hashable, ApiCall]:
        """Calls of the runtime, else the driver, by process and correlation id.

        Work of an export without processes is that of the only process with calls.
        """
        calls: dict[Hashable, ApiCall] = {}
        names_process = any("globalPid" in self._columns(self._named.get(table, "")) for table in _WORK_TABLES)
        processes = set()
        for table in CALL_TABLES:
            for row in self.rows(table, ("start", "globalTid", "correlationId", "nameId")):
                start, thread = _number(row.get("start")), _number(row.get("globalTid"))
                correlation = _number(row.get("correlationId"))
                if start is not None and thread is not None and correlation:
                    name = self._strings.get(row.get("nameId"), "")
                    call = ApiCall(thread, self._origin_ns + start, "GraphLaunch" in name)
                    processes.add(_process(thread))
                    identity = _process(thread) if names_process else _NO_PROCESS, correlation
                    calls.setdefault(identity, call)
                    self._launched.add_call(name, identity)
                    for part, kind in _SYNC_CALLS.items():
                        if part in name:
                            self._waits[identity] = kind
        if len(processes) > 1 and not names_process:
            self._waits.clear()
            return {}
        return calls

    def _ranges(self) -> Iterator[Range]:
        """NVTX ranges that were pushed and popped."""
        for row in self.rows(RANGE_TABLE, ("start", "end", "eventType", "text", "textId", "globalTid")):
            start, end, thread = (_number(row.get(column)) for column in ("start", "end", "globalTid"))
            kind = _number(row.get("eventType"))
            if kind == _START_END:
                self._unread_ranges["they were started and ended, not pushed and popped"] += 1
            elif kind == _PUSH_POP and end is None:
                self._unread_ranges["they were open when the recording stopped"] += 1
            if kind != _PUSH_POP or start is None or end is None:
                continue
            if thread is not None and 0 <= end - start <= trace.MAX_DURATION_NS and abs(start) <= 2**61:
                name = plain_name(str(row.get("text") or self._strings.get(row.get("textId")) or ""))
                yield Range(thread, self._origin_ns + start, self._origin_ns + end, name)

    def missing(self) -> tuple[str, ...]:
        """A sentence about launched work that the export lacks."""
        return self._launched.lacking(is_cut=bool(self.damaged))

    def counts(self) -> tuple[tuple[str, int], ...]:
        """Tables of timed events, and how many each has, the largest first."""
        counts = ((table, number) for table, (number, _) in self._timed_events().items() if number)
        return tuple(sorted(counts, key=lambda count: -count[1]))

    def unread(self) -> tuple[str, ...]:
        """Sentences about the tables of timed events that are not read, and about ranges that are not."""
        read = {self._named[table] for table in _READ if table in self._named}
        left_out: dict[str, tuple[int, float]] = {}
        read_ns = 0.0
        for table, (number, length_ns) in self._timed_events().items():
            if table in read:
                read_ns += length_ns
            elif number:
                left_out[table] = (number, length_ns)
        ranges = (f"{number} NVTX ranges are not read: {reason}" for reason, number in self._unread_ranges.items())
        return (*unread("tables", left_out, read_ns), *ranges)

    def _timed_events(self) -> dict[str, tuple[int, float]]:
        """By table of timed events, their number and their summed time in nanoseconds."""
        events: dict[str, tuple[int, float]] = {}
        for table in sorted(self._tables):
            if table.startswith(_NO_EVENTS) or not {"start", "end"} <= self._columns(table):
                continue
            query = f'SELECT count(*), total("end" - start) FROM "{table}" WHERE "end" >= start'  # noqa: S608 - of the file
            with suppress(sqlite3.Error):
                events[table] = self._database.execute(query).fetchone()
        return events

    def _columns(self, table: str) -> set[str]:
        quoted = table.replace('"', '""')
        return {row[1] for row in self._database.execute(f'PRAGMA table_info("{quoted}")')}

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        """The rows of a table, with those of the columns that it has; none where there is no such table.

        Of a damaged table it yields the rows before the damage.
        """
        if table not in self._named:
            return
        source = self._named[table]
        present = self._columns(source)
        wanted = [column for column in columns if column in present]
        if not wanted:
            return
        listed = ", ".join(f'"{column}"' for column in wanted)
        number = 0
        try:
            for values in self._database.execute(f'SELECT {listed} FROM "{source}"'):  # noqa: S608 - our own constants
                number += 1
                yield dict(zip(wanted, values, strict=True))
        except sqlite3.DatabaseError as error:
            self.damaged.append(f"{source} is damaged after {number} rows: {error}; what follows is missing")

    def _spans(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Row, Span]]:
        for row in self.rows(table, ("start", "end", "deviceId", "globalPid", *columns)):
            if table != SYNC_TABLE:
                correlation = _correlation(row)
                self._launched.add_work(None if correlation[1] is None else correlation)
            span = self._span(row)
            if span is None:
                self.recorder.unusable()
            else:
                yield row, span

    def _span(self, row: Row) -> Span | None:
        start, end = _number(row.get("start")), _number(row.get("end"))
        if start is None or end is None or abs(start) > 2**61 or not 0 <= end - start <= trace.MAX_DURATION_NS:
            return None
        if start == end == 0:  # CUPTI's word for times that it could not collect
            return None
        return Span(self._origin_ns + start, end - start, self.gpus.index(row))

    def _session_start_ns(self) -> int:
        """Times in the export count from here."""
        for row in self.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
            start_ns = _number(row.get("utcEpochNs"))
            if start_ns is not None and 0 <= start_ns < 2**61:
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


def _correlation(row: Row) -> tuple[int, int | None]:
    return _process(_number(row.get("globalPid"))), _number(row.get("correlationId")) or None


def _process(number: int | None) -> int:
    """The process in a serialised global thread or process id: its low 24 bits name the thread."""
    return _NO_PROCESS if number is None else number >> 24


def _newest(tables: set[str]) -> dict[str, str]:
    """The table for each name: that of this name, else the one of the highest version."""
    newest: dict[str, tuple[int, str]] = {}
    for table in tables:
        match = _VERSION.fullmatch(table)
        name, version = (match[1], int(match[2])) if match else (table, sys.maxsize)
        newest[name] = max(newest.get(name, (0, "")), (version, table))
    return {name: table for name, (_, table) in newest.items()}


def _number(value: Any) -> int | None:
    """A whole number: SQLite does not hold a column to its type, and tools that copy an export write text or floats."""
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if abs(value) < 2**62 and value == int(value) else None
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return None


def _whole(value: Any, absent: int = 0) -> int:
    """A whole number that fits a column."""
    number = _number(value)
    return number if number is not None and 0 <= number <= trace.MAX_WHOLE else absent
