"""Frames on the probe's Unix socket (SOCK_SEQPACKET: one frame is one packet, so a reader never sees half of one).

Every frame starts with `HEADER`: magic, protocol version, frame type. Control frames carry JSON; kernel totals, which
flow all the time, carry packed rows. All totals are cumulative since the process's start: a frame that is lost is made
good by the next one that arrives, and a daemon that restarts has everything back after one interval.

From the program: `Hello` first, then `Names` before any row that uses them, `KernelRows`, `Counters`, `Tunables`,
`OutcomeFrame`, `Bye`. From the exporter: `HintFrame`.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar

from kernelcast.wire.errors import FrameError
from kernelcast.wire.histogram import DurationTotals

MAGIC: Final = b"KC"
PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 64 * 1024
"""Well under the default socket buffer (net.core.wmem_default, 208 KiB), so one frame always fits."""

HEADER: Final = struct.Struct("<2sBB")
_ROWS: Final = struct.Struct("<HH")  # device index, rows
_ROW: Final = struct.Struct("<QQQQQQQH")  # kernel, launches, count, sum_ns, squares (low, high), zero_count, buckets
_LOW: Final = 2**64 - 1
_BUCKET: Final = struct.Struct("<hQ")  # scale-3 index, count


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A GPU as the process sees it; the exporter completes what it lacks from NVML."""

    uuid: str
    gpu: str = "0"
    model_name: str = ""
    gi_id: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who reports: the first frame of a connection."""

    TYPE: ClassVar = 1

    program: str
    nonce: str
    start_ns: int
    pid: int
    rank: str = ""
    source: str = ""
    method: str = "manual"
    version: str = ""
    code_version: str = ""
    devices: tuple[DeviceClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel's identity and the launch configuration last seen."""

    kernel: int
    signature: str
    grid: str = ""
    block: str = ""
    registers: int = 0
    shared_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Names:
    """The dictionary that rows refer to."""

    TYPE: ClassVar = 2

    names: tuple[KernelName, ...]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Cumulative totals of one kernel on one device."""

    kernel: int
    launches: int
    durations: DurationTotals


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Totals of some kernels on one device; the rest stay as last reported."""

    TYPE: ClassVar = 3

    device: int
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative totals that are not per kernel, on one device.

    Attributes:
        device: Index into `Hello.devices`.
        memcpy: Rows of kind (`h2d`, `d2h`, `d2d`, `p2p`, `h2h`), pinned (`true`, `false`, empty), bytes,
            operations, ns.
        sync: Rows of type and ns waited.
        device_time: Rows of state and ns.
        overhead_ns: What the probe took from the program's threads.
        dropped_frames: Frames that could not be handed over.
    """

    TYPE: ClassVar = 4

    device: int
    memcpy: tuple[tuple[str, str, int, int, int], ...] = ()
    sync: tuple[tuple[str, int], ...] = ()
    device_time: tuple[tuple[str, int], ...] = ()
    overhead_ns: int = 0
    dropped_frames: int = 0


@dataclass(frozen=True, slots=True)
class TunableClaim:
    """A tunable as the program registered it; a hint outside `allowed` is refused by the program itself."""

    name: str
    value: str
    allowed: tuple[str, ...]
    kind: str = "generic"
    scope: str = "local"
    granularity: str = "step"
    kernels: tuple[str, ...] = ()
    device_model: str = ""
    code_version: str = ""


@dataclass(frozen=True, slots=True)
class Tunables:
    """All tunables of the process, whenever one changes."""

    TYPE: ClassVar = 5

    tunables: tuple[TunableClaim, ...]


@dataclass(frozen=True, slots=True)
class HintFrame:
    """A hint for this process: a CloudEvent as `kernelcast.wire.events` writes it."""

    TYPE: ClassVar = 6

    event: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutcomeFrame:
    """What became of a hint: a CloudEvent as `kernelcast.wire.events` writes it."""

    TYPE: ClassVar = 7

    event: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bye:
    """The process ends; its totals are final."""

    TYPE: ClassVar = 8

    reason: str = "exit"


Frame = Hello | Names | KernelRows | Counters | Tunables | HintFrame | OutcomeFrame | Bye
_CONTROL: Final = {kind.TYPE: kind for kind in (Hello, Names, Counters, Tunables, HintFrame, OutcomeFrame, Bye)}
_NESTED: Final[dict[str, type[Any]]] = {"devices": DeviceClaim, "names": KernelName, "tunables": TunableClaim}
_Item = TypeVar("_Item")


def encode(frame: Frame) -> Iterator[bytes]:
    """Packets for a frame; `KernelRows`, `Names` and `Tunables` that are too long become several frames.

    Raises:
        FrameError: A single item is longer than a frame may be.
    """
    head = HEADER.pack(MAGIC, PROTOCOL_VERSION, frame.TYPE)
    if isinstance(frame, KernelRows):
        yield from _encode_rows(head, frame)
        return
    body = json.dumps(asdict(frame), separators=(",", ":"), ensure_ascii=False).encode()
    if len(head) + len(body) <= MAX_FRAME_BYTES:
        yield head + body
    elif isinstance(frame, Names) and len(frame.names) > 1:
        for half in _halves(frame.names):
            yield from encode(Names(half))
    else:
        raise FrameError(
            f"{type(frame).__name__} frame is {len(body)} bytes; the limit is {MAX_FRAME_BYTES}; "
            "shorten names or register fewer tunables"
        )


def decode(packet: bytes) -> Frame:
    """The frame in a packet.

    Raises:
        FrameError: Not a frame of this protocol version, or one that breaks it.
    """
    if len(packet) > MAX_FRAME_BYTES:
        raise FrameError(f"frame is {len(packet)} bytes; the limit is {MAX_FRAME_BYTES}; use the probe of this version")
    if len(packet) < HEADER.size:
        raise FrameError(f"frame is {len(packet)} bytes; a header is {HEADER.size}; it was cut off")
    magic, version, kind = HEADER.unpack_from(packet)
    if magic != MAGIC or version != PROTOCOL_VERSION:
        raise FrameError(
            f"frame starts with {magic!r} version {version}; expected {MAGIC!r} version {PROTOCOL_VERSION}; "
            "install the same kernelcast in the program and on the node"
        )
    body = packet[HEADER.size :]
    if kind == KernelRows.TYPE:
        return _decode_rows(body)
    if kind not in _CONTROL:
        raise FrameError(f"frame type is {kind}; known types are 1 to 8; install the same kernelcast on both sides")
    return _decode_control(_CONTROL[kind], body)


def _decode_control(kind: type[Any], body: bytes) -> Frame:
    try:
        values = json.loads(body)
        # JSON can spell half a surrogate pair, which no label, record key or protobuf text can hold.
        json.dumps(values, ensure_ascii=False).encode()
        known = {item.name for item in fields(kind)}
        arguments = {name: _thaw(name, value) for name, value in values.items() if name in known}
        frame: Frame = kind(**arguments)
        _check_types(frame)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"{kind.__name__} frame is malformed: {error}; it is ignored") from error
    return frame


def _check_types(frame: Any) -> None:
    for item in fields(frame):
        value = getattr(frame, item.name)
        default_kind = {"int": int, "str": str}.get(str(getattr(item.type, "__name__", item.type)))
        if default_kind and (not isinstance(value, default_kind) or isinstance(value, bool)):
            raise TypeError(f"{item.name} is {value!r}, not {default_kind.__name__}")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError(f"{item.name} is {value}, beyond 64 bits")


def _thaw(name: str, value: Any) -> Any:
    """JSON lists back into tuples, and the nested records back into their classes."""
    if not isinstance(value, list):
        return value
    kind = _NESTED.get(name)
    if kind is None:
        return tuple(_thaw("", item) for item in value)
    known = {item.name for item in fields(kind)}
    items = tuple(kind(**{key: _thaw(key, part) for key, part in item.items() if key in known}) for item in value)
    for item in items:
        _check_types(item)
    return items


def _encode_rows(head: bytes, frame: KernelRows) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for row in frame.rows:
        part = _encode_row(row)
        if parts and HEADER.size + _ROWS.size + size + len(part) > MAX_FRAME_BYTES:
            yield head + _ROWS.pack(frame.device, len(parts)) + b"".join(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        yield head + _ROWS.pack(frame.device, len(parts)) + b"".join(parts)


def _encode_row(row: KernelRow) -> bytes:
    totals = row.durations
    fixed = _ROW.pack(
        row.kernel,
        row.launches,
        totals.count,
        totals.sum_ns,
        totals.sum_squares_ns2 & _LOW,
        totals.sum_squares_ns2 >> 64,
        totals.zero_count,
        len(totals.buckets),
    )
    return fixed + b"".join(_BUCKET.pack(index, count) for index, count in sorted(totals.buckets.items()))


def _decode_rows(body: bytes) -> KernelRows:
    try:
        device, count = _ROWS.unpack_from(body)
        position = _ROWS.size
        rows = []
        for _ in range(count):
            row, position = _decode_row(body, position)
            rows.append(row)
    except struct.error as error:
        raise FrameError(f"KernelRows frame is cut off: {error}; it is ignored") from error
    if position != len(body):
        raise FrameError(f"KernelRows frame has {len(body) - position} bytes too many; it is ignored")
    return KernelRows(device, tuple(rows))


def _decode_row(body: bytes, position: int) -> tuple[KernelRow, int]:
    kernel, launches, count, sum_ns, low, high, zero_count, buckets = _ROW.unpack_from(body, position)
    position += _ROW.size
    end = position + buckets * _BUCKET.size
    if end > len(body):
        raise FrameError(f"KernelRows frame announces {buckets} buckets beyond its end; it is ignored")
    histogram = dict(_BUCKET.iter_unpack(body[position:end]))
    if zero_count + sum(histogram.values()) != count:
        raise FrameError(f"KernelRows frame counts {count} launches but its buckets do not add up to it; it is ignored")
    return KernelRow(kernel, launches, DurationTotals(count, sum_ns, high << 64 | low, zero_count, histogram)), end


def _halves(items: Sequence[_Item]) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    middle = len(items) // 2
    return tuple(items[:middle]), tuple(items[middle:])
