"""A recording in columns: readers in `formats/` make it with a `TraceBuilder`, and `TraceSource` replays it."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kernelcast.exporter.replay.calls import LaunchCause
from kernelcast.exporter.replay.plausibility import Outliers, precision, shorten, without_outliers
from kernelcast.wire.kernels import variant

IntArray = npt.NDArray[np.int64]

H2D: Final = "h2d"
D2H: Final = "d2h"
D2D: Final = "d2d"
P2P: Final = "p2p"
H2H: Final = "h2h"
UNKNOWN: Final = "unknown"
PINNED: Final = "true"
PAGEABLE: Final = "false"

MAX_DURATION_NS: Final = 2**47
"""39 hours: anything longer is not a duration but a clock that was read wrongly; sums of shorter ones fit 64 bits."""
MAX_WHOLE: Final = 2**47
"""Largest plausible number of bytes, registers or devices; a greater one in a recording is ignored."""
MIN_READ_RATIO: Final = 0.99
"""Share of a recording that must be read for its replay to end with exit code 0."""

NO_CAUSE: Final = LaunchCause()

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """The launch configuration of a kernel; empty text and 0 where the recording has none.

    Attributes:
        grid: Blocks, as `64x1x1`.
        block: Threads, as `128x1x1`.
        registers: Per thread.
        shared_memory_bytes: Per block, static and dynamic together.
        local_memory_bytes: Per thread.
        occupancy: As the recording estimates it, 0 to 1.
    """

    grid: str = ""
    block: str = ""
    registers: int = 0
    shared_memory_bytes: int = 0
    local_memory_bytes: int = 0
    occupancy: float = 0.0

    @property
    def variant(self) -> str:
        """The name of the configuration among those of one kernel; empty where nothing is known."""
        return self.variant_in("")

    def variant_in(self, region: str) -> str:
        """The same for launches within a region of the program."""
        return variant(self.grid, self.block, shared_memory_bytes=self.shared_memory_bytes, region=region)


@dataclass(frozen=True, slots=True)
class TraceDevice:
    """A GPU that the recording speaks of.

    Attributes:
        index: Its number: the recording's, or the next free one where several processes use one number.
        model_name: Its product name; empty where unknown.
        process: The process that recorded it, in a recording of several; empty else.
    """

    index: int
    model_name: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class EventSpans:
    """Times and devices of events: three columns of one length n, ordered by end.

    Attributes:
        start_ns: Shape (n,), Unix nanoseconds, or nanoseconds since some origin of the recording.
        duration_ns: Shape (n,), 0 or more.
        device: Shape (n,), positions in `Trace.devices`.
    """

    start_ns: IntArray
    duration_ns: IntArray
    device: IntArray

    @property
    def end_ns(self) -> IntArray:
        """Shape (n,), ascending."""
        return self.start_ns + self.duration_ns

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchColumns:
    """Kernel launches: columns of one length n.

    Attributes:
        spans: When and where.
        name: Shape (n,), positions in `Trace.names`.
        configuration: Shape (n,), positions in `Trace.configurations`.
        stream: Shape (n,), the runtime's stream number.
        queue_delay_ns: Shape (n,), from the call to the start on the GPU; -1 where unknown.
        graph: Shape (n,), 1 where a CUDA graph brought it.
        region: Shape (n,), positions in `Trace.regions`; -1 outside of all.
    """

    spans: EventSpans
    name: IntArray
    configuration: IntArray
    stream: IntArray
    queue_delay_ns: IntArray
    graph: IntArray
    region: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Copies: columns of one length n.

    Attributes:
        spans: When and where.
        kind: Shape (n,), positions in `Trace.copy_kinds`.
        size_bytes: Shape (n,); 0 where the recording does not say.
    """

    spans: EventSpans
    kind: IntArray
    size_bytes: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Synchronisations:
    """Waits of the program's threads for the GPU: when, where, and `kind`, positions in `Trace.sync_kinds`."""

    spans: EventSpans
    kind: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Stretches of the program's threads that have a name: columns of one length n, ordered by end.

    Attributes:
        start_ns: Shape (n,), as in `EventSpans`.
        duration_ns: Shape (n,).
        name: Shape (n,), positions in `Trace.regions`.
    """

    start_ns: IntArray
    duration_ns: IntArray
    name: IntArray

    @property
    def end_ns(self) -> IntArray:
        """Shape (n,), ascending."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One recorded process.

    Attributes:
        title: The recording's own title.
        digest: Hash of the file's content, 16 hex digits.
        devices: The GPUs that did something.
        names: Kernel names as recorded.
        configurations: Launch configurations.
        copy_kinds: Pairs of kind and pinned (`true`, `false`, or empty where unknown).
        sync_kinds: Kinds of synchronisation.
        launches: Kernel launches.
        copies: Copies.
        memsets: Memory fills.
        memset_bytes: Shape (n,), what each fill wrote; 0 where the recording does not say.
        syncs: Waits.
        regions: Names of the ranges.
        ranges: The program's named ranges, with their times.
        rank: Rank in a distributed job; empty where the recording names none.
        world_size: Ranks of that job; 0 where unknown.
        unusable: Events of the GPU without a plausible time or duration, which are left out.
        read_ratio: Share of the recording's events that was read, 0 to 1; NaN where its end is missing.
        notes: What was not read, or not as recorded: sentences for people.
        categories: Kinds of events and how many of each, those of other accelerators among them; the most frequent
            first, empty where the format has none.
    """

    title: str
    digest: str
    devices: tuple[TraceDevice, ...]
    names: tuple[str, ...]
    configurations: tuple[LaunchConfiguration, ...]
    copy_kinds: tuple[tuple[str, str], ...]
    sync_kinds: tuple[str, ...]
    launches: LaunchColumns
    copies: Copies
    memsets: EventSpans
    memset_bytes: IntArray
    syncs: Synchronisations
    regions: tuple[str, ...]
    ranges: Ranges
    rank: str = ""
    world_size: int = 0
    unusable: int = 0
    categories: tuple[tuple[str, int], ...] = ()
    read_ratio: float = 1.0
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether at least `MIN_READ_RATIO` of it was read, as far as that is known."""
        return self.read_ratio >= MIN_READ_RATIO

    @property
    def start_ns(self) -> int:
        """Start of the first GPU activity; 0 in a recording without any."""
        starts = [int(spans.start_ns.min()) for spans in self._activity() if len(spans)]
        return min(starts, default=0)

    @property
    def end_ns(self) -> int:
        """End of the last GPU activity; 0 in a recording without any."""
        ends = [int(spans.end_ns[-1]) for spans in self._activity() if len(spans)]
        return max(ends, default=0)

    @property
    def has_gpu_activity(self) -> bool:
        """Whether anything at all ran on a GPU."""
        return any(len(spans) for spans in self._activity())

    def _activity(self) -> tuple[EventSpans, EventSpans, EventSpans]:
        return self.launches.spans, self.copies.spans, self.memsets


class _Positions(Generic[T]):
    """Numbers values in the order in which they come."""

    def __init__(self) -> None:
        self._positions: dict[T, int] = {}

    def __getitem__(self, value: T) -> int:
        return self._positions.setdefault(value, len(self._positions))

    @property
    def values(self) -> tuple[T, ...]:
        return tuple(self._positions)


@dataclass(frozen=True, slots=True)
class Span:
    """Time and device of one event: the device's index as recorded."""

    start_ns: int
    duration_ns: int
    device: int


@dataclass(frozen=True, slots=True)
class TraceOrigin:
    """Facts about a trace besides its events: program, host, devices."""

    title: str
    digest: str
    models: dict[int, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    rank: str = ""
    world_size: int = 0


class TraceBuilder:
    """Collects events in any order and turns them into a `Trace`."""

    def __init__(self) -> None:
        self._devices: _Positions[int] = _Positions()
        self._names: _Positions[str] = _Positions()
        self._configurations: _Positions[LaunchConfiguration] = _Positions()
        self._copy_kinds: _Positions[tuple[str, str]] = _Positions()
        self._sync_kinds: _Positions[str] = _Positions()
        self._regions: _Positions[str] = _Positions()
        self._lanes: _Positions[Hashable] = _Positions()
        self._launches: list[tuple[int, ...]] = []
        self._copies: list[tuple[int, ...]] = []
        self._memsets: list[tuple[int, ...]] = []
        self._syncs: list[tuple[int, ...]] = []
        self._ranges: list[tuple[int, ...]] = []
        self._unusable = 0

    def launch(
        self,
        span: Span,
        name: str,
        configuration: LaunchConfiguration,
        stream: int,
        cause: LaunchCause = NO_CAUSE,
        *,
        context: Hashable = None,
    ) -> None:
        """A kernel ran; `context` tells streams of one number on one GPU apart."""
        row = (*self._place(span), self._names[name], self._configurations[configuration], stream)
        region = self._regions[cause.region] if cause.region else -1
        lane = self._lanes[span.device, context, stream]
        graph_call_ns = cause.call_ns if cause.graph else -1
        self._launches.append((*row, cause.queue_delay_ns, int(cause.graph), region, lane, graph_call_ns))

    def copy(self, span: Span, kind: str, pinned: str, size_bytes: int) -> None:
        """Memory was copied; `kind` and `pinned` as in `kernelcast.wire.frames.Counters`."""
        self._copies.append((*self._place(span), self._copy_kinds[kind, pinned], size_bytes))

    def memset(self, span: Span, size_bytes: int = 0) -> None:
        """Memory was filled."""
        self._memsets.append((*self._place(span), size_bytes))

    def sync(self, span: Span, kind: str) -> None:
        """A thread waited for the GPU."""
        self._syncs.append((*self._place(span), self._sync_kinds[kind]))

    def range(self, start_ns: int, duration_ns: int, name: str) -> None:
        """Add a range that a thread of the program named."""
        self._ranges.append((start_ns, duration_ns, self._regions[name]))

    def unusable(self) -> None:
        """An event of the GPU had no time or no duration."""
        self._unusable += 1

    def trace(self, origin: TraceOrigin, *, plausible: bool = False) -> Trace:
        """Everything so far, each kind of event ordered by its end.

        Args:
            origin: The recording's other facts.
            plausible: Leave out events far from all others, and cut kernels that swallow later ones of their stream.
        """
        tables = [_table(self._launches, 11), _table(self._copies, 5), _table(self._memsets, 4), _table(self._syncs, 4)]
        outliers = Outliers()
        notes: tuple[str, ...] = ()
        if plausible:
            tables, outliers = without_outliers(tables)
            notes = (*outliers.notes, *shorten(tables[0]), *precision(tables[0][0]))
        launches, copies, memsets, syncs = map(_by_end, tables)
        ranges = _by_end(_table(self._ranges, 3))
        used = np.unique(np.concatenate([table[2] for table in tables])).tolist()
        numbers = self._devices.values
        place = np.zeros(len(numbers), dtype=np.int64)
        place[used] = np.arange(len(used))
        for table in (launches, copies, memsets, syncs):
            table[2] = place[table[2]]
        kept = sum(table.shape[1] for table in tables)
        unusable = self._unusable + outliers.events
        return Trace(
            title=origin.title,
            digest=origin.digest,
            devices=tuple(
                TraceDevice(index, origin.models.get(index, ""), origin.processes.get(index, ""))
                for index in (numbers[position] for position in used)
            ),
            names=self._names.values,
            configurations=self._configurations.values,
            copy_kinds=self._copy_kinds.values,
            sync_kinds=self._sync_kinds.values,
            launches=LaunchColumns(_spans(launches), *launches[3:9]),
            copies=Copies(_spans(copies), copies[3], copies[4]),
            memsets=_spans(memsets),
            memset_bytes=memsets[3],
            syncs=Synchronisations(_spans(syncs), syncs[3]),
            regions=self._regions.values,
            ranges=Ranges(*ranges),
            rank=origin.rank,
            world_size=origin.world_size,
            unusable=unusable,
            read_ratio=kept / (kept + unusable) if kept + unusable else 1.0,
            notes=notes,
        )

    def _place(self, span: Span) -> tuple[int, int, int]:
        return span.start_ns, span.duration_ns, self._devices[span.device]


def _table(rows: Iterable[tuple[int, ...]], width: int) -> IntArray:
    """Rows of start, duration, device, … as columns of shape (width, n)."""
    return np.array(list(rows), dtype=np.int64).reshape(-1, width).T.copy()


def _by_end(table: IntArray) -> IntArray:
    return np.ascontiguousarray(table[:, np.argsort(table[0] + table[1], kind="stable")])


def _spans(columns: IntArray) -> EventSpans:
    return EventSpans(columns[0], columns[1], columns[2])
