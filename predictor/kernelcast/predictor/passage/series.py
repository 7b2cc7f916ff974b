"""Input of the passage detector: series condensed to blocks of five minutes, with limits and companions.

`cycle.panels` makes it from live series, `backtest.breaches` from recorded ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.robust import row_medians
from kernelcast.predictor.series import condensed

BLOCK_SECONDS: Final = 300.0
"""Length of a block; the mean over it at or beyond the limit is a breach."""
DAY_BLOCKS: Final = 288
"""Blocks of a day."""
HOUR_BLOCKS: Final = 12
"""Blocks of an hour."""
KEPT_HOURS: Final = 840
"""Hours that an evaluation sees, five weeks."""


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """Properties of each series' metric, shape (n,).

    Attributes:
        limit: Limit in the series' unit; NaN where it is a multiple of the series' own baseline.
        baseline_ratio: That multiple.
        below: Whether the limit is a lower one.
        resolution: Step of the gauge; 0 for a measured duration.
        settling_blocks: How long after a step a slope says nothing: a body warms up, a process fills its memory.
        reserves: Whether a program may take nearly all of it in its first half hour, which is its normal: memory.
    """

    limit: Floats
    baseline_ratio: Floats
    below: Bools
    resolution: Floats
    settling_blocks: Ints
    reserves: Bools


@dataclass(frozen=True, slots=True, eq=False)
class SeriesBlocks:
    """Series as blocks of five minutes, the newest last; b blocks, two days of them suffice.

    Attributes:
        mean: Shape (n, b), mean of each block; NaN where it has no value.
        median: Shape (n, b), median of each block.
        load: Shape (n, b), power or another measure of load; NaN where none is known.
        process: Shape (n, b), how often the process has been replaced.
        version: Shape (n, b), number of the code version; -1 where it is not known.
        hours: Shape (n, h), of the hours before, the last whole one last; NaN where one has no value.
        phase: Shape (n,), blocks since the end of the last whole hour.
        load_hours: Shape (n, h), the load in the same hours.
        last_hour: Shape (n,), number of the last whole hour, counted from the epoch.
        node: Shape (n, b), median of each block over the GPUs of the series' node; NaN where it is not known.
    """

    mean: Floats
    median: Floats
    load: Floats
    process: Ints
    version: Ints
    hours: Floats
    phase: Ints
    load_hours: Floats
    last_hour: Ints
    node: Floats

    @classmethod
    def of(  # noqa: PLR0913  the attributes
        cls,
        mean: Floats,
        median: Floats,
        load: Floats,
        process: Ints,
        version: Ints,
        *,
        averaged: Bools | None = None,
        first: int = 0,
        node: Floats | None = None,
    ) -> "SeriesBlocks":
        """Make them without hours of their own: these are condensed from the blocks.

        Args:
            mean: Shape (n, b).
            median: Shape (n, b).
            load: Shape (n, b).
            process: Shape (n, b).
            version: Shape (n, b).
            averaged: Shape (n,), whether hours are means, as of a gauge that rounds; else, and for None, medians.
            first: Number of the first block, counted from the epoch.
            node: Shape (n, b); None where no node is known.
        """
        node = np.full(mean.shape, np.nan) if node is None else node
        kind = np.zeros(len(mean), np.bool_) if averaged is None else averaged
        hours, phase = hours_of(mean, median, kind, first)
        load_hours, _ = hours_of(load, load, np.zeros(len(mean), np.bool_), first)
        last_hour = np.full(len(mean), (first + mean.shape[1]) // HOUR_BLOCKS - 1, np.int64)
        return cls(mean, median, load, process, version, hours, phase, load_hours, last_hour, node)

    def until(self, end: int) -> "SeriesBlocks":
        """The blocks before a place, at most two days of them, and the hours before it, at most five weeks."""
        part = slice(max(end - 2 * DAY_BLOCKS, 0), end)
        phase = self.phase - (self.mean.shape[1] - end)
        later = -int(phase.min(initial=0) // HOUR_BLOCKS)
        ended = self.hours.shape[1] - later
        hours = slice(max(ended - KEPT_HOURS, 0), ended)
        return SeriesBlocks(
            self.mean[:, part],
            self.median[:, part],
            self.load[:, part],
            self.process[:, part],
            self.version[:, part],
            self.hours[:, hours],
            phase + later * HOUR_BLOCKS,
            self.load_hours[:, hours],
            self.last_hour - later,
            self.node[:, part],
        )

    def at_ends(self, ends: Sequence[int]) -> tuple["SeriesBlocks", Ints]:
        """The blocks before each of several places, one below the other, and the first block of each row.

        Shorter ones have columns without a value before them, in which another process of an unknown version ran.

        Args:
            ends: Places, ascending.
        """
        parts = [self.until(end) for end in ends]
        if len(parts) == 1:
            return parts[0], np.zeros(len(self.mean), np.int64)
        before = [parts[-1].mean.shape[1] - part.mean.shape[1] for part in parts]
        columns: dict[str, Any] = {
            name: _together([getattr(part, name) for part in parts]) for name in SeriesBlocks.__slots__
        }
        return SeriesBlocks(**columns), np.repeat(before, len(self.mean)).astype(np.int64)

    def rows(self, chosen: Bools | Ints) -> "SeriesBlocks":
        """Some of the series."""
        return SeriesBlocks(*(getattr(self, name)[chosen] for name in SeriesBlocks.__slots__))


def _together(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one below the other; shorter rows begin with columns without a value."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    longest = max(part.shape[1] for part in parts)
    return np.concatenate([_widened(part, longest - part.shape[1]) for part in parts])


def _widened(values: NDArray[Any], more: int) -> NDArray[Any]:
    """The values with more columns at the left: NaN, or -1 for integers, which are never negative otherwise."""
    empty = np.nan if values.dtype == np.float64 else -1
    return np.concatenate([np.full((len(values), more), empty, values.dtype), values], axis=1) if more else values


def history_length(known: Bools) -> Ints:
    """Columns since the first one with a value, shape (n,); 0 without any.

    Args:
        known: Shape (n, b), whether a column has a value.
    """
    if not known.shape[1]:
        return np.zeros(len(known), np.int64)
    length: Ints = np.where(known.any(axis=1), known.shape[1] - np.argmax(known, axis=1), 0)
    return length


def hourly_medians(values: Floats) -> Floats:
    """Medians of the whole hours of blocks that end with the newest block, shape (n, b // 12)."""
    hours = values.shape[1] // HOUR_BLOCKS
    newest = values[:, values.shape[1] - hours * HOUR_BLOCKS :]
    return row_medians(newest.reshape(-1, HOUR_BLOCKS)).reshape(len(values), hours)


def condense(values: Floats, width: int) -> tuple[Floats, Floats]:
    """Means and medians of blocks.

    Args:
        values: Shape (n, t), NaN for gaps; what does not fill a block at the end is left out.
        width: Intervals in a block.

    Returns:
        Two arrays of shape (n, t // width); NaN for blocks without a value.
    """
    return condensed.condense(values[:, : values.shape[1] // width * width], width)


def hours_of(mean: Floats, median: Floats, averaged: Bools, first: int) -> tuple[Floats, Ints]:
    """Hours of blocks as the live predictor keeps them, and the blocks since the end of the last whole one.

    Args:
        mean: Shape (n, b), means of blocks.
        median: Shape (n, b), medians of blocks.
        averaged: Shape (n,), whether the mean is kept, as of a gauge that rounds; else the median.
        first: Number of the first block, counted from the epoch.

    Returns:
        Whole hours, shape (n, h), and shape (n,).
    """
    before = np.full((len(mean), first % HOUR_BLOCKS), np.nan)
    kept = np.concatenate([before, np.where(averaged[:, None], mean, median)], axis=1)
    by_mean, by_median = condense(kept, HOUR_BLOCKS)
    phase = np.full(len(kept), kept.shape[1] % HOUR_BLOCKS, np.int64)
    return np.where(averaged[:, None], by_mean, by_median), phase


def build(
    values: Floats, interval_seconds: float, *, load: Floats | None, process: Ints | None, version: Ints | None
) -> SeriesBlocks:
    """Condense series and their companions; the first block begins an hour.

    Args:
        values: Shape (n, t).
        interval_seconds: Length of an interval; at most a block.
        load: Shape (n, t); None where no series has one.
        process: Shape (n, t); None where it is not known.
        version: Shape (n, t); None where it is not known.

    Returns:
        Blocks; a block's process and version are those at its end.
    """
    width = max(round(BLOCK_SECONDS / interval_seconds), 1)
    mean, median = condense(values, width)
    ends = np.arange(1, mean.shape[1] + 1) * width - 1
    unknown = np.full(mean.shape, -1, dtype=np.int64)
    return SeriesBlocks.of(
        mean,
        median,
        load=np.full(mean.shape, np.nan) if load is None else condense(load, width)[1],
        process=np.zeros(mean.shape, dtype=np.int64) if process is None else process[:, ends],
        version=unknown if version is None else version[:, ends],
    )
