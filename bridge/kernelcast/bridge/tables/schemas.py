"""Bounds of histograms, each set once, and the memory of their bucket counts."""

from typing import Final

import numpy as np
from prometheus_client.utils import floatToGoString

from kernelcast.bridge.tables.columns import EXPONENTIAL, NO_BOUNDS, FloatArray, Int64Array, grown
from kernelcast.wire.histogram import LADDER_BOUNDS_SECONDS

MAX_SCHEMAS: Final = 10_000
"""Sets of bounds; real fleets have tens. Beyond, new ones are refused and counted."""
MAX_BOUNDS: Final = 200_000
"""Of all sets together: a page's snapshot copies their texts, and a set that is no longer used is never given back."""


def bound_text(bound: float) -> str:
    """A bound as OpenMetrics writes it: `5.0`."""
    text: str = floatToGoString(float(bound))  # type: ignore[no-untyped-call]
    return text


class Schemas:
    """Sets of bounds by number: EXPONENTIAL and NO_BOUNDS are always there.

    Attributes:
        indptr: Which of the bounds belong to which set.
        bounds: The bounds of all sets.
        texts: `le="5.0"} ` of each, as OpenMetrics demands.
        plain_texts: `le="5"} ` of each, as exporters in Go write text 0.0.4. Prometheus 2 keeps both apart.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.indptr: Int64Array = np.zeros(1, np.int64)
        self.bounds: FloatArray = np.empty(0, np.float64)
        self.texts: tuple[bytes, ...] = ()
        self.plain_texts: tuple[bytes, ...] = ()
        self.number(np.array(LADDER_BOUNDS_SECONDS))
        self.number(np.empty(0))

    @property
    def arrays(self) -> tuple[Int64Array, FloatArray]:
        """Row pointers and bounds, as the kernels take them."""
        return self.indptr, self.bounds

    @property
    def no_bounds(self) -> int:
        """The number of the empty set."""
        return NO_BOUNDS

    def number(self, bounds: FloatArray | None) -> int | None:
        """The number of a set of finite, rising bounds, EXPONENTIAL for None; None when there are too many sets."""
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
        """How many finite bounds a set has."""
        return int(self.indptr[number + 1] - self.indptr[number])


class Blocks:
    """Bucket counts of all histograms in one array; freed blocks are used again by histograms of the same length."""

    def __init__(self) -> None:
        self.counts: Int64Array = np.zeros(1024, np.int64)
        self.used = 0
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """The start of a block."""
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
