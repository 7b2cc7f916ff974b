"""Scores of published forecasts and probabilities, by class of metric and horizon, on event time.

`cycle.row_scores` calls `Scoring` in each cycle: `settle` for the blocks that have ended, then `claim_...`. Time
is counted in blocks of event time. A series has at most one pending claim for each horizon, so they do not overlap.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring import stored
from kernelcast.predictor.scoring.alerts import TOTALS, AlertScores
from kernelcast.predictor.scoring.cells import Cells
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.intervals import IntervalScores
from kernelcast.predictor.scoring.probabilities import BreachScores
from kernelcast.predictor.scoring.widening import SAVED
from kernelcast.wire.errors import WireError


@dataclass(frozen=True, slots=True)
class _Saved:
    """A state that was read and checked, with the horizons at their present places.

    Attributes:
        sums: Of the cells, by name of the scores.
        tables: Claims and open alerts, by name of the table; None where blocks had another length.
        widening: Arrays of `Widening`.
        totals: Counts of alerts.
        gpu_days: Time observed, over all GPUs.
        abstentions: As `Scoring.abstentions`.
    """

    sums: dict[str, stored.Arrays]
    tables: dict[str, stored.Arrays] | None
    widening: stored.Arrays
    totals: stored.Arrays
    gpu_days: float
    abstentions: dict[tuple[int, str], int]


class Scoring:
    """Claims, outcomes and scores of one predictor. One thread uses it at a time.

    Attributes:
        horizons_seconds: Shape (h,), ascending.
        intervals: Scores of quantile forecasts.
        breaches: Scores of breach probabilities.
        alerts: Scores of alerts.
        abstentions: Claims that were not made, by number of the class and reason (`Abstention`).
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
        self.breaches = BreachScores(horizons)
        self.alerts = AlertScores(block_seconds)
        self.abstentions: Counter[tuple[int, str]] = Counter()

    @property
    def unscored(self) -> int:
        """Claims of this process that could not be scored: no value came, or too many were waiting."""
        dropped = self.intervals.pending.dropped + self.breaches.pending.dropped
        return self.intervals.unscored + self.breaches.unscored + dropped

    def published_quantiles(
        self, quantiles: Floats, classes: Ints, horizon_seconds: float, surprise: Floats | None = None
    ) -> Floats:
        """Quantiles to publish: intervals scaled so that past ones of their class and horizon had their coverage.

        Args:
            quantiles: Shape (n, levels), at `LEVELS`; NaN where there is none.
            classes: Shape (n,).
            horizon_seconds: One of the horizons.
            surprise: Shape (n,), distance of each newest value from its forecast (`surprise_of`); None if unknown.
        """
        surprises = np.full(len(quantiles), np.nan) if surprise is None else surprise
        return self.intervals.published(quantiles, classes, self._horizon(horizon_seconds), surprises)

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
        """Remember quantile forecasts; those of series that have one pending for the horizon are ignored.

        Args:
            block: The newest block whose values the forecasts use.
            series: Shape (n,), numbers from `series_number`, without repetitions.
            classes: Shape (n,), numbers from `class_number`.
            horizon_seconds: One of the horizons.
            quantiles: Shape (n, levels), at `LEVELS`, before `published_quantiles`; NaN where there is none.
            naive: Shape (n,), values of the newest block.
            seasonal: Shape (n,), values one season before the block that is due; NaN or None where there is no season.
            surprise: As for `published_quantiles`.
        """
        unknown = np.full(len(series), np.nan)
        seasonals, surprises = (unknown if each is None else each for each in (seasonal, surprise))
        horizon = self._horizon(horizon_seconds)
        self.intervals.claim(series, classes, horizon, block, quantiles, naive, seasonals, surprises)

    def claim_breaches(self, block: int, series: Ints, classes: Ints, probability: Floats) -> None:
        """Remember breach probabilities; those of series that have one pending for a horizon are ignored there.

        Args:
            block: The newest block whose values they use.
            series: Shape (n,), without repetitions.
            classes: Shape (n,).
            probability: Shape (n, h), as published; NaN while abstaining and while the limit is passed.
        """
        for horizon, seconds in enumerate(self.horizons_seconds.tolist()):
            due = block + self._lead(seconds)
            self.breaches.claim(block, series, classes, horizon, due, probability[:, horizon])

    def abstain(self, number: int, reason: str, count: int = 1) -> None:
        """Count claims that were not made.

        Args:
            number: Of the class.
            reason: Why; a value of `Abstention`.
            count: How many.
        """
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
        """Compare claims with the values of a block; call it for each block in order.

        Some series of a block may be settled later than others, each once.

        Args:
            block: Its number.
            series: Shape (n,), those that have values in it, without repetitions.
            classes: Shape (n,).
            values: Shape (n,), mean of each.
            beyond: Shape (n,), whether each is at or beyond its limit.
            firing: Shape (n,), whether each has an alert.
            gpus: GPUs that reported in the block and were not in an earlier call for it.
            span: Blocks since these series were settled last; more than 1 where a cycle takes longer than a block.
        """
        self.intervals.settle(block, series, values)
        self.breaches.settle(block, series, beyond, span)
        self.alerts.settle(block, series, classes, beyond, firing, gpus * span)

    def give_up(self, series: Ints) -> None:
        """Remove the claims and alerts of series that have begun again."""
        if not len(series):
            return
        self.alerts.give_up(series)
        for scores in (self.intervals, self.breaches):
            chosen = np.isin(scores.pending.ints("series"), series)
            if chosen.any():
                scores.pending.take(chosen)
                scores.unscored += int(chosen.sum())

    def dump(self) -> bytes:
        """The whole state."""
        meta = {
            "classes": CLASSES,
            "horizons_seconds": self.horizons_seconds.tolist(),
            "block_seconds": self._block_seconds,
            "gpu_days": self.alerts.gpu_days,
            "abstentions": [[number, reason, count] for (number, reason), count in self.abstentions.items()],
        }
        arrays = {f"{name}/{sums}": cells.sums[sums] for name, cells in self._cells().items() for sums in cells.sums}
        arrays |= {
            f"{name}/{column}": values for name, columns in self._tables().items() for column, values in columns.items()
        }
        arrays |= {f"widening/{name}": one for name, one in self._widening().items()}
        return stored.pack(meta, arrays | self.alerts.totals())

    def load(self, state: bytes) -> None:
        """Continue from a state; scores of horizons that are not in use any more are left out.

        Claims and open alerts are kept if the length of a block is the same. Nothing changes if it raises.

        Raises:
            WireError: The state cannot be read.
        """
        try:
            saved = self._saved(*stored.unpack(state))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise WireError(f"the state of the scores has unusable data: {error!r}; scores begin again") from error
        for name, cells in self._cells().items():
            cells.sums = saved.sums[name]
        if saved.tables is not None:
            self._restore(saved.tables)
        self.intervals.widening.restore(saved.widening, same_blocks=saved.tables is not None)
        self.alerts.restore(saved.totals, saved.gpu_days)
        self.abstentions = Counter(saved.abstentions)

    def _saved(self, meta: dict[str, Any], arrays: stored.Arrays) -> _Saved:
        if tuple(meta["classes"]) != CLASSES:
            raise WireError(f"the state of the scores has the classes {meta['classes']}; scores begin again")
        before = {float(horizon): number for number, horizon in enumerate(meta["horizons_seconds"])}
        kept = [(number, before[each]) for number, each in enumerate(self.horizons_seconds.tolist()) if each in before]
        tables = {name: stored.table(arrays, name, columns) for name, columns in self._tables().items()}
        for name in ("interval_claims", "breach_claims"):
            tables[name] = stored.renumbered(tables[name], kept)
        totals = {name.split("/")[1]: total for name, total in self.alerts.totals().items()}
        return _Saved(
            sums={name: stored.cells(arrays, name, cells.sums, kept) for name, cells in self._cells().items()},
            tables=tables if float(meta["block_seconds"]) == self._block_seconds else None,
            widening=stored.cells(arrays, "widening", self._widening(), kept),
            totals=stored.table(arrays, TOTALS, totals),
            gpu_days=float(meta["gpu_days"]),
            abstentions={(int(number), str(reason)): int(count) for number, reason, count in meta["abstentions"]},
        )

    def _cells(self) -> dict[str, Cells]:
        return {"intervals": self.intervals.cells, "breaches": self.breaches.cells}

    def _widening(self) -> stored.Arrays:
        return {name: getattr(self.intervals.widening, name) for name in SAVED}

    def _tables(self) -> dict[str, stored.Arrays]:
        return {
            "interval_claims": self.intervals.pending.columns,
            "breach_claims": self.breaches.pending.columns,
            "open_alerts": self.alerts.open,
        }

    def _restore(self, tables: dict[str, stored.Arrays]) -> None:
        self.intervals.pending.columns = tables["interval_claims"]
        self.breaches.pending.columns = tables["breach_claims"]
        self.alerts.open = tables["open_alerts"]

    def _horizon(self, horizon_seconds: float) -> int:
        return int(np.abs(self.horizons_seconds - horizon_seconds).argmin())

    def _lead(self, horizon_seconds: float) -> int:
        """Blocks of a horizon."""
        return max(round(horizon_seconds / self._block_seconds), 1)
