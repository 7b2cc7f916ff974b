"""PyTorch's profiler (Kineto): Chrome trace events in JSON, from NVIDIA and AMD GPUs.

Sources: pytorch/kineto, libkineto/src/output_json.cpp (categories and arguments; `ts` and `dur` in microseconds,
relative to `baseTimeNanoseconds` where that is given); Chrome's Trace Event Format (`displayTimeUnit` only concerns
how a viewer shows times).
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from kernelcast.exporter.replay import trace
from kernelcast.exporter.replay.calls import ApiCall, Calls, Range
from kernelcast.exporter.replay.formats import content
from kernelcast.exporter.replay.formats.waits import Launched, WaitingCall, wait_kind, waits
from kernelcast.exporter.replay.regions import plain_name
from kernelcast.exporter.replay.trace import LaunchConfiguration, Span, Trace, TraceBuilder, TraceOrigin
from kernelcast.wire.errors import TraceError

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

_NO_JSON_NUMBER: Final = re.compile(
    r'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?\b(?:inf(?:inity)?|nan|(?<!\.)\d{400,}(?!\.))\b', re.IGNORECASE | re.DOTALL
)
"""A number that JSON does not have or no float holds, or, in the group, text, which may contain the same letters."""

Event = Mapping[str, Any]


def read(path: Path, *, max_bytes: int = content.MAX_TRACE_BYTES) -> Trace:
    """Read a trace, gzip or plain; a trace without GPU activity is a trace.

    Args:
        path: The file that `torch.profiler` or `export_chrome_trace` wrote.
        max_bytes: The most it may be once decompressed.

    Raises:
        TraceError: The file cannot be read, is damaged, too long, or not a Chrome trace.
    """
    document = _parse(path, content.read(path, max_bytes=max_bytes))
    events = _events(path, document)
    head = document if isinstance(document, dict) else {}
    base_ns = _base_ns(head.get("baseTimeNanoseconds"))
    ranges = list(_ranges(events, base_ns))
    calls = _calls(events, base_ns)
    reader = _KinetoReader(TraceBuilder(), base_ns, _copy_sizes(events), Calls(calls, ranges))
    for event in events:
        reader.record(event)
    if not any(_category(event) in SYNCS for event in events):
        for span, kind in _waits_of_calls(events, base_ns, calls):
            reader.recorder.sync(span, kind)
    for one in ranges:
        reader.recorder.range(one.start_ns, one.end_ns - one.start_ns, one.name)
    return replace(reader.recorder.trace(_origin(path, head)), categories=_categories(events))


def _parse(path: Path, text: bytearray) -> Any:
    """JSON as Kineto writes it: older versions leave `nan`, `inf` and control characters in it."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    lenient = text.decode(errors="replace")
    try:
        with suppress(ValueError):  # for `inf`, and for more digits than `int` accepts
            return json.loads(lenient, strict=False)
        return json.loads(_NO_JSON_NUMBER.sub(lambda match: match[1] or "null", lenient), strict=False)
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else "too deep"
        message = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise TraceError(f"{path} is not JSON: {message} at {where}; record or copy the trace again") from error


def _events(path: Path, document: Any) -> list[Event]:
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise TraceError(
            f"{path} is JSON but no Chrome trace: it has no list `traceEvents`; give a file that torch.profiler wrote"
        )
    for position, event in enumerate(events):
        if not isinstance(event, dict):
            raise TraceError(
                f"{path} is no Chrome trace: event {position} is {type(event).__name__}, not an object; "
                "give a file that torch.profiler wrote"
            )
    return events


def _base_ns(value: Any) -> int:
    """Unix nanoseconds that the events' times count from; 0 where they are Unix times themselves."""
    return value if isinstance(value, int) and 0 <= value < 2**61 else 0


@dataclass(frozen=True, slots=True)
class _KinetoReader:
    """Passes events one by one to a `TraceBuilder`; `sizes` and `calls` are by correlation id."""

    recorder: TraceBuilder
    base_ns: int
    sizes: Mapping[str | None, int]
    calls: Calls

    def record(self, event: Event) -> None:
        """Record an event if it is one of a GPU."""
        category = _category(event)
        if category not in _GPU:
            return
        arguments = _arguments(event)
        span = _span(event, arguments, self.base_ns)
        if span is None:
            self.recorder.unusable()
            return
        name = _text(event.get("name", ""))
        correlation = _correlation(arguments)
        if category in KERNELS:
            graph = bool(_integer(arguments.get("graph node id")))
            cause = self.calls.cause(correlation, span.start_ns, graph=graph)
            stream = _integer(arguments.get("stream"))
            self.recorder.launch(span, name, _configuration(arguments), stream, cause)
        elif category in COPIES | MEMSETS:
            size_bytes = _integer(arguments.get("bytes"), self.sizes.get(correlation, 0))
            if category in MEMSETS:
                self.recorder.memset(span, size_bytes)
            else:
                self.recorder.copy(span, _copy_kind(name), _pinned(name), size_bytes)
        else:
            self.recorder.sync(span, _SYNC_KINDS.get(name.lower(), trace.UNKNOWN))


def _calls(events: list[Event], base_ns: int) -> dict[Hashable, ApiCall]:
    """Calls of the runtime and the driver; of several with one correlation id the first, which the program made."""
    calls: dict[Hashable, ApiCall] = {}
    for event in events:
        if _category(event) not in CALLS:
            continue
        arguments = _arguments(event)
        span = _span(event, arguments, base_ns)
        correlation = _correlation(arguments)
        if (
            span is None
            or correlation is None
            or (correlation in calls and calls[correlation].start_ns <= span.start_ns)
        ):
            continue
        graph = "GraphLaunch" in _text(event.get("name", ""))
        calls[correlation] = ApiCall(_thread(event), span.start_ns, graph)
    return calls


def _waits_of_calls(events: list[Event], base_ns: int, calls: Mapping[Hashable, ApiCall]) -> Iterator[tuple[Span, str]]:
    """Waits of a trace that records none; none where no work of a GPU says which GPU it was."""
    launched, devices = [], []
    waiting = []
    for event in events:
        category, arguments = _category(event), _arguments(event)
        kind = wait_kind(_text(event.get("name", ""))) if category in CALLS else ""
        span = _span(event, arguments, base_ns) if kind or category in _GPU else None
        if span is None:
            continue
        if kind:
            waiting.append(WaitingCall(_thread(event), span.start_ns, span.duration_ns, kind))
            continue
        devices.append(span.device)
        call = calls.get(_correlation(arguments))
        if call is not None:
            launched.append(Launched(call.thread, call.start_ns, span.device))
    return waits(waiting, launched, devices[0]) if devices else iter(())


def _ranges(events: list[Event], base_ns: int) -> Iterator[Range]:
    """A range that the program named with `record_function`, or a step of the profiler."""
    for event in events:
        span = _span(event, _arguments(event), base_ns) if _category(event) in RANGES else None
        if span is not None:
            name = plain_name(_text(event.get("name", "")))
            yield Range(_thread(event), span.start_ns, span.start_ns + span.duration_ns, name)


def _categories(events: list[Event]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(filter(None, map(_category, events))).most_common())


def _thread(event: Event) -> Hashable:
    return str(event.get("pid")), str(event.get("tid"))


def _category(event: Event) -> str:
    """The category of a complete event in lower case: before Kineto 0.4 it was `Kernel`, `Memcpy`, `Memset`."""
    category = event.get("cat")
    return category.lower() if isinstance(category, str) and event.get("ph", "X") == "X" else ""


def _arguments(event: Event) -> Event:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _correlation(arguments: Event) -> str | None:
    """The id that a call has in common with the work it launched; None for an event without one."""
    correlation = arguments.get("correlation")
    return None if correlation is None else str(correlation)


def _span(event: Event, arguments: Event, base_ns: int) -> Span | None:
    start_ns = _nanoseconds(event.get("ts"))
    duration_ns = _nanoseconds(event.get("dur"))
    if start_ns is None or duration_ns is None or not 0 <= duration_ns <= trace.MAX_DURATION_NS:
        return None
    start_ns += base_ns
    if not 0 <= start_ns < 2**62:
        return None
    return Span(start_ns, duration_ns, _integer(arguments.get("device"), _integer(event.get("pid"))))


def _nanoseconds(microseconds: Any) -> int | None:
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return None
    if microseconds != microseconds or abs(microseconds) > 2**62:  # noqa: PLR0124 - what NaN is
        return None
    return round(microseconds * NANOSECONDS_PER_MICROSECOND)


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


def _copy_sizes(events: list[Event]) -> dict[str | None, int]:
    """Bytes by correlation id, from the runtime's calls: AMD's copies do not say their own size."""
    return dict(_sizes(events))


def _sizes(events: list[Event]) -> Iterator[tuple[str, int]]:
    for event in events:
        arguments = _arguments(event) if _category(event) in CALLS else {}
        correlation = _correlation(arguments)
        if "size" in arguments and correlation is not None:
            yield correlation, _integer(arguments["size"])


def _origin(path: Path, head: Event) -> TraceOrigin:
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank = distributed.get("rank")
    properties = head.get("deviceProperties")
    models = {
        _integer(device.get("id")): _text(device.get("name", ""))
        for device in (properties if isinstance(properties, list) else ())
        if isinstance(device, dict)
    }
    return TraceOrigin(
        title=_text(head.get("traceName") or path.name),
        digest=content.digest(path),
        models=models,
        rank=_text(rank) if isinstance(rank, int | str) else "",
        world_size=_integer(distributed.get("world_size")),
    )
