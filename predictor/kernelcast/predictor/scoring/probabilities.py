"""Scores of breach probabilities: Brier score, and reliability by bins."""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.cells import Cells, ratio
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.pending import LATE_BLOCKS, Pending

BINS: Final = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
"""Edges of the bins of reliability: per bin the mean probability is compared with the share of breaches that came."""
LEAST_OBSERVED: Final = 0.5
"""Share of a claim's blocks that must have a value before "no breach came" is an outcome."""


class BreachScores:
    """Pending breach probabilities, and the scores of those whose horizon has passed. One thread uses it at a time.

    Attributes:
        pending: The claims.
        cells: Sums over claims; `bin_` sums by bin of reliability.
        unscored: Claims whose outcome is not known, because the series had too few values.
    """

    def __init__(self, horizons: int) -> None:
        """Begin without claims.

        Args:
            horizons: Number of horizons.
        """
        number, value = np.zeros(0, np.int64), np.zeros(0, np.float32)
        self.pending = Pending(
            {
                "class": number, "issued": number, "said": value,
                "observed": number, "came": np.zeros(0, np.bool_),
            }
        )  # fmt: skip
        binned = {f"bin_{name}": (len(BINS) - 1,) for name in ("claims", "said", "came")}
        self.cells = Cells(len(CLASSES), horizons, {"came": (), "squared": (), **binned})
        self.unscored = 0

    def claim(self, block: int, series: Ints, classes: Ints, horizon: int, due: int, said: Floats) -> None:
        """Remember probabilities of series that have none pending for this horizon.

        Args:
            block: The newest block that they rest on.
            series: Shape (n,).
            classes: Shape (n,).
            horizon: Its number.
            due: The last block within the horizon.
            said: Shape (n,), probabilities as they are published; NaN for none.
        """
        fresh = self.pending.open_for(series, horizon) & np.isfinite(said)
        count = int(fresh.sum())
        self.pending.add(
            {
                "series": series[fresh],
                "horizon": np.full(count, horizon),
                "due": np.full(count, due),
                "class": classes[fresh],
                "issued": np.full(count, block),
                "said": said[fresh].astype(np.float32),
                "observed": np.zeros(count, np.int64),
                "came": np.zeros(count, np.bool_),
            }
        )

    def settle(self, block: int, series: Ints, beyond: Bools, span: int = 1) -> None:
        """Note which limits were passed in a block, and score the claims whose horizon ends with it.

        Args:
            block: Its number.
            series: Shape (n,), without repetitions.
            beyond: Shape (n,), whether each is at or beyond its limit in the block.
            span: Blocks since the series were settled before; the limit was not seen to be passed in them.
        """
        has_value, place = self.pending.matched(series)
        due = self.pending.ints("due")
        issued = self.pending.ints("issued")
        seen = np.clip(np.minimum(block, due) - np.maximum(issued, block - span), 0, None)
        within = has_value & (issued < block) & (block <= due)
        self.pending.columns["observed"] = self.pending.ints("observed") + np.where(has_value, seen, 0)
        if len(beyond):
            self.pending.columns["came"] = self.pending.columns["came"] | (within & beyond[place])
        taken = self.pending.take((has_value & (due <= block)) | (due < block - LATE_BLOCKS))
        length = np.maximum(taken["due"] - taken["issued"], 1)
        known = taken["came"].astype(np.bool_) | (taken["observed"] >= LEAST_OBSERVED * length)
        self.unscored += int((~known).sum())
        rows = {name: column[known] for name, column in taken.items()}
        classes, horizons = rows["class"].astype(np.int64), rows["horizon"].astype(np.int64)
        said, came = rows["said"].astype(np.float64), rows["came"].astype(np.float64)
        self._score(classes, horizons, said, came)

    def _score(self, classes: Ints, horizons: Ints, said: Floats, came: Floats) -> None:
        ones = np.ones(len(said))
        for name, values in (("count", ones), ("came", came), ("squared", (said - came) ** 2)):
            self.cells.add(name, classes, horizons, values)
        place = np.clip(np.searchsorted(BINS, said, side="right") - 1, 0, len(BINS) - 2)
        for name, values in (("claims", ones), ("said", said), ("came", came)):
            np.add.at(self.cells[f"bin_{name}"], (classes, horizons, place), values)
        self.cells.forget()

    def brier(self) -> Floats:
        """Brier score, shape (classes, horizons); NaN without claims."""
        return ratio(self.cells["squared"], self.cells["count"])

    def brier_skill(self) -> Floats:
        """1 less the ratio of the Brier score to that of the base rate; NaN where all outcomes are equal."""
        rate = ratio(self.cells["came"], self.cells["count"])
        return 1.0 - ratio(self.brier(), rate * (1.0 - rate))

    def reliability(self) -> tuple[Floats, Floats, Floats]:
        """Claims, mean probability and share that came, each of shape (classes, horizons, bins)."""
        claims = self.cells["bin_claims"]
        return claims, ratio(self.cells["bin_said"], claims), ratio(self.cells["bin_came"], claims)
