"""Frames on the probe's Unix socket (SOCK_SEQPACKET: one frame is one packet, so a reader never sees half of one).

Every frame starts with `HEADER`: magic, protocol version, frame type. Control frames carry JSON; kernel totals, which
flow all the time, carry packed rows (`kernelcast.wire.rows`). All totals are cumulative since the process's start: a
frame that is lost is made good by the next one that arrives, and a daemon that restarts has everything back after one
interval.

From the program: `Hello` first, then `Names` before any row that uses them, `KernelRows`, `VariantRows`, `Counters`,
`Status`, `Tunables`, `OutcomeFrame`, `Bye`. From the exporter: `HintFrame`, and
`OutcomesConfirmed` if `Hello` asks for it.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from sys import float_info
from typing import Any, ClassVar, Final, TypeVar

from kernelcast.wire.errors import FrameError
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Versions
from kernelcast.wire.rows import KernelRow, KernelRows, VariantRow, VariantRows, pack, unpack

__all__ = [
    "HEADER",
    "MAGIC",
    "MAX_FRAME_BYTES",
    "MAX_VARIANTS",
    "MEMSET",
    "PROTOCOL_VERSION",
    "Bye",
    "Counters",
    "DeviceClaim",
    "Frame",
    "Hello",
    "HintFrame",
    "KernelName",
    "KernelRow",
    "KernelRows",
    "Names",
    "OutcomeFrame",
    "OutcomesConfirmed",
    "Status",
    "TunableClaim",
    "Tunables",
    "VariantRow",
    "VariantRows",
    "decode",
    "encode",
]

MAGIC: Final = b"KC"
PROTOCOL_VERSION: Final = 2
MAX_FRAME_BYTES: Final = 64 * 1024
"""Well under the default socket buffer (net.core.wmem_default, 208 KiB), so one frame always fits."""
MAX_VARIANTS: Final = 64
"""Variants of one kernel that a process counts separately; the rest are summed as `other`."""
MEMSET: Final = "memset"

HEADER: Final = struct.Struct("<2sBB")


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A GPU as the process sees it; the exporter adds missing values from NVML.

    Attributes:
        uuid: NVML's UUID of the GPU, or of the MIG device.
        gpu: The index that CUDA gives it.
        model_name: The model, as NVML names it.
        gi_id: The number of the GPU instance, on a MIG device.
    """

    uuid: str
    gpu: str = "0"
    model_name: str = ""
    gi_id: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """Identity of the reporting process: the first frame of a connection.

    `wants_confirmations` says that the process understands `OutcomesConfirmed`.
    """

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
    wants_confirmations: bool = False
    image: str = ""
    cuda_version: str = ""
    driver_version: str = ""

    @property
    def versions(self) -> Versions:
        """Versions that the process runs on."""
        return Versions(self.code_version, self.image, self.cuda_version, self.driver_version)


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel's identity and the launch configuration last seen.

    Attributes:
        kernel: The number that rows refer to.
        signature: Normalised.
        grid: Blocks, as `64x1x1`; empty where unknown.
        block: Threads, as `128x1x1`; empty where unknown.
        registers: Per thread.
        shared_memory_bytes: Per block, static and dynamic together.
        local_memory_bytes: Per thread.
        occupancy: Theoretical occupancy: resident warps per capacity of a multiprocessor, 0 to 1; 0 if unknown.
    """

    kernel: int
    signature: str
    grid: str = ""
    block: str = ""
    registers: int = 0
    shared_memory_bytes: int = 0
    local_memory_bytes: int = 0
    occupancy: float = 0.0


@dataclass(frozen=True, slots=True)
class Names:
    """The dictionary that rows refer to."""

    TYPE: ClassVar = 2

    names: tuple[KernelName, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals that are not per kernel, on one device; cumulative, `pools` excepted.

    Attributes:
        device: Index into `Hello.devices`.
        memcpy: Rows of kind (`h2d`, `d2h`, `d2d`, `p2p`, `h2h`, `MEMSET` for fills), pinned (`true`, `false`, empty),
            bytes, operations, ns.
        sync: Rows of type, calls and ns waited.
        device_time: Rows of state and ns.
        overhead_ns: Time of the program's threads that the probe used.
        dropped_frames: Frames that could not be sent.
        launch_gaps: Idle times of the device between two activities; None if the method does not measure them.
        pools: Rows of pool (`device`, `pinned`), state (`used`, `free`, `total`, `limit`) and bytes, as of now.
        regions: Rows of region, launches within it, their GPU time in ns, and wall time in ns.
        unseen: Rows of reason and launches that the method knows of but cannot time or name; not in any kernel's row.
        dropped_records: Activity records that were lost before they could be added up.
        steps: Steps that the program has ended; on the device that it used first.
        items: Units of work, such as samples, that it said these steps processed.
        step_ns: Wall time between the ends of consecutive steps.
        trial_lost_ns: Time that trials have cost beyond the kept values.
        trial_allowed_ns: Time that they may have cost by now; 0 where the process has no trials.
    """

    TYPE: ClassVar = 4

    device: int
    memcpy: tuple[tuple[str, str, int, int, int], ...] = ()
    sync: tuple[tuple[str, int, int], ...] = ()
    device_time: tuple[tuple[str, int], ...] = ()
    overhead_ns: int = 0
    dropped_frames: int = 0
    launch_gaps: DurationTotals | None = None
    pools: tuple[tuple[str, str, int], ...] = ()
    regions: tuple[tuple[str, int, int, int], ...] = ()
    unseen: tuple[tuple[str, int], ...] = ()
    dropped_records: int = 0
    steps: int = 0
    items: int = 0
    step_ns: int = 0
    trial_lost_ns: int = 0
    trial_allowed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """Present measurement method of the process; a later frame replaces it.

    Attributes:
        method: `cupti`, `event`, `count` or `manual`.
        state: `active`, `backed_off`, `off`, `yielded` or `dormant`.
        reason: Why, in at most 200 characters.
        sample_ratio: Share of launches that the method tries to time, 0 to 1.
    """

    TYPE: ClassVar = 10

    method: str
    state: str
    reason: str = ""
    sample_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class TunableClaim:
    """A tunable as the program registered it; a hint outside `allowed` is refused by the program itself.

    `changes_results` is the program's declaration; None where it made none.
    """

    name: str
    value: str
    allowed: tuple[str, ...]
    kind: str = "generic"
    scope: str = "local"
    granularity: str = "step"
    kernels: tuple[str, ...] = ()
    device_model: str = ""
    code_version: str = ""
    changes_results: bool | None = None


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
    """Outcome of a hint: a CloudEvent, encoded by `kernelcast.wire.events`."""

    TYPE: ClassVar = 7

    event: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutcomesConfirmed:
    """Ids of outcome events that need not be sent again: Kafka has acknowledged them, or they are refused for good.

    The first one of a connection may have none; it says that this exporter confirms outcomes.
    """

    TYPE: ClassVar = 11

    event_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the ids, which JSON can spell as anything."""
        if not all(isinstance(one, str) for one in self.event_ids):
            raise TypeError(f"event_ids is {self.event_ids!r}, not a list of texts")


@dataclass(frozen=True, slots=True)
class Bye:
    """The process ends; its totals are final."""

    TYPE: ClassVar = 8

    reason: str = "exit"


Frame = (
    Hello
    | Names
    | KernelRows
    | Counters
    | Tunables
    | HintFrame
    | OutcomeFrame
    | OutcomesConfirmed
    | Bye
    | VariantRows
    | Status
)
_CONTROL: Final = {
    kind.TYPE: kind
    for kind in (Hello, Names, Counters, Tunables, HintFrame, OutcomeFrame, OutcomesConfirmed, Bye, Status)
}
_PACKED: Final[dict[int, type[KernelRows | VariantRows]]] = {kind.TYPE: kind for kind in (KernelRows, VariantRows)}
_NESTED: Final[dict[str, type[Any]]] = {"devices": DeviceClaim, "names": KernelName, "tunables": TunableClaim}
_KINDS: Final[dict[Any, tuple[type, ...]]] = {int: (int,), str: (str,), float: (int, float)}
_Item = TypeVar("_Item")


def encode(frame: Frame) -> Iterator[bytes]:
    """Packets for a frame; `KernelRows`, `VariantRows` and `Names` that are too long become several frames.

    Raises:
        FrameError: A single item is longer than a frame may be.
    """
    head = HEADER.pack(MAGIC, PROTOCOL_VERSION, frame.TYPE)
    if isinstance(frame, KernelRows | VariantRows):
        yield from (head + body for body in pack(frame, MAX_FRAME_BYTES - HEADER.size))
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
    if kind in _PACKED:
        return unpack(_PACKED[kind], body)
    if kind not in _CONTROL:
        raise FrameError(f"frame type is {kind}; known types are 1 to 11; install the same kernelcast on both sides")
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
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise FrameError(f"{kind.__name__} frame is malformed: {error}; it is ignored") from error
    return frame


def _check_types(frame: Any) -> None:
    for item in fields(frame):
        value = getattr(frame, item.name)
        allowed = _KINDS.get(item.type)
        if allowed and (not isinstance(value, allowed) or isinstance(value, bool)):
            raise TypeError(f"{item.name} is {value!r}, not {allowed[-1].__name__}")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError(f"{item.name} is {value}, beyond 64 bits")
        if isinstance(value, float) and not abs(value) <= float_info.max:
            raise ValueError(f"{item.name} is {value}, not a number")


def _thaw(name: str, value: Any) -> Any:
    """JSON lists back into tuples, and the nested records back into their classes."""
    if name == "launch_gaps" and value is not None:
        return _thaw_durations(value)
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


def _thaw_durations(value: dict[str, Any]) -> DurationTotals:
    buckets = {int(index): count for index, count in value["buckets"].items()}
    count, sum_ns, squares, zero_count = (value[name] for name in ("count", "sum_ns", "sum_squares_ns2", "zero_count"))
    numbers = (count, sum_ns, squares, zero_count, *buckets.values())
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("durations are no whole numbers from 0 on")
    totals = DurationTotals(count, sum_ns, squares, zero_count, buckets)
    if totals.zero_count + sum(buckets.values()) != totals.count:
        raise ValueError(f"durations count {totals.count} but their buckets do not add up to it")
    return totals


def _halves(items: Sequence[_Item]) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    middle = len(items) // 2
    return tuple(items[:middle]), tuple(items[middle:])
