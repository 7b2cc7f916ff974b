"""Finds the new values of a partition's series since they were saved last, for each message of `StateWriter`."""

from collections.abc import Iterator
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.series.rings import EMPTY
from kernelcast.predictor.series.saved.parts import Array
from kernelcast.predictor.series.saved.rows import SavedRows, SpanValues

_Item = TypeVar("_Item", bound=np.generic)

WINDOWS: Final = "windows"
"""Name of the windows among the spans that are saved."""
_FACTORS: Final = np.random.default_rng(1).integers(1, 2**63, 4096, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class SavedContent:
    """Content of each slot when it was saved last: the newest span of each ring, a digest of each column.

    A slot is the place of a series in the pages (`slots`). The caller holds the lock.
    """

    def __init__(self, source: SavedRows) -> None:
        self._source = source
        self._newest: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in source.spans}
        self._digest: dict[str, NDArray[np.uint64]] = {}

    def resize(self, slots: int) -> None:
        """Extend or cut to this number of slots."""
        for name, newest in self._newest.items():
            self._newest[name] = _resized(newest, slots)
        for name in self._source.columns:
            self._digest[name] = _resized(self._digest.get(name, np.zeros(0, np.uint64)), slots)

    def turned_back(self, slots: Ints, rows: Ints) -> Ints:
        """Slots whose series has an earlier newest span than was saved: a clock was set right, or it was emptied."""
        back = np.zeros(len(rows), np.bool_)
        for name, spans in self._source.spans.items():
            back |= spans.newest[rows] < self._newest[name][slots]
        return slots[back]

    def whole(self, slots: Ints, rows: Ints) -> dict[str, Array]:
        """All that is saved of the rows; it counts as saved."""
        arrays: dict[str, Array] = {}
        for name, spans in self._source.spans.items():
            newest = spans.newest[rows]
            self._newest[name][slots] = newest
            arrays[f"{name}.newest"] = newest
            arrays[f"{name}.values"] = spans.read(rows, newest, spans.length)
        for name, column in self._source.columns.items():
            values = column.save(rows)
            self._digest[name][slots] = digests(values)
            arrays[f"column.{name}"] = values
        return arrays

    def added(self, slots: Ints, rows: Ints, base: int) -> dict[str, Array]:
        """Spans and columns that are new since the last time; they count as saved. Slots count from `base`."""
        arrays: dict[str, Array] = {}
        for name, spans in self._source.spans.items():
            for place, (chosen, count) in enumerate(self._groups(name, spans, slots, rows)):
                newest = spans.newest[rows[chosen]]
                saved = self._newest[name][slots[chosen]]
                arrays[f"{name}.{place}.slots"] = (slots[chosen] - base).astype(np.uint16)
                arrays[f"{name}.{place}.newest"] = newest
                arrays[f"{name}.{place}.values"] = _since(spans.read(rows[chosen], newest, count), newest, saved)
                self._newest[name][slots[chosen]] = newest
        for name, column in self._source.columns.items():
            if not column.in_increments:
                continue
            values = column.save(rows)
            digest = digests(values)
            changed = np.flatnonzero(digest != self._digest[name][slots])
            if len(changed):
                self._digest[name][slots] = digest
                arrays[f"column.{name}"] = values[changed]
                arrays[f"column.{name}.slots"] = (slots[changed] - base).astype(np.uint16)
        return arrays

    def _groups(self, name: str, spans: SpanValues, slots: Ints, rows: Ints) -> Iterator[tuple[Ints, int]]:
        """Places of the rows with new spans, and the largest number of them; rows with similar numbers together."""
        newest, saved = spans.newest[rows], self._newest[name][slots]
        if name == WINDOWS:
            # The newest interval is not over: it may have another value now.
            changed = newest != EMPTY
            count = np.where(changed, newest - saved + 1, 0)
        else:
            count = newest - saved
        count = np.clip(count, 0, spans.length)
        size = np.ceil(np.log2(np.maximum(count, 1))).astype(np.int64)
        for one in np.unique(size[count > 0]).tolist():
            chosen = np.flatnonzero((size == one) & (count > 0))
            yield chosen, int(count[chosen].max())


def digests(values: Array) -> NDArray[np.uint64]:
    """A number for each row that changes with its content."""
    if not len(values):
        return np.zeros(0, np.uint64)
    plain = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
    width = -(-plain.shape[1] // 8) * 8
    padded = np.zeros((len(values), width), np.uint8)
    padded[:, : plain.shape[1]] = plain
    words = padded.view(np.uint64)
    factors = np.resize(_FACTORS, words.shape[1])
    digests: NDArray[np.uint64] = (words * factors).sum(axis=1, dtype=np.uint64) + np.uint64(1)
    return digests


def _since(values: NDArray[np.float32], newest: Ints, saved: Ints) -> NDArray[np.float32]:
    """NaN in place of the spans before the newest one that was saved; they compress to nothing."""
    numbers = newest[:, None] + np.arange(1 - values.shape[1], 1)
    values[numbers < saved[:, None]] = np.nan
    return values


def _resized(values: NDArray[_Item], size: int) -> NDArray[_Item]:
    grown = np.zeros(size, values.dtype)
    kept = min(size, len(values))
    grown[:kept] = values[:kept]
    return grown
