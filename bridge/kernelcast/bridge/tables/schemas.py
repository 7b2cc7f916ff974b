"""Sets of histogram bounds, each stored once, and the memory of bucket counts."""

from typing import Final

import numpy as np
from prometheus_client.utils import floatToGoString

from kernelcast.bridge.tables.columns import EXPONENTIAL, NO_BOUNDS, FloatArray, Int64Array, grown
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS

MAX_SCHEMAS: Final = 10_000
"""Largest number of sets of bounds; real fleets have tens. Further ones are refused and counted."""
MAX_BOUNDS: Final = 200_000
"""Largest number of bounds in all sets: a snapshot of a page copies their texts, and unused sets are never freed."""


def bound_text(bound: float) -> str:
    """Format a bound for OpenMetrics: `5.0`."""
    text: str = floatToGoString(float(bound))  # type: ignore[no-untyped-call]
    return text


class Schemas:
    """Sets of bounds by number; EXPONENTIAL and NO_BOUNDS always exist. Not thread-safe.

    Attributes:
        indptr: Row pointers: set i has `bounds[indptr[i] : indptr[i + 1]]`.
        bounds: The bounds of all sets.
        texts: `le="5.0"} ` of each bound, as OpenMetrics requires.
        plain_texts: `le="5"} ` of each bound, as exporters in Go write text 0.0.4. To Prometheus 2 they differ.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.indptr: Int64Array = np.zeros(1, np.int64)
        self.bounds: FloatArray = np.empty(0, np.float64)
        self.texts: tuple[bytes, ...] = ()
        self.plain_texts: tuple[bytes, ...] = ()
        self.number(np.array(CLASSIC_BOUNDS_SECONDS))
        self.number(np.empty(0))

    @property
    def arrays(self) -> tuple[Int64Array, FloatArray]:
        """Return row pointers and bounds, for compiled functions."""
        return self.indptr, self.bounds

    @property
    def no_bounds(self) -> int:
        """Return the number of the empty set."""
        return NO_BOUNDS

    def number(self, bounds: FloatArray | None) -> int | None:
        """Return the number of a set of finite, rising bounds, EXPONENTIAL for None; None if the table is full."""
        if bounds is None:
            return EXPONENTIAL
        key = bounds.tobytes()
        known = self._numbers.get(key)
        if known is not None:
            return known
        if len(self._numbers) >= MAX_SCHEMAS or len(self.bounds) + len(bounds) > MAX_BOUNDS:
            return None
        number = len(self._numbers)
        self._numbers[key] = number
        self.bounds = np.concatenate([self.bounds, bounds])
        self.indptr = np.append(self.indptr, len(self.bounds))
        texts = [bound_text(bound) for bound in bounds]
        self.texts += tuple(f'le="{text}"}} '.encode() for text in texts)
        self.plain_texts += tuple(f'le="{text.removesuffix(".0")}"}} '.encode() for text in texts)
        return number

    def length(self, number: int) -> int:
        """Return the number of finite bounds in a set."""
        return int(self.indptr[number + 1] - self.indptr[number])


class BucketBlocks:
    """Bucket counts of all histograms in one array, which the store and `TotalRows` each have; not thread-safe.

    Freed blocks are used again by histograms of the same length.
    """

    def __init__(self) -> None:
        self.counts: Int64Array = np.zeros(1024, np.int64)
        self.used = 0
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """Allocate a block; returns the index of its first word."""
        free = self._free.get(length)
        if free:
            return free.pop()
        start = self.used
        if start + length > len(self.counts):
            larger: Int64Array = np.zeros(grown(len(self.counts), start + length), np.int64)
            larger[:start] = self.counts[:start]
            self.counts = larger
        self.used += length
        return start

    def give_back(self, start: int, length: int) -> None:
        """Free a block."""
        self._free.setdefault(length, []).append(start)
