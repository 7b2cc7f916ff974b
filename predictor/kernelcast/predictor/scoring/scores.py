"""Scores of published forecasts and probabilities, by class of metric and horizon, on event time."""

# `cycle.scores.outcomes` calls it in each cycle: first the blocks that have ended, then new claims. Time is counted in
# blocks of event time. A series has at most one pending claim for each horizon, so that its claims do not overlap.

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring import stored
from kernelcast.predictor.scoring.alerts import DAY_SECONDS, TOTALS, AlertScores
from kernelcast.predictor.scoring.cells import Cells
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.intervals import IntervalScores
from kernelcast.predictor.scoring.probabilities import BreachScores
from kernelcast.predictor.scoring.site_calibration import RowCalibration, SiteCalibration, fit
from kernelcast.predictor.scoring.widening import SAVED, SAVED_LATER
from kernelcast.wire.errors import WireError

REASONS_KEPT: Final = 100
"""Pairs of class and reason that are counted; the reasons are a fixed set, so more is a defect."""


class Scoring:
    """Claims, outcomes and scores of one predictor. One thread uses it at a time.

    Attributes:
        horizons_seconds: Shape (h,), ascending.
        intervals: Of quantile forecasts.
        breaches: Of breach probabilities.
        alerts: Of alerts.
        abstentions: Claims that were not made, by number of the class and reason.
        site: Calibration by this site's outcomes.
    """

    def __init__(self, horizons_seconds: Sequence[float], block_seconds: float) -> None:
        """Begin without claims.

        Args:
            horizons_seconds: Ascending.
            block_seconds: Length of a block.
        """
        self.horizons_seconds: Floats = np.array(horizons_seconds, np.float64)
        self._block_seconds = block_seconds
        horizons = len(self.horizons_seconds)
        leads = np.array([self._lead(each) for each in self.horizons_seconds.tolist()], np.int64)
        self.intervals = IntervalScores(self.horizons_seconds, leads)
        self.breaches = BreachScores(horizons, max(round(DAY_SECONDS / block_seconds), 1))
        self.alerts = AlertScores(block_seconds)
        self.abstentions: Counter[tuple[int, str]] = Counter()
        self.site: SiteCalibration = fit(self.breaches.cells, self.horizons_seconds)

    @property
    def unscored(self) -> int:
        """Claims that could not be scored: no value came, or too many were waiting."""
        waiting = self.intervals.pending.dropped + self.breaches.pending.dropped
        return self.intervals.unscored + self.breaches.unscored + waiting

    def calibration(self, classes: Ints, *, scale: float = 1.0) -> RowCalibration:
        """The calibration of series of some classes: the site's own where it has enough crossings.

        Args:
            classes: Shape (n,).
            scale: Seconds of event time in a second of the detector, in whose seconds it is asked.
        """
        return RowCalibration(self.site, classes, scale)

    def published_quantiles(
        self, quantiles: Floats, classes: Ints, horizon_seconds: float, surprise: Floats | None = None
    ) -> Floats:
        """Quantiles to publish: intervals scaled by what past ones of the same class and horizon needed.

        Args:
            quantiles: Shape (n, levels), at `LEVELS`; NaN where there is none.
            classes: Shape (n,).
            horizon_seconds: One of the horizons.
            surprise: Shape (n,), of the newest value by the forecast that was made of it (`surprise_of`); None for
                unknown ones.
        """
        off = np.full(len(quantiles), np.nan) if surprise is None else surprise
        return self.intervals.published(quantiles, classes, self._horizon(horizon_seconds), off)

    def claim_forecasts(  # noqa: PLR0913, PLR0917  one array each
        self,
        block: int,
        series: Ints,
        classes: Ints,
        horizon_seconds: float,
        quantiles: Floats,
        naive: Floats,
        seasonal: Floats | None = None,
        surprise: Floats | None = None,
    ) -> None:
        """Remember quantile forecasts, of each series one in every horizon; others are ignored.

        Args:
            block: The newest block that they rest on.
            series: Shape (n,), numbers from `series_number`, without repetitions.
            classes: Shape (n,), numbers from `class_number`.
            horizon_seconds: One of the horizons.
            quantiles: Shape (n, levels), at `LEVELS`, before `published_quantiles`; NaN where there is none.
            naive: Shape (n,), values of the newest block.
            seasonal: Shape (n,), values one season before the block that is due; NaN or None where there is no season.
            surprise: As for `published_quantiles`.
        """
        unknown = np.full(len(series), np.nan)
        cycle, off = (unknown if each is None else each for each in (seasonal, surprise))
        number = self._horizon(horizon_seconds)
        self.intervals.claim(series, classes, number, block, quantiles, naive, cycle, off)

    def claim_breaches(self, block: int, series: Ints, classes: Ints, probability: Floats) -> None:
        """Remember breach probabilities; those of series that have one pending for a horizon are ignored there.

        Args:
            block: The newest block that they rest on.
            series: Shape (n,), without repetitions.
            classes: Shape (n,).
            probability: Shape (n, h), as published; NaN while abstaining and while the limit is passed.
        """
        for number, horizon in enumerate(self.horizons_seconds.tolist()):
            said = probability[:, number]
            base = self.site.inverse(said, classes, number)
            self.breaches.claim(block, series, classes, number, self._due(block, horizon), said, base)

    def abstain(self, number: int, reason: str, count: int = 1) -> None:
        """Count claims that were not made.

        Args:
            number: Of the class.
            reason: Why, one of a fixed set.
            count: How many.
        """
        if (number, reason) in self.abstentions or len(self.abstentions) < REASONS_KEPT:
            self.abstentions[number, reason] += count

    def settle(  # noqa: PLR0913  one array each
        self,
        block: int,
        series: Ints,
        classes: Ints,
        values: Floats,
        beyond: Bools,
        firing: Bools,
        *,
        gpus: float = 0.0,
        span: int = 1,
    ) -> None:
        """Compare claims with a block; call it for each block in order, in parts if series are late.

        Args:
            block: Its number.
            series: Shape (n,), those that have values in it, without repetitions.
            classes: Shape (n,).
            values: Shape (n,), mean of each.
            beyond: Shape (n,), whether each is at or beyond its limit.
            firing: Shape (n,), whether each has an alert.
            gpus: GPUs that reported in the block, in one of its parts.
            span: Blocks since these series were settled before, where a cycle takes longer than a block.
        """
        crossings = self.breaches.cells["crossings"].sum()
        self.intervals.settle(block, series, values)
        self.breaches.settle(block, series, beyond, span)
        self.alerts.settle(block, series, classes, beyond, firing, gpus * span)
        if self.breaches.cells["crossings"].sum() > crossings:
            self.site = fit(self.breaches.cells, self.horizons_seconds)

    def dump(self) -> bytes:
        """The whole state."""
        meta = {
            "classes": CLASSES,
            "horizons_seconds": self.horizons_seconds.tolist(),
            "block_seconds": self._block_seconds,
            "gpu_days": self.alerts.gpu_days,
            "unscored": [self.intervals.unscored, self.breaches.unscored],
            "abstentions": [[number, reason, count] for (number, reason), count in self.abstentions.items()],
        }
        arrays = {f"{name}/{sums}": cells.sums[sums] for name, cells in self._cells().items() for sums in cells.sums}
        arrays |= {f"{name}/{column}": one for name, found in self._tables().items() for column, one in found.items()}
        arrays |= {f"widening/{name}": one for name, one in self._widening().items()}
        return stored.pack(meta, arrays | self.alerts.totals())

    def load(self, state: bytes) -> None:
        """Continue from a state; scores of horizons that are not in use any more are left out.

        Claims and open alerts are kept if the length of a block is the same.

        Raises:
            WireError: The state cannot be read; nothing has changed.
        """
        meta, arrays = stored.unpack(state)
        if tuple(meta["classes"]) != CLASSES:
            raise WireError(f"the state of the scores has the classes {meta['classes']}; scores begin again")
        before = {horizon: number for number, horizon in enumerate(meta["horizons_seconds"])}
        kept = [(number, before[each]) for number, each in enumerate(self.horizons_seconds.tolist()) if each in before]
        sums = {name: stored.cells(arrays, name, cells.sums, kept) for name, cells in self._cells().items()}
        if "interval_claims/due" in arrays:  # absent from a state of an earlier release
            arrays.setdefault("interval_claims/state", np.zeros_like(arrays["interval_claims/due"]))
        widening = self._stored_widening(arrays, kept)
        tables = {name: stored.table(arrays, name, found) for name, found in self._tables().items()}
        totals = stored.table(arrays, TOTALS, {name.split("/")[1]: one for name, one in self.alerts.totals().items()})
        for name, cells in self._cells().items():
            cells.sums = sums[name]
        if meta["block_seconds"] == self._block_seconds:
            self._restore(tables, kept)
        self.intervals.widening.restore(widening, same_blocks=meta["block_seconds"] == self._block_seconds)
        self.alerts.restore(totals, meta["gpu_days"])
        self.intervals.unscored, self.breaches.unscored = meta["unscored"]
        self.abstentions = Counter({(number, reason): count for number, reason, count in meta["abstentions"]})
        self.site = fit(self.breaches.cells, self.horizons_seconds)

    def _cells(self) -> dict[str, Cells]:
        return {"intervals": self.intervals.cells, "breaches": self.breaches.cells}

    def _widening(self, names: Sequence[str] = (*SAVED, *SAVED_LATER)) -> stored.Arrays:
        return {name: getattr(self.intervals.widening, name) for name in names}

    def _stored_widening(self, arrays: stored.Arrays, kept: Sequence[tuple[int, int]]) -> stored.Arrays:
        later = all(f"widening/{name}" in arrays for name in SAVED_LATER)
        names = (*SAVED, *SAVED_LATER) if later else SAVED
        return stored.cells(arrays, "widening", self._widening(names), kept)

    def _tables(self) -> dict[str, stored.Arrays]:
        return {
            "interval_claims": self.intervals.pending.columns,
            "breach_claims": self.breaches.pending.columns,
            "crossed": self.breaches.crossed,
            "open_alerts": self.alerts.open,
        }

    def _restore(self, tables: dict[str, stored.Arrays], kept: Sequence[tuple[int, int]]) -> None:
        for name in ("interval_claims", "breach_claims", "crossed"):
            tables[name] = stored.renumbered(tables[name], kept)
        self.intervals.pending.columns = tables["interval_claims"]
        self.breaches.pending.columns = tables["breach_claims"]
        self.breaches.crossed = tables["crossed"]
        self.alerts.open = tables["open_alerts"]

    def _horizon(self, horizon_seconds: float) -> int:
        return int(np.abs(self.horizons_seconds - horizon_seconds).argmin())

    def _due(self, block: int, horizon_seconds: float) -> int:
        return block + self._lead(horizon_seconds)

    def _lead(self, horizon_seconds: float) -> int:
        return max(round(horizon_seconds / self._block_seconds), 1)
