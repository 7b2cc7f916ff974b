"""Regimes of series: the start and baseline of each, and the number of cycles in a row that flagged it.

A deploy, or a level that a whole program moved to at once, begins a new regime: the old baseline is
discarded, so that the change raises no alarm. Arrays are indexed by the row in `Windows`; they are reset when another
series gets the row.
"""

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.screening.blocks import MAD_TO_SIGMA, row_medians
from kernelcast.predictor.series.subjects import VARIANT, Subject
from kernelcast.predictor.series.windows import EMPTY, WindowArray
from kernelcast.wire.catalogue.devices import device

_FORECAST_ONLY: Final = frozenset(
    row.prometheus_name for row in (device.MEMORY_TEMP, device.GPU_UTIL, device.POWER_USAGE, device.MEM_COPY_UTIL)
)
MAX_FORMER: Final = 100_000
MAX_PROGRAMS: Final = 10_000
"""Number of names above which those without a series are removed: a name with a job's number never returns."""


class WatchReason(IntEnum):
    """Kind of degradation that a series is checked for."""

    NOTHING = 0
    TEMPERATURE = 1
    MEMORY = 2
    KERNEL = 3
    FORECAST = 4
    CLOCK = 5


_WITH_BASELINE: Final = (WatchReason.KERNEL, WatchReason.CLOCK)


class Regimes:
    """Baselines and alarm states of all rows."""

    def __init__(self) -> None:
        self._generation: Ints = np.zeros(0, np.int64)
        self.watch: Ints = np.zeros(0, np.int64)
        self.program: Ints = np.zeros(0, np.int64)
        self.since: Ints = np.zeros(0, np.int64)
        self.baseline: Floats = np.zeros(0)
        self.spread: Floats = np.zeros(0)
        self._streak: Ints = np.zeros(0, np.int64)
        self._missed: Ints = np.zeros(0, np.int64)
        self._programs: dict[str, int] = {}
        self._with_variants: set[Subject] = set()

    def sync(self, rows: Ints, generations: Ints, subjects: list[Subject]) -> None:
        """Reset rows that another series has got since the last call. All of length n."""
        self._grow(int(rows.max(initial=-1)) + 1)
        if len(self._programs) > MAX_PROGRAMS:
            self._forget_programs()
        changed = np.flatnonzero(self._generation[rows] != generations)
        for index in changed.tolist():
            subject = subjects[index]
            self.watch[rows[index]] = self._watch_of(subject)
            self.program[rows[index]] = self._programs.setdefault(subject.program, len(self._programs))
            if subject.metric == VARIANT:
                self._with_variants.add(subject.without_variant)
        fresh = rows[changed]
        self._generation[fresh] = generations[changed]
        self.begin(fresh, np.full(len(fresh), EMPTY, np.int64))
        if len(changed) and self._with_variants:
            whole = [row for row, one in zip(rows.tolist(), subjects, strict=True) if one in self._with_variants]
            # A kernel as a whole mixes its variants, so its mean follows the mixture, not the speed.
            self.watch[whole] = WatchReason.NOTHING
        if len(self._with_variants) > MAX_FORMER:
            self._with_variants &= set(subjects)

    def begin(self, rows: Ints, since: Ints) -> None:
        """Start new regimes at these intervals, without a baseline. Both of shape (n,)."""
        self.since[rows] = since
        self.baseline[rows] = np.nan
        self.spread[rows] = np.nan
        self._streak[rows] = 0
        self._missed[rows] = 0

    def program_rows(self, rows: Ints, program: str) -> Ints:
        """The judged kernels of a program among these rows."""
        number = self._programs.get(program, -1)
        mine: Ints = rows[(self.program[rows] == number) & (self.watch[rows] == WatchReason.KERNEL)]
        return mine

    def learn(self, rows: Ints, window: WindowArray, *, min_points: int) -> None:
        """Compute the missing baselines of kernels and clocks from the first values of their regime.

        Args:
            rows: Shape (n,).
            window: Shape (n, points), oldest first, only values of the present regime.
            min_points: Number of values that a baseline needs.
        """
        unknown = np.flatnonzero(np.isin(self.watch[rows], _WITH_BASELINE) & np.isnan(self.baseline[rows]))
        values = window[unknown]
        finite = np.isfinite(values)
        enough = finite.sum(axis=1) >= min_points
        unknown, values, finite = unknown[enough], values[enough].astype(np.float64), finite[enough]
        # Only the first half of them: a drift that is already under way must not become the norm.
        values[np.cumsum(finite, axis=1) > max(min_points // 2, 1)] = np.nan
        centre = row_medians(values)
        self.baseline[rows[unknown]] = centre
        self.spread[rows[unknown]] = MAD_TO_SIGMA * row_medians(np.abs(values - centre[:, None]))

    def note(self, rows: Ints, flagged: NDArray[np.bool_], *, raise_sweeps: int, clear_sweeps: int) -> None:
        """Count the cycles with and without a flag. Both arrays of shape (n,)."""
        self._streak[rows] = np.minimum(self._streak[rows] + flagged, raise_sweeps)
        self._missed[rows] = np.where(flagged, 0, self._missed[rows] + 1)
        self._streak[rows[self._missed[rows] >= clear_sweeps]] = 0

    def raised(self, rows: Ints, *, raise_sweeps: int) -> NDArray[np.bool_]:
        """Rows flagged often enough to be reported."""
        long_enough: NDArray[np.bool_] = self._streak[rows] >= raise_sweeps
        return long_enough

    def restore(self, row: int, *, since: int, baseline: float, spread: float) -> None:
        """Restore a row from a snapshot; call it after `sync`."""
        self.since[row], self.baseline[row], self.spread[row] = since, baseline, spread

    def known(self, row: int) -> tuple[int, float, float]:
        """First interval, baseline and spread of a row's regime; NaN where nothing was learnt."""
        if row >= len(self.since):
            return EMPTY, float("nan"), float("nan")
        return int(self.since[row]), float(self.baseline[row]), float(self.spread[row])

    def _forget_programs(self) -> None:
        """Remove programs that no row has, and number the others from 0."""
        kept, self.program[:] = np.unique(self.program, return_inverse=True)
        names = list(self._programs)
        self._programs = {names[number]: place for place, number in enumerate(kept.tolist())}

    @property
    def programs(self) -> list[str]:
        """The programs that are known."""
        return list(self._programs)

    def _watch_of(self, subject: Subject) -> WatchReason:
        if subject.metric == device.GPU_TEMP.prometheus_name:
            return WatchReason.TEMPERATURE
        if subject.metric == device.FB_USED.prometheus_name:
            return WatchReason.MEMORY
        if subject.metric == device.SM_CLOCK.prometheus_name:
            return WatchReason.CLOCK
        if subject.is_judged_kernel:
            return WatchReason.KERNEL
        return WatchReason.FORECAST if subject.metric in _FORECAST_ONLY else WatchReason.NOTHING

    def _grow(self, size: int) -> None:
        old = len(self.since)
        if size <= old:
            return
        more = max(size, 2 * old) - old
        for name in ("_generation", "watch", "program", "since", "_streak", "_missed"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))
        for name in ("baseline", "spread"):
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, np.nan)]))
        self._generation[old:] = -1
