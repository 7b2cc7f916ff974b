"""Scores of breach probabilities: Brier score, reliability by bins, and the observations that calibration rests on."""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.cells import Cells, ratio
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.pending import LATE_BLOCKS, Pending

BINS: Final = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
"""Edges of the bins of reliability: per bin the mean probability is compared with the share of breaches that came."""
EDGES: Final = np.array([0, 1e-4, 0.003, 0.02, 0.06, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.995, 1.0])
"""Edges of the bins of calibration."""
LEAST_OBSERVED: Final = 0.5
"""Share of a claim's blocks that must have a value before "no breach came" is an outcome."""


class BreachScores:
    """Pending breach probabilities, and the scores of those whose horizon has passed. One thread uses it at a time.

    Attributes:
        pending: The claims.
        cells: Sums over claims; `bin_` sums by bin of reliability, `map_` sums by bin of calibration.
        unscored: Claims whose outcome is not known, because the series had too few values.
    """

    def __init__(self, horizons: int, day_blocks: int) -> None:
        """Begin without claims.

        Args:
            horizons: Number of horizons.
            day_blocks: Blocks of a day: crossings of one series within a day count once.
        """
        number, value = np.zeros(0, np.int64), np.zeros(0, np.float32)
        self.pending = Pending(
            {
                "class": number, "issued": number, "said": value, "base": value,
                "observed": number, "came": np.zeros(0, np.bool_),
            }
        )  # fmt: skip
        bins, edges = (len(BINS) - 1,), (len(EDGES) - 1,)
        sums = {"came": (), "squared": (), "crossings": ()}
        binned = {f"bin_{name}": bins for name in ("claims", "said", "came")}
        mapped = {f"map_{name}": edges for name in ("claims", "said", "came")}
        self.cells = Cells(len(CLASSES), horizons, {**sums, **binned, **mapped}, lasting=["crossings"])
        self.unscored = 0
        self.crossed = {name: np.zeros(0, np.int64) for name in ("series", "horizon", "block")}
        self._day_blocks = day_blocks

    def claim(  # noqa: PLR0913, PLR0917  one array each
        self, block: int, series: Ints, classes: Ints, horizon: int, due: int, said: Floats, base: Floats
    ) -> None:
        """Remember probabilities of series that have none pending for this horizon.

        Args:
            block: The newest block that they rest on.
            series: Shape (n,).
            classes: Shape (n,).
            horizon: Its number.
            due: The last block within the horizon.
            said: Shape (n,), probabilities as they are published; NaN for none.
            base: Shape (n,), the same before the site's own calibration.
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
                "base": base[fresh].astype(np.float32),
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
        self._forget_ahead(block, series)
        found, place = self.pending.matched(series)
        due = self.pending.ints("due")
        issued = self.pending.ints("issued")
        seen = np.clip(np.minimum(block, due) - np.maximum(issued, block - span), 0, None)
        within = found & (issued < block) & (block <= due)
        self.pending.columns["observed"] = self.pending.ints("observed") + np.where(found, seen, 0)
        if len(beyond):
            self.pending.columns["came"] = self.pending.columns["came"] | (within & beyond[place])
        taken = self.pending.take((found & (due <= block)) | (due < block - LATE_BLOCKS))
        length = np.maximum(taken["due"] - taken["issued"], 1)
        known = taken["came"].astype(np.bool_) | (taken["observed"] >= LEAST_OBSERVED * length)
        self.unscored += int((~known).sum())
        rows = {name: column[known] for name, column in taken.items()}
        classes, horizons = rows["class"].astype(np.int64), rows["horizon"].astype(np.int64)
        said, base = rows["said"].astype(np.float64), rows["base"].astype(np.float64)
        came = rows["came"].astype(np.float64)
        self._score(classes, horizons, said, base, came)
        self._cross(block, rows["series"].astype(np.int64), classes, horizons, came > 0)

    def _forget_ahead(self, block: int, series: Ints) -> None:
        """Forget crossings of series in later blocks: the clock of their host was ahead and has been set back."""
        ahead = self.crossed["block"] > block
        if ahead.any():
            ahead &= np.isin(self.crossed["series"], series)
            self.crossed = {name: column[~ahead] for name, column in self.crossed.items()}

    def _score(self, classes: Ints, horizons: Ints, said: Floats, base: Floats, came: Floats) -> None:
        ones = np.ones(len(said))
        for name, values in (("count", ones), ("came", came), ("squared", (said - came) ** 2)):
            self.cells.add(name, classes, horizons, values)
        for prefix, edges, probability in (("bin", np.array(BINS), said), ("map", EDGES, base)):
            place = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, len(edges) - 2)
            for name, values in (("claims", ones), ("said", probability), ("came", came)):
                np.add.at(self.cells[f"{prefix}_{name}"], (classes, horizons, place), values)
        self.cells.forget()

    def _cross(self, block: int, series: Ints, classes: Ints, horizons: Ints, came: Bools) -> None:
        """Count the crossings that are independent: of one series and horizon at most one a day."""
        recent = self.crossed["block"] > block - self._day_blocks
        self.crossed = {name: column[recent] for name, column in self.crossed.items()}
        for horizon in np.unique(horizons[came]).tolist():
            mine = came & (horizons == horizon)
            mine &= ~np.isin(series, self.crossed["series"][self.crossed["horizon"] == horizon])
            new = {"series": series[mine], "horizon": horizons[mine], "block": np.full(int(mine.sum()), block)}
            self.crossed = {name: np.concatenate([column, new[name]]) for name, column in self.crossed.items()}
            np.add.at(self.cells["crossings"], (classes[mine], horizons[mine]), 1.0)

    @property
    def crossings(self) -> Floats:
        """Independent crossings so far, shape (classes, horizons)."""
        return self.cells["crossings"]

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
