"""Calibration of breach probabilities: a monotone map for each horizon, and the origin of its data.

`first_passage` applies it.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats

SIMULATION: Final = "simulation"
_FILE: Final = "calibration.json"


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Monotone maps from computed to calibrated probability, linear between knots.

    Attributes:
        origin: Where the outcomes come from that it was fitted on, such as `SIMULATION`.
        horizons_seconds: Shape (h,), ascending.
        computed: Shape (h, k), ascending from 0 to 1 in each row.
        calibrated: Shape (h, k), not descending in a row.
    """

    origin: str
    horizons_seconds: Floats
    computed: Floats
    calibrated: Floats

    def apply(self, probability: Floats, seconds: Floats) -> Floats:
        """Calibrate probabilities.

        Args:
            probability: Shape (n, g); NaN stays.
            seconds: Shape (g,), horizon of each column; a map of the nearest horizon applies, by ratio.

        Returns:
            Shape (n, g), not descending in a row.
        """
        nearest = np.abs(np.log(seconds[:, None] / self.horizons_seconds)).argmin(axis=1)
        columns = [
            np.interp(probability[:, place], self.computed[row], self.calibrated[row])
            for place, row in enumerate(nearest.tolist())
        ]
        calibrated: Floats = np.maximum.accumulate(np.stack(columns, axis=1), axis=1)
        return calibrated


@cache
def shipped() -> Calibration:
    """The calibration that comes with the package; fitted by `python -m benchmarks.predictor.fitting.calibration`."""
    data = json.loads(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    rows = data["horizons"]
    return Calibration(
        origin=data["origin"],
        horizons_seconds=np.array([float(row["seconds"]) for row in rows]),
        computed=np.array([row["computed"] for row in rows], dtype=np.float64),
        calibrated=np.array([row["calibrated"] for row in rows], dtype=np.float64),
    )
