"""One step of a program, the input of `PeerDetector`: how long each worker computed."""

from dataclasses import dataclass

import numpy as np

from kernelcast.predictor.arrays import Floats


@dataclass(frozen=True, slots=True)
class PeerStep:
    """Measurements of one step.

    Attributes:
        step: The program's own number of the step.
        unit_seconds: float64, shape (workers, units), compute time without waiting. A unit is a part of the step
            that has the same index for all workers, such as a kernel; one unit if the step is not divided.
            NaN where a worker reported nothing.
    """

    step: int
    unit_seconds: Floats

    @property
    def mean_seconds(self) -> Floats:
        """Shape (workers,), mean compute time of a unit; NaN for a worker that reported nothing."""
        count = np.sum(~np.isnan(self.unit_seconds), axis=1)
        total = np.nansum(self.unit_seconds, axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)
