"""Scores of the rows of a cycle: hands their claims and outcomes on under series numbers that survive a restart.

`Claims` calls it in each cycle. The scores are in `predictor.scoring`, which knows no rows; `cycle_loop` saves them.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints, extended
from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.predictions import Abstention
from kernelcast.predictor.scoring.classes import class_number, series_number
from kernelcast.predictor.scoring.intervals import LEVELS
from kernelcast.predictor.scoring.pending import MAX_PENDING
from kernelcast.predictor.scoring.scores import Scoring
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.series.windows import EMPTY

MEDIAN: Final = LEVELS.index(0.5)
MOST_SPAN: Final = 12
"""Blocks that a cycle settles at most at once; claims for earlier ones, after a gap, have no outcome.

Series that are further behind most others are not scored: the clock of their host is wrong.
"""


class RowScores:
    """The scores of one predictor, addressed by rows of its windows. Only the thread that runs cycles uses it.

    Attributes:
        scoring: The scores.
    """

    def __init__(
        self, horizons_seconds: tuple[float, ...], block_seconds: float, subject_of: Callable[[int], Subject | None]
    ) -> None:
        self.scoring = Scoring(horizons_seconds, block_seconds)
        self._block_seconds = block_seconds
        self._subject_of = subject_of
        self._generation: Ints = np.full(0, EMPTY, np.int64)
        self._number: Ints = np.zeros(0, np.int64)
        self._class: Ints = np.zeros(0, np.int64)
        self._settled: Ints = np.zeros(0, np.int64)
        self._behind: Bools = np.zeros(0, np.bool_)
        self._counted: Ints = np.full(0, EMPTY)  # by number of the GPU, the newest block in which it was counted

    def use_horizons(self, horizons_seconds: tuple[float, ...]) -> None:
        """Continue with other horizons; scores of those that stay are kept."""
        if horizons_seconds != tuple(self.scoring.horizons_seconds.tolist()):
            state, self.scoring = self.scoring.dump(), Scoring(horizons_seconds, self._block_seconds)
            self.scoring.load(state)

    def sync(self, rows: Ints, generations: Ints) -> None:
        """Number the rows that have another series than before."""
        size = int(rows.max(initial=-1)) + 1
        self._generation, self._settled = (extended(old, size, EMPTY) for old in (self._generation, self._settled))
        self._number, self._class = (extended(old, size, 0) for old in (self._number, self._class))
        self._behind = extended(self._behind, size, False)
        changed = self._generation[rows] != generations
        again = rows[changed & (self._generation[rows] != EMPTY)]
        self.scoring.give_up(self._number[again])
        for row in rows[changed].tolist():
            subject = self._subject_of(row)
            if subject is not None:
                self._number[row] = series_number(subject.metric, subject.labels)
                self._class[row] = class_number(subject.without_variant.metric)
        self._settled[rows[changed]] = EMPTY
        self._generation[rows] = generations

    def classes(self, rows: Ints) -> Ints:
        """Class of each row."""
        return self._class[rows]

    def settle(
        self,
        rows: Ints,
        blocks: Ints,
        state: DetectorState,
        devices: Ints,
        means: Callable[[Ints, int], Floats],
    ) -> None:
        """Compare claims with the newest blocks of the rows whose block is new.

        Args:
            rows: Shape (n,), synced.
            blocks: Shape (n,), newest whole block of each.
            state: The detector's.
            devices: Shape (n,), number of each row's GPU.
            means: Means of some rows in a block.
        """
        if len(blocks):
            self._behind[rows] = blocks < np.sort(blocks)[(len(blocks) - 1) // 2] - MOST_SPAN
        spans = np.where(self._settled[rows] == EMPTY, 1, np.clip(blocks - self._settled[rows], 0, MOST_SPAN))
        fresh = np.flatnonzero((blocks > self._settled[rows]) & ~self._behind[rows])
        for block, span in np.unique(np.stack([blocks[fresh], spans[fresh]], axis=1), axis=0).tolist():
            mine = fresh[(blocks[fresh] == block) & (spans[fresh] == span)]
            part = rows[mine]
            _, first = np.unique(self._number[part], return_index=True)
            mine, part = mine[first], part[first]
            for before in range(block - span + 1, block):
                due = part[self._has_claim(part, before)]
                if len(due):
                    self.scoring.intervals.settle(before, self._number[due], means(due, before))
            values = np.full(len(part), np.nan)
            is_due = self._has_claim(part, block)
            if is_due.any():
                values[is_due] = means(part[is_due], block)
            current = state.evaluated[part] == block
            beyond: Bools = current & state.beyond[part]
            firing: Bools = current & (state.firing[part] | state.passed[part])
            gpus = self._count_gpus(devices[mine], block)
            numbers, classes = self._number[part], self._class[part]
            self.scoring.settle(block, numbers, classes, values, beyond, firing, gpus=gpus, span=span)
        self._settled[rows[fresh]] = blocks[fresh]

    def claim_breaches(self, rows: Ints, state: DetectorState, answered: Callable[[Ints], Bools]) -> None:
        """Claim the probabilities of rows that were just evaluated, of a sample of the series if there are many.

        Args:
            rows: Shape (n,), synced.
            state: The detector's.
            answered: Which horizons of some rows are published, shape (n, h).
        """
        rows = rows[~self._behind[rows]]
        probability = state.probability[rows]
        share = -(-2 * rows.size * probability.shape[1] // MAX_PENDING)
        chosen = rows[self._number[rows] % max(share, 1) == 0]
        blocks = state.evaluated[chosen]
        for block in np.unique(blocks).tolist():
            mine = chosen[blocks == block]
            _, first = np.unique(self._number[mine], return_index=True)
            mine = mine[first]
            silent = (state.beyond[mine] | state.passed[mine])[:, None]
            published = np.where(silent | ~answered(mine), np.nan, state.probability[mine])
            self.scoring.claim_breaches(block, self._number[mine], self._class[mine], published)

    def claim_forecasts(
        self, block: int, horizon: float, rows: Ints, quantiles: Floats, last: Floats, surprise: Floats
    ) -> Floats:
        """Claim forecasts of a block; returns their quantiles as they are published, shape (n, levels).

        Args:
            block: The newest block that they rest on.
            horizon: In seconds.
            rows: Shape (n,), synced.
            quantiles: Shape (n, levels), at `LEVELS`.
            last: Shape (n,), mean of the newest block.
            surprise: Shape (n,), of this mean; NaN where it is not known.
        """
        classes = self._class[rows]
        published = self.scoring.published_quantiles(quantiles, classes, horizon, surprise)
        _, first = np.unique(self._number[rows], return_index=True)
        first = first[~self._behind[rows[first]]]
        mine = rows[first]
        self.scoring.claim_forecasts(
            block,
            self._number[mine],
            self._class[mine],
            horizon,
            quantiles[first],
            last[first],
            surprise=surprise[first],
        )
        return published

    def published(
        self, row: int, horizon: float, bounds: tuple[float, float, float], surprise: float
    ) -> tuple[float, float, float]:
        """Mean, lower and upper bound of a row as they are published."""
        quantiles = np.full((1, len(LEVELS)), np.nan)
        quantiles[0, [MEDIAN, 0, -1]] = bounds
        published = self.scoring.published_quantiles(quantiles, self._class[[row]], horizon, np.array([surprise]))[0]
        return float(published[MEDIAN]), float(published[0]), float(published[-1])

    def abstain(self, rows: Ints, reasons: Mapping[Abstention, Bools]) -> None:
        """Count abstentions of rows by class, for each reason that applies; arrays of shape (n,)."""
        for reason, which in reasons.items():
            classes, counts = np.unique(self._class[rows[which]], return_counts=True)
            for number, count in zip(classes.tolist(), counts.tolist(), strict=True):
                self.scoring.abstain(number, reason, count)

    def _count_gpus(self, devices: Ints, block: int) -> int:
        """Count the GPUs that were not counted in a block yet: the blocks of some end a cycle later than of others."""
        gpus = np.unique(devices)
        self._counted = extended(self._counted, int(gpus.max(initial=-1)) + 1, EMPTY)
        fresh = gpus[(self._counted[gpus] < block) | (self._counted[gpus] > block + MOST_SPAN)]
        self._counted[fresh] = block
        return len(fresh)

    def _has_claim(self, rows: Ints, block: int) -> Bools:
        pending = self.scoring.intervals.pending
        has_claim: Bools = np.isin(self._number[rows], pending.ints("series")[pending.ints("due") == block])
        return has_claim
