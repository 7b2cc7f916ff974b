"""Loads the decoder, a small C library beside this file, and converts its sums to plain values.

CUPTI calls the library's callbacks on any thread, and the library decodes on a thread of its own; `ActivityMethod`
calls `drain` on the probe's thread. ctypes releases the interpreter's lock during every call here, and the decoder
never takes it. The structs are those of native/activity.h: `ABI` grows when one changes.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from kernelcast.probe.cupti.build import LIBRARY_NAME
from kernelcast.wire.histogram import WHOLE_BOUNDS_NS, DurationTotals
from kernelcast.wire.kernels import COLLECTIVE_RULES, LOCAL_RULES

ABI: Final = 6  # kc_abi() of the library
LIBRARY: Final = Path(__file__).parent / LIBRARY_NAME
STATES: Final = ("compute", "collective", "copy", "overlap", "idle", "unknown")
NO_NAME: Final = 0
NO_NAME_COLLECTIVE: Final = 1
"""The numbers of launches without a name of their own, by class."""

# `_DEVICE`: number; six state times; late; 99 = 11 copy kinds x 3 memory kinds x 3 amounts (operations, bytes, ns); 3
# for memsets; 15 = 5 kinds of waits x 3; then the gaps' durations, whose last two members are first and number of
# buckets.
# `_KERNEL`: device, name; launches, graph launches, queue delays, their ns; then the durations: count, zeros, sum, low
# and high half of the sum of squares (128 bits), first and number of buckets.
# `_VARIANT`: place of its kernel, registers, grid, block, three memory sizes; 4 bytes of padding; launches, timed, sum,
# low and high half of the sum of squares. `_NAME`: offset and length of its text, unused, number.
_KERNEL: Final = Struct("<2I4Q5Q2I")
_VARIANT: Final = Struct("<11I4x5Q")
_DEVICE: Final = Struct("<Q6QQ99Q3Q15Q5Q2I")
_BUCKET: Final = Struct("<iI")
_NAME: Final = Struct("<4I")

_Buckets = list[tuple[int, int]]


class NativeError(Exception):
    """The decoder cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class NativeSettings:
    """Memory limits of the decoder, and its waiting time for records out of order.

    Attributes:
        buffer_bytes: Length of one buffer; NVIDIA's documentation advises 1 to 10 MB. The fixed cost of a buffer (cold
            caches) is shared by its 9,000 records.
        buffers: Largest number of buffers; memory is allocated when one is used. There must be one for each thread of
            the program that launches, and some in transit.
        window_ns: How far behind the latest end a device's time is summed up; activities before it are cut off.
        quiet_ns: Time without a record after which a device's time passes as unknown: a kernel has none before it ends.
    """

    buffer_bytes: int = 2 * 1024 * 1024
    buffers: int = 24
    window_ns: int = 2_000_000_000
    quiet_ns: int = 30_000_000_000


class Variant(NamedTuple):
    """One kernel in one launch configuration, since the last drain; sums are of its timed launches."""

    registers: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    static_shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    launches: int
    timed: int
    sum_ns: int
    sum_squares_ns2: int


class Kernel(NamedTuple):
    """One kernel on one device, since the last drain."""

    device: int
    name: int
    launches: int
    graph_launches: int
    queue_delays: int
    queue_delay_ns: int
    durations: DurationTotals
    variants: list[Variant]


class Amount(NamedTuple):
    """Count, bytes and nanoseconds of one kind of operation."""

    operations: int
    bytes: int
    ns: int


class DeviceActivity(NamedTuple):
    """Sums of one device since the last drain; copies by kind and pinnedness, syncs by type, as CUPTI numbers them."""

    device: int
    state_ns: tuple[int, ...]
    late: int
    copies: tuple[tuple[Amount, Amount, Amount], ...]
    memsets: Amount
    syncs: tuple[Amount, ...]
    gaps: DurationTotals


class DecoderCounts(NamedTuple):
    """Counts of records and buffers since the last drain; native/activity.h explains each."""

    records: int
    buffers: int
    refused_buffers: int
    malformed: int
    unread: int
    other_kinds: int
    untimed: int
    unnamed: int
    crowded: int
    held_ns: int
    decode_ns: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Everything since the last drain; `names` are those never given before, by number."""

    kernels: list[Kernel]
    devices: list[DeviceActivity]
    names: dict[int, str]
    counts: DecoderCounts


class _Settings(ctypes.Structure):
    _fields_ = (
        ("buffer_bytes", ctypes.c_uint64),
        ("buffers", ctypes.c_uint64),
        ("window_ns", ctypes.c_uint64),
        ("quiet_ns", ctypes.c_uint64),
        ("now_ns", ctypes.c_uint64),
        ("next_record", ctypes.c_void_p),
        ("bounds_ns", ctypes.POINTER(ctypes.c_int64)),
        ("class_rules", ctypes.c_char_p),
        ("never_refuse", ctypes.c_uint64),
    )


class _Drain(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("kernels", "variants", "devices", "buckets", "names", "text")),
        *((f"{name}_count", ctypes.c_uint64) for name in ("kernel", "variant", "device", "bucket", "name")),
        ("counts", ctypes.c_uint64 * len(DecoderCounts._fields)),
    )


class ActivityDecoder:
    """The loaded library. Its state is the process's, so a process uses one object at a time."""

    def __init__(self, path: Path = LIBRARY) -> None:
        """Load it.

        Raises:
            NativeError: It was not built, or is another version's.
        """
        if not path.exists():
            raise NativeError(f"{path.name} was not built: kernelcast was installed without a C compiler")
        try:
            self._library: Any = ctypes.CDLL(str(path))
            abi = self._library.kc_abi()
        except (OSError, AttributeError) as error:
            raise NativeError(f"{path} cannot be loaded: {error}; install kernelcast again") from error
        if abi != ABI:
            raise NativeError(f"{path} is version {abi}; this kernelcast needs {ABI}; install kernelcast again")

    def open(self, settings: NativeSettings, next_record: int, now_ns: int = 0, *, never_refuse: bool = False) -> None:
        """Take memory and start reading.

        Args:
            settings: How much.
            next_record: Address of cuptiActivityGetNextRecord.
            now_ns: CUPTI's clock; 0 where it is not known.
            never_refuse: Give CUPTI a spare buffer where none is free, whose records are lost.

        Raises:
            NativeError: There is no memory or no thread to be had.
        """
        bounds = (ctypes.c_int64 * len(WHOLE_BOUNDS_NS))(*WHOLE_BOUNDS_NS)
        rules = class_rules().encode()
        chosen = _Settings(
            settings.buffer_bytes,
            settings.buffers,
            settings.window_ns,
            settings.quiet_ns,
            now_ns,
            next_record,
            bounds,
            rules,
            never_refuse,
        )
        error = self._library.kc_open(ctypes.byref(chosen))
        if error:
            size = settings.buffer_bytes * settings.buffers
            raise NativeError(f"the decoder could not start with {size} bytes of buffers: errno {error}")

    def callback(self, name: str) -> Any:
        """The address of `kc_requested`, `kc_completed` or `kc_subscriber`, for CUPTI."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p)

    def settle(self, timeout_ms: int) -> bool:
        """Wait until every completed buffer has been read; False after the time given."""
        return bool(self._library.kc_settle(ctypes.c_uint32(timeout_ms)) == 0)

    def close(self) -> None:
        """Decode the filled buffers and stop; later callbacks find nothing open."""
        self._library.kc_close()

    def drain(self, now_ns: int = 0, *, final: bool = False) -> Drain:
        """Sums since the last call; one thread at a time may call it.

        Args:
            now_ns: CUPTI's clock; 0 where it is not known. Records are compared with it until the next drain.
            final: Sum up the devices' time to the end of all that is known.
        """
        raw = _Drain()
        if self._library.kc_drain(ctypes.c_uint64(now_ns), int(final), ctypes.byref(raw)):
            return Drain([], [], {}, DecoderCounts(*[0] * len(DecoderCounts._fields)))
        buckets = list(_BUCKET.iter_unpack(_bytes(raw.buckets, raw.bucket_count, _BUCKET)))
        return Drain(
            kernels=_kernels(
                _bytes(raw.kernels, raw.kernel_count, _KERNEL),
                _bytes(raw.variants, raw.variant_count, _VARIANT),
                buckets,
            ),
            devices=list(_devices(_bytes(raw.devices, raw.device_count, _DEVICE), buckets)),
            names=dict(_names(_bytes(raw.names, raw.name_count, _NAME), raw.text)),
            counts=DecoderCounts(*raw.counts),
        )

    def buckets(self, durations_ns: list[int]) -> list[int]:
        """The histogram bucket of each duration, as the decoder finds it; durations above 0."""
        count = len(durations_ns)
        found = (ctypes.c_int32 * count)()
        self._library.kc_buckets((ctypes.c_int64 * count)(*durations_ns), ctypes.c_size_t(count), found)
        return list(found)


def class_rules() -> str:
    """The rules as the decoder reads them: `first&second`, with a leading `!` for those of `LOCAL_RULES`."""
    rules = ["&".join(rule) for rule in COLLECTIVE_RULES]
    return "|".join([*rules, *(f"!{first}&{second}" for first, second in LOCAL_RULES)])


def _bytes(address: int | None, count: int, layout: Struct) -> bytes:
    return ctypes.string_at(address, count * layout.size) if address and count else b""


def _durations(values: tuple[int, ...], buckets: _Buckets) -> DurationTotals:
    count, zero, sum_ns, low, high, first, used = values
    return DurationTotals(count, sum_ns, high << 64 | low, zero, dict(buckets[first : first + used]))


def _kernels(packed: bytes, variants: bytes, buckets: _Buckets) -> list[Kernel]:
    kernels = [
        Kernel._make((*values[:6], _durations(values[6:], buckets), [])) for values in _KERNEL.iter_unpack(packed)
    ]
    for kernel, registers, x, y, z, u, v, w, static, dynamic, local, *amounts in _VARIANT.iter_unpack(variants):
        launches, count, sum_ns, low, high = amounts
        variant = Variant(
            registers, (x, y, z), (u, v, w), static, dynamic, local, launches, count, sum_ns, high << 64 | low
        )
        kernels[kernel].variants.append(variant)
    return kernels


def _devices(packed: bytes, buckets: _Buckets) -> Iterator[DeviceActivity]:
    for values in _DEVICE.iter_unpack(packed):
        amounts = [Amount(*values[at : at + 3]) for at in range(8, 125, 3)]
        copies = tuple((amounts[at], amounts[at + 1], amounts[at + 2]) for at in range(0, 33, 3))
        yield DeviceActivity(
            values[0],
            values[1:7],
            values[7],
            copies,
            amounts[33],
            tuple(amounts[34:]),
            _durations(values[125:], buckets),
        )


def _names(packed: bytes, text: int) -> Iterator[tuple[int, str]]:
    for offset, length, _, number in _NAME.iter_unpack(packed):
        yield number, ctypes.string_at(text + offset, length).decode(errors="replace")
