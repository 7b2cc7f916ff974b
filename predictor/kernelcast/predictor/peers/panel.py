"""One step of a program, the input of `PeerDetector`: how long each worker computed and each link transferred."""

from dataclasses import dataclass

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class PeerStep:
    """Measurements of one step.

    Attributes:
        step: The program's own number of the step.
        unit_seconds: float64, shape (workers, units), compute time without waiting. A unit is a part of the step
            that has the same index for all workers, such as a microbatch; one unit if the step is not divided.
            NaN where a worker reported nothing.
        transfer_seconds: float64, shape (links,), time of one transfer without waiting, NaN where unknown; empty
            without links.
        transfers: int64, shape (links,), number of transfers in the step.
    """

    step: int
    unit_seconds: Floats
    transfer_seconds: Floats
    transfers: Ints

    @classmethod
    def of_compute(cls, step: int, unit_seconds: Floats) -> "PeerStep":
        """A step without links; `unit_seconds` has the shape (workers,) or (workers, units)."""
        units = unit_seconds if unit_seconds.ndim > 1 else unit_seconds[:, np.newaxis]
        return cls(step, units, np.zeros(0), np.zeros(0, dtype=np.int64))

    @property
    def mean_seconds(self) -> Floats:
        """Shape (workers,), mean compute time of a unit; NaN for a worker that reported nothing."""
        count = np.sum(~np.isnan(self.unit_seconds), axis=1)
        total = np.nansum(self.unit_seconds, axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@dataclass(frozen=True, slots=True)
class Links:
    """Links between workers, in the order of `PeerStep.transfer_seconds`.

    Attributes:
        source: int64, shape (links,), index of the sending worker.
        target: int64, shape (links,), index of the receiving worker; the source itself for a worker's part in a
            collective, of which the other end is not known.
        group: int64, shape (links,); links of one group carry equal messages between the same two groups of workers.
        kind: int64, shape (links,); links of one kind, with the same message size, replace peers where a group is
            small.
    """

    source: Ints
    target: Ints
    group: Ints
    kind: Ints

    @classmethod
    def none(cls) -> "Links":
        """No links."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty)


def busy_from_waits(step_seconds: float, wait_seconds: Floats) -> Floats:
    """Compute time of workers of which only collectives were measured.

    A collective ends for all ranks together, so the rank that waits least arrived last: it computed longest.

    Args:
        step_seconds: Duration of the step, the same for all ranks.
        wait_seconds: Shape (workers,), time in collectives.

    Returns:
        Shape (workers,), the time outside collectives; NaN where it would not be positive.
    """
    busy = step_seconds - wait_seconds
    return np.where(busy > 0, busy, np.nan)
