"""Totals of kernels and variants as packed rows: a program sends these frames at every interval, so they are compact.

`codec.encode` calls `pack`, `codec.decode` calls `unpack`. A body is a `_ROWS` header, then the rows: each is a `_ROW`
with its `_BUCKET`s, or a `_VARIANT` with its text. All numbers are little-endian.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeVar

from kernelcast.wire.errors import FrameError
from kernelcast.wire.histogram import DurationTotals

_ROWS: Final = struct.Struct("<HH")
"""Header of a body: index of the device, number of rows."""
_ROW: Final = struct.Struct("<QQQQQQQQQQH")
"""Kernel, launches, count, sum_ns, squares (low, high 64 bits), zero_count, queue_delays, queue_delay_ns,
graph_launches, number of buckets after it."""
_BUCKET: Final = struct.Struct("<hQ")
"""Scale-3 index, count."""
_VARIANT: Final = struct.Struct("<QQQQQH")
"""Kernel, count, sum_ns, squares (low, high 64 bits), bytes of the text after it."""
_LOW: Final = 2**64 - 1
"""Mask of the lower half: a sum of squares needs up to 128 bits, so it is two fields."""
_Row = TypeVar("_Row")


class KernelRow(NamedTuple):
    """Cumulative totals of one kernel on one device; a tuple, because thousands are read every second.

    Attributes:
        kernel: Its number, as `Names` gave it.
        launches: Timed or not.
        durations: GPU time of the timed ones.
        queue_delays: Launches whose time between the call and the start on the device is known.
        queue_delay_ns: The sum of those times.
        graph_launches: Launches that came from a CUDA graph; a part of `launches`.
    """

    kernel: int
    launches: int
    durations: DurationTotals
    queue_delays: int = 0
    queue_delay_ns: int = 0
    graph_launches: int = 0


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Totals of some kernels on one device; the rest stay as last reported."""

    TYPE: ClassVar = 3

    device: int
    rows: tuple[KernelRow, ...]


class VariantRow(NamedTuple):
    """Cumulative totals of the timed launches of one kernel in one variant (grid, block, region, …); a tuple, too."""

    kernel: int
    variant: str
    launches: int
    sum_ns: int
    sum_squares_ns2: int

    @classmethod
    def of(cls, kernel: int, variant: str, durations: DurationTotals) -> "VariantRow":
        """The totals of durations, without their buckets."""
        return cls(kernel, variant, durations.count, durations.sum_ns, durations.sum_squares_ns2)


@dataclass(frozen=True, slots=True)
class VariantRows:
    """Totals of some variants on one device; the rest stay as last reported."""

    TYPE: ClassVar = 9

    device: int
    rows: tuple[VariantRow, ...]


Rows = KernelRows | VariantRows


def pack(frame: Rows, room: int) -> Iterator[bytes]:
    """The bodies of as many packets as the rows need.

    Args:
        frame: The rows; none make no packet.
        room: The most bytes one body may have.

    Raises:
        FrameError: A number does not fit its field, or a text is too long.
    """
    parts: list[bytes] = []
    size = _ROWS.size
    try:
        for part in _packed(frame):
            if parts and size + len(part) > room:
                yield _ROWS.pack(frame.device, len(parts)) + b"".join(parts)
                parts, size = [], _ROWS.size
            parts.append(part)
            size += len(part)
        if parts:
            yield _ROWS.pack(frame.device, len(parts)) + b"".join(parts)
    except struct.error as error:
        raise FrameError(f"{type(frame).__name__} holds a number that does not fit: {error}; it is not sent") from error


def unpack(kind: type[Rows], body: bytes) -> Rows:
    """The rows in a packet's body.

    Raises:
        FrameError: It is cut off, too long, or contradicts itself.
    """
    try:
        if kind is KernelRows:
            return KernelRows(*_unpacked(body, _kernel_row))
        return VariantRows(*_unpacked(body, _variant_row))
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"{kind.__name__} frame is cut off or spoilt: {error}; it is ignored") from error
    except ValueError as error:
        raise FrameError(f"{kind.__name__} frame {error}; it is ignored") from error


def _packed(frame: Rows) -> Iterator[bytes]:
    if isinstance(frame, KernelRows):
        return map(_pack_kernel, frame.rows)
    return map(_pack_variant, frame.rows)


def _pack_kernel(row: KernelRow) -> bytes:
    totals = row.durations
    fixed = _ROW.pack(
        row.kernel,
        row.launches,
        totals.count,
        totals.sum_ns,
        totals.sum_squares_ns2 & _LOW,
        totals.sum_squares_ns2 >> 64,
        totals.zero_count,
        row.queue_delays,
        row.queue_delay_ns,
        row.graph_launches,
        len(totals.buckets),
    )
    return fixed + b"".join(_BUCKET.pack(index, count) for index, count in sorted(totals.buckets.items()))


def _pack_variant(row: VariantRow) -> bytes:
    text = row.variant.encode()
    squares = row.sum_squares_ns2
    return _VARIANT.pack(row.kernel, row.launches, row.sum_ns, squares & _LOW, squares >> 64, len(text)) + text


def _unpacked(body: bytes, read: Callable[[bytes, int], tuple[_Row, int]]) -> tuple[int, tuple[_Row, ...]]:
    device, count = _ROWS.unpack_from(body)
    position = _ROWS.size
    rows = []
    for _ in range(count):
        row, position = read(body, position)
        rows.append(row)
    if position != len(body):
        raise ValueError(f"has {len(body) - position} bytes too many")
    return device, tuple(rows)


def _kernel_row(body: bytes, position: int) -> tuple[KernelRow, int]:
    kernel, launches, count, sum_ns, low, high, zero_count, delays, delay_ns, graphs, buckets = _ROW.unpack_from(
        body, position
    )
    position += _ROW.size
    end = position + buckets * _BUCKET.size
    if end > len(body):
        raise ValueError(f"announces {buckets} buckets beyond its end")
    histogram = dict(_BUCKET.iter_unpack(body[position:end]))
    if zero_count + sum(histogram.values()) != count:
        raise ValueError(f"counts {count} launches but its buckets do not add up to it")
    durations = DurationTotals(count, sum_ns, high << 64 | low, zero_count, histogram)
    return KernelRow(kernel, launches, durations, delays, delay_ns, graphs), end


def _variant_row(body: bytes, position: int) -> tuple[VariantRow, int]:
    kernel, count, sum_ns, low, high, length = _VARIANT.unpack_from(body, position)
    position += _VARIANT.size
    end = position + length
    if end > len(body):
        raise ValueError(f"announces a text of {length} bytes beyond its end")
    return VariantRow(kernel, body[position:end].decode(), count, sum_ns, high << 64 | low), end
