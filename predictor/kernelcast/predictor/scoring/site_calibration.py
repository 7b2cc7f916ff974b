"""Calibration by a site's own outcomes: after enough crossings it replaces the shipped one, by class and horizon."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.passage.calibration import Calibration, isotonic, shipped
from kernelcast.predictor.scoring.cells import Cells

LEAST_CROSSINGS: Final = 50
"""Independent crossings of a class and horizon from which on its own outcomes calibrate it."""
PRIOR_CLAIMS: Final = 2.0
"""Weight of the shipped probability in each bin, in claims: a bin with few of them stays near it."""
SITE: Final = "site"
_RISE: Final = 1e-6
"""Least rise of a map from 0 to 1, so that it can be inverted."""

Map = tuple[Floats, Floats]
"""Knots: probability before, ascending, and after."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteCalibration:
    """The shipped calibration, followed by maps of the cells that have enough crossings.

    Attributes:
        base: The shipped one.
        horizons_seconds: Shape (h,).
        maps: By number of class and horizon.
    """

    base: Calibration
    horizons_seconds: Floats
    maps: Mapping[tuple[int, int], Map]

    def origin(self, number: int, horizon: int) -> str:
        """Origin of the outcomes that a class and a horizon are calibrated by."""
        return SITE if (number, horizon) in self.maps else self.base.origin

    def inverse(self, said: Floats, classes: Ints, horizon: int) -> Floats:
        """Probabilities before the site's own maps, shape (n,)."""
        found = said.copy()
        for number in np.unique(classes).tolist():
            if (number, horizon) in self.maps:
                before, after = self.maps[number, horizon]
                mine = classes == number
                found[mine] = np.interp(said[mine], after, before)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class RowCalibration:
    """A site's calibration for series of known classes.

    Attributes:
        site: Maps by class and horizon.
        classes: Shape (n,).
        scale: Seconds of event time in a second of the horizons that are asked.
    """

    site: SiteCalibration
    classes: Ints
    scale: float = 1.0

    def apply(self, probability: Floats, seconds: Floats) -> Floats:
        """Calibrate probabilities.

        Args:
            probability: Shape (m, g), where m is n, or a multiple for several moments of the n series; NaN stays.
            seconds: Shape (g,), horizon of each column; a map of the nearest horizon applies, by ratio.

        Returns:
            Shape (m, g), not descending in a row.
        """
        found = self.site.base.apply(probability, seconds)
        if not self.site.maps:
            return found
        classes = np.resize(self.classes, len(found))
        nearest = np.abs(np.log(seconds[:, None] * self.scale / self.site.horizons_seconds)).argmin(axis=1)
        for (number, horizon), (before, after) in self.site.maps.items():
            place = np.ix_(classes == number, nearest == horizon)
            found[place] = np.interp(found[place], before, after)
        calibrated: Floats = np.maximum.accumulate(found, axis=1)
        return calibrated


def fit(cells: Cells, horizons_seconds: Floats) -> SiteCalibration:
    """Fit a map for every class and horizon with enough crossings: isotonic regression on bins.

    Args:
        cells: Sums of `BreachScores`.
        horizons_seconds: Shape (h,).
    """
    enough = np.argwhere(cells["crossings"] >= LEAST_CROSSINGS).tolist()
    maps = {(number, horizon): _map(cells, number, horizon) for number, horizon in enough}
    return SiteCalibration(shipped(), horizons_seconds, maps)


def _map(cells: Cells, number: int, horizon: int) -> Map:
    claims, said, came = (cells[f"map_{name}"][number, horizon] for name in ("claims", "said", "came"))
    filled = claims > 0
    claims, said, came = claims[filled], said[filled], came[filled]
    middle = said / claims
    share = (came + PRIOR_CLAIMS * middle) / (claims + PRIOR_CLAIMS)
    fitted = isotonic(share, claims + PRIOR_CLAIMS)
    before = np.r_[0.0, np.clip(middle, 1e-9, 1.0 - 1e-9), 1.0]
    after = np.r_[fitted[0], fitted, fitted[-1]]
    return before, np.clip(after * (1.0 - _RISE) + _RISE * before, 0.0, 1.0)
