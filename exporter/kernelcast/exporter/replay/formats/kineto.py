"""PyTorch's profiler (Kineto): Chrome trace events in JSON, from NVIDIA and AMD GPUs.

Sources: pytorch/kineto, libkineto/src/output_json.cpp (categories and arguments; `ts` and `dur` in microseconds,
relative to `baseTimeNanoseconds` where that is given); Chrome's Trace Event Format (`displayTimeUnit` only concerns
how a viewer shows times).
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from kernelcast.exporter.replay import trace
from kernelcast.exporter.replay.calls import ApiCall, Calls, Range
from kernelcast.exporter.replay.formats import chrome, content, xla
from kernelcast.exporter.replay.formats.chrome import ChromeTrace, Event, ExactFloat
from kernelcast.exporter.replay.formats.processes import CallKeys, Gpus
from kernelcast.exporter.replay.formats.unread import LaunchedWork, unread
from kernelcast.exporter.replay.formats.waits import Launched, WaitingCall, wait_kind, waits
from kernelcast.exporter.replay.regions import plain_name
from kernelcast.exporter.replay.trace import LaunchConfiguration, Span, Trace, TraceBuilder, TraceOrigin

KERNELS: Final = frozenset({"kernel"})
COPIES: Final = frozenset({"gpu_memcpy", "memcpy"})
MEMSETS: Final = frozenset({"gpu_memset", "memset"})
SYNCS: Final = frozenset({"cuda_sync", "hip_sync"})
CALLS: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "runtime"})
RANGES: Final = frozenset({"user_annotation"})
_GPU: Final = KERNELS | COPIES | MEMSETS | SYNCS

NANOSECONDS_PER_MICROSECOND: Final = 1000

_SHORT_KIND: Final = re.compile(r"\b([HDPA])to([HDPA])\b", re.IGNORECASE)
_LONG_KIND: Final = re.compile(r"Copy(Host|Device|Peer)To(Host|Device|Peer)", re.IGNORECASE)
_KINDS: Final = {
    "hd": trace.H2D,
    "dh": trace.D2H,
    "dd": trace.D2D,
    "pp": trace.P2P,
    "hh": trace.H2H,
    "ha": trace.H2D,
    "ah": trace.D2H,
    "ad": trace.D2D,
    "da": trace.D2D,
    "aa": trace.D2D,
}
_SYNC_KINDS: Final = {
    "stream sync": "stream",
    "stream synchronize": "stream",
    "event sync": "event",
    "event synchronize": "event",
    "context sync": "context",
    "context synchronize": "context",
    "stream wait event": "stream_wait",
}

EXACT_MICROSECONDS: Final = 2**42
"""50 days: the fraction of a longer time has nanoseconds that a float of microseconds does not hold."""
NO_TIME_MICROSECONDS: Final = 60e6
"""Where all other events of the GPU start later, 0 is no time but an absent one."""


def read(path: Path, *, max_bytes: int = content.MAX_TRACE_BYTES) -> Trace:
    """Read a trace, gzip or plain; a trace without GPU activity is a trace.

    Args:
        path: The file that `torch.profiler` or `export_chrome_trace` wrote.
        max_bytes: The most it may be once decompressed.

    Raises:
        TraceError: The file cannot be read, is damaged, too long, or not a Chrome trace.
    """
    text = content.read(path, max_bytes=max_bytes)
    document = chrome.read(path, text)
    events = _Events.of(document)
    if any(_is_coarse(event.get("ts")) for event in events.gpu):
        document = chrome.read(path, text, exact=True)
        events = _Events.of(document)
    if 0 <= events.unnamed - xla.MOST_EVENTS <= 1:  # an empty event may follow
        document.end = xla.AT_THE_LIMIT
    base_ns = _base_ns(document.head.get("baseTimeNanoseconds"))
    times = _Times(base_ns, zero_is_absent=_zero_is_absent(events.gpu))
    ranges = list(_ranges(events.ranges, times))
    keys = CallKeys(events.calls)
    gpus = Gpus((event for event in events.gpu if _kind(event) not in SYNCS), _properties(document.head))
    calls = _calls(events.calls, times, keys)
    reader = _KinetoReader(TraceBuilder(), times, _copy_sizes(events.calls, keys), Calls(calls, ranges), keys, gpus)
    for event in events.gpu:
        reader.record(event)
    if not any(_kind(event) in SYNCS for event in events.gpu):
        for span, kind in _waits_of_calls(events, times, calls, keys, gpus):
            reader.recorder.sync(span, kind)
    for one in ranges:
        reader.recorder.range(one.start_ns, one.end_ns - one.start_ns, one.name)
    merged = keys.several or bool(gpus.processes)
    read = reader.recorder.trace(_origin(path, document.head, gpus, merged=merged), plausible=True)
    notes = (*document.notes, *_missing(document, events, keys), *read.notes, *events.unread())
    return replace(read, categories=events.categories, read_ratio=_read_ratio(document, read.read_ratio), notes=notes)


@dataclass(slots=True)
class _Events:
    """The complete events by what they are to a replay, each in the order of the file.

    `unnamed` is the number of those without a category, which XLA writes.
    """

    gpu: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    ranges: list[Event] = field(default_factory=list)
    others: dict[str, list[Event]] = field(default_factory=dict)
    categories: tuple[tuple[str, int], ...] = ()
    unnamed: int = 0

    @classmethod
    def of(cls, document: ChromeTrace) -> "_Events":
        """Sort the events of a file."""
        events = cls()
        buckets: dict[str, list[Event]] = {}
        counts: Counter[str] = Counter()
        unnamed: list[Event] = []
        metadata: list[Event] = []
        for event in document.events:
            category, phase = event.get("cat"), event.get("ph", "X")
            if phase == "X" and isinstance(category, str) and category:
                if category not in buckets:
                    buckets[category] = events._bucket(category.lower())
                counts[category] += 1
                buckets[category].append(event)
            elif phase == "X":
                unnamed.append(event)
            elif phase == "M":
                metadata.append(event)
            elif phase == "B":
                events._begun(category, counts).append(event)
        events.unnamed = len(unnamed)
        names = xla.named(metadata) if unnamed else {}
        for event in unnamed:
            category, read = xla.classified(event, names)
            if category:
                counts[category] += 1
                events._bucket(category).append({**read, "cat": category})
        lowered: Counter[str] = Counter()
        for category, number in counts.items():
            lowered[category.lower()] += number
        events.categories = tuple(lowered.most_common())
        return events

    def _begun(self, category: Any, counts: Counter[str]) -> list[Event]:
        """The events of a pair of beginning and end, which is how PyTorch writes none."""
        name = f"{category or 'events'} as pairs of beginning and end"
        counts[name] += 1
        return self._bucket(name)

    def _bucket(self, category: str) -> list[Event]:
        if category in _GPU:
            return self.gpu
        if category in CALLS:
            return self.calls
        return self.ranges if category in RANGES else self.others.setdefault(category, [])

    def unread(self) -> tuple[str, ...]:
        """A sentence about the events that are not read."""
        times = {category: (len(events), _microseconds(events)) for category, events in self.others.items()}
        return unread("events", times, sum(map(_microseconds, (self.gpu, self.calls, self.ranges))))


def _microseconds(events: Iterable[Event]) -> float:
    """Sum of the durations that are numbers, and plausible."""
    durations = (event.get("dur") for event in events)
    return sum(one for one in durations if isinstance(one, int | float) and 0 <= one <= trace.MAX_DURATION_NS)


def _is_coarse(microseconds: Any) -> bool:
    return isinstance(microseconds, float) and microseconds > EXACT_MICROSECONDS and type(microseconds) is float


def _zero_is_absent(events: Iterable[Event]) -> bool:
    starts = (_nanoseconds(event.get("ts")) for event in events)
    earliest_ns = min((start for start in starts if start), default=0)
    return earliest_ns > NO_TIME_MICROSECONDS * NANOSECONDS_PER_MICROSECOND


def _missing(document: ChromeTrace, events: _Events, keys: CallKeys) -> tuple[str, ...]:
    """A sentence about launched work that the file lacks."""
    launched = LaunchedWork()
    for event in events.calls:
        launched.add_call(_text(event.get("name", "")), keys.of_call(event))
    for event in events.gpu:
        if _kind(event) not in SYNCS:
            launched.add_work(keys.of_work(event))
    return launched.lacking(is_cut=bool(document.end))


def _read_ratio(document: ChromeTrace, of_gpu: float) -> float:
    if document.end:
        return float("nan")
    listed = len(document.events) + document.damaged
    return min(of_gpu, len(document.events) / listed if listed else 1.0)


def _base_ns(value: Any) -> int:
    """Unix nanoseconds that the events' times count from; 0 where they are Unix times themselves."""
    return value if isinstance(value, int) and 0 <= value < 2**61 else 0


@dataclass(frozen=True, slots=True)
class _Times:
    """Reads events' times: what they count from, and whether 0 says that there is none."""

    base_ns: int
    zero_is_absent: bool

    def of(self, event: Event) -> tuple[int, int] | None:
        """Start and duration; None without a plausible one."""
        start_ns = _nanoseconds(event.get("ts"))
        duration_ns = _nanoseconds(event.get("dur"))
        if start_ns is None or duration_ns is None or not 0 <= duration_ns <= trace.MAX_DURATION_NS:
            return None
        if start_ns == 0 and self.zero_is_absent:
            return None
        start_ns += self.base_ns
        return (start_ns, duration_ns) if abs(start_ns) < 2**62 else None


@dataclass(frozen=True, slots=True)
class _KinetoReader:
    """Passes events one by one to a `TraceBuilder`; `sizes` and `calls` are by the keys of `keys`."""

    recorder: TraceBuilder
    times: _Times
    sizes: Mapping[Hashable, int]
    calls: Calls
    keys: CallKeys
    gpus: Gpus

    def record(self, event: Event) -> None:
        """Record an event of a GPU."""
        category, arguments = _kind(event), _arguments(event)
        times = self.times.of(event)
        if times is None:
            self.recorder.unusable()
            return
        span = Span(*times, self.gpus.index(event))
        name = _text(event.get("name", ""))
        key = self.keys.of_work(event)
        if category in KERNELS:
            graph = bool(_integer(arguments.get("graph node id")))
            cause = self.calls.cause(key, span.start_ns, graph=graph)
            stream = _integer(arguments.get("stream"))
            context = str(arguments.get("context"))
            self.recorder.launch(span, name, _configuration(arguments), stream, cause, context=context)
        elif category in COPIES | MEMSETS:
            size_bytes = _integer(arguments.get("bytes"), self.sizes.get(key, 0))
            if category in MEMSETS:
                self.recorder.memset(span, size_bytes)
            else:
                self.recorder.copy(span, _copy_kind(name), _pinned(name), size_bytes)
        else:
            self.recorder.sync(span, _SYNC_KINDS.get(name.lower(), trace.UNKNOWN))


def _calls(events: list[Event], times: _Times, keys: CallKeys) -> dict[Hashable, ApiCall]:
    """Calls of the runtime and the driver; of several with one correlation id the first, which the program made."""
    calls: dict[Hashable, ApiCall] = {}
    for event in events:
        key, when = keys.of_call(event), times.of(event)
        if when is None or key is None or (key in calls and calls[key].start_ns <= when[0]):
            continue
        graph = "GraphLaunch" in _text(event.get("name", ""))
        calls[key] = ApiCall(_thread(event), when[0], graph)
    return calls


def _waits_of_calls(
    events: _Events, times: _Times, calls: Mapping[Hashable, ApiCall], keys: CallKeys, gpus: Gpus
) -> Iterator[tuple[Span, str]]:
    """Waits of a trace that records none; none where no work of a GPU says which GPU it was."""
    launched: dict[str, list[Launched]] = {}
    devices = []
    for event in events.gpu:
        if times.of(event) is None:
            continue
        devices.append(gpus.index(event))
        key = keys.of_work(event)
        call = None if key is None else calls.get(key)
        if call is not None and isinstance(key, tuple):
            launched.setdefault(key[0], []).append(Launched(call.thread, call.start_ns, devices[-1]))
    waiting: dict[str, list[WaitingCall]] = {}
    for event in events.calls if devices else ():
        kind = wait_kind(_text(event.get("name", "")))
        when = times.of(event) if kind else None
        if when is not None:
            waiting.setdefault(str(event.get("pid")), []).append(WaitingCall(_thread(event), *when, kind))
    for process, its_calls in waiting.items():
        its_work = launched.get(process, [])
        yield from waits(its_calls, its_work, its_work[0].device if its_work else devices[0])


def _ranges(events: Iterable[Event], times: _Times) -> Iterator[Range]:
    """A range that the program named with `record_function`, or a step of the profiler."""
    for event in events:
        when = times.of(event)
        if when is not None:
            name = plain_name(_text(event.get("name", "")))
            yield Range(_thread(event), when[0], when[0] + when[1], name)


def _thread(event: Event) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


def _kind(event: Event) -> str:
    """The category in lower case: before Kineto 0.4 it was `Kernel`, `Memcpy`, `Memset`."""
    category: str = event["cat"]
    return category.lower()


def _arguments(event: Event) -> Event:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _nanoseconds(microseconds: Any) -> int | None:
    if isinstance(microseconds, str):
        return _exact_nanoseconds(microseconds)
    if isinstance(microseconds, ExactFloat):
        return _exact_nanoseconds(microseconds.text)
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return None
    if microseconds != microseconds or abs(microseconds) > 2**62:  # noqa: PLR0124 - what NaN is
        return None
    return round(microseconds * NANOSECONDS_PER_MICROSECOND)


def _exact_nanoseconds(microseconds: str) -> int | None:
    try:
        number = Decimal(microseconds)
    except InvalidOperation:
        return None
    if not number.is_finite() or not -(2**62) <= number <= 2**62:
        return None
    return round(number * NANOSECONDS_PER_MICROSECOND)


def _integer(value: Any, absent: int = 0) -> int:
    """A whole number that fits a column; profilers write some as text, HIP's streams in hexadecimal."""
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return absent
    return number if 0 <= number <= trace.MAX_WHOLE else absent


def _text(value: Any) -> str:
    """Text that can be written as UTF-8: JSON may hold halves of surrogate pairs."""
    return str(value).encode(errors="replace").decode()


def _configuration(arguments: Event) -> LaunchConfiguration:
    return LaunchConfiguration(
        grid=_dimensions(arguments.get("grid")),
        block=_dimensions(arguments.get("block")),
        registers=_integer(arguments.get("registers per thread")),
        shared_memory_bytes=_integer(arguments.get("shared memory")),
        occupancy=min(_integer(arguments.get("est. achieved occupancy %")), 100) / 100,
    )


def _dimensions(value: Any) -> str:
    return "x".join(str(_integer(part)) for part in value[:3]) if isinstance(value, list) else ""


def _copy_kind(name: str) -> str:
    match = _SHORT_KIND.search(name) or _LONG_KIND.search(name)
    if match is None:
        return trace.UNKNOWN
    return _KINDS.get((match[1][0] + match[2][0]).lower(), trace.UNKNOWN)


def _pinned(name: str) -> str:
    """Kineto names the kinds of memory: `Memcpy HtoD (Pinned -> Device)`; HIP says only `Host`."""
    if "Pinned" in name:
        return trace.PINNED
    return trace.PAGEABLE if "Pageable" in name else ""


def _copy_sizes(events: Iterable[Event], keys: CallKeys) -> dict[Hashable, int]:
    """Bytes by call, from the runtime's calls: AMD's copies do not say their own size."""
    sizes: dict[Hashable, int] = {}
    for event in events:
        arguments = _arguments(event)
        key = keys.of_call(event) if "size" in arguments else None
        if key is not None:
            sizes[key] = _integer(arguments["size"])
    return sizes


def _properties(head: Event) -> dict[int, str]:
    """Product names by the number in the file's list of GPUs."""
    listed = head.get("deviceProperties")
    return {
        _integer(device.get("id")): _text(device.get("name", ""))
        for device in (listed if isinstance(listed, list) else ())
        if isinstance(device, dict)
    }


def _origin(path: Path, head: Event, gpus: Gpus, *, merged: bool) -> TraceOrigin:
    """Facts about the file; one of several ranks has the rank of none."""
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank = distributed.get("rank")
    return TraceOrigin(
        title=_text(head.get("traceName") or path.name),
        digest=content.digest(path),
        models=gpus.models,
        processes=gpus.processes,
        rank=_text(rank) if isinstance(rank, int | str) and not merged else "",
        world_size=_integer(distributed.get("world_size")),
    )
