"""Cumulative durations of all kernels of all GPUs, advanced a step at a time in one piece."""

from statistics import NormalDist
from typing import Final

import numpy as np

from kernelcast.exporter.replay.trace import IntArray
from kernelcast.exporter.simulate.program import FloatArray
from kernelcast.wire.histogram import BUCKETS_PER_DOUBLING, NANOSECONDS_PER_SECOND, DurationTotals

_LOWEST: Final = -30 * BUCKETS_PER_DOUBLING
_HIGHEST: Final = 20 * BUCKETS_PER_DOUBLING
_BOUNDS_NS: Final = np.array(
    [2.0 ** (index / BUCKETS_PER_DOUBLING) * NANOSECONDS_PER_SECOND for index in range(_LOWEST, _HIGHEST + 1)]
)
QUANTILES: Final = 8
"""Number of durations that a kernel's launches of a step take: the middles of equal shares of a normal law."""
_DEVIATES: Final = np.array([NormalDist().inv_cdf((number + 0.5) / QUANTILES) for number in range(QUANTILES)])


def bucket_indices(duration_ns: IntArray) -> IntArray:
    """The scale-3 bucket of each duration above 0; as `kernelcast.wire.histogram.bucket_index`, for arrays."""
    positions = np.searchsorted(_BOUNDS_NS, duration_ns, side="left") - 1
    return _LOWEST + np.clip(positions, 0, len(_BOUNDS_NS) - 2)


class FleetDurations:
    """Cumulative durations of each kernel on each GPU, arrays of shape (gpus, kernels); `SimulatedFleet` has one."""

    def __init__(self, gpus: int, kernels: int) -> None:
        self.launches = np.zeros((gpus, kernels), dtype=np.int64)
        self._sum_ns = np.zeros((gpus, kernels), dtype=np.int64)
        # Sums of squares outgrow 64 bits within seconds, so they are Python's integers.
        self._squares = np.zeros((gpus, kernels), dtype=np.object_)
        self._buckets = np.zeros((gpus, kernels, len(_BOUNDS_NS)), dtype=np.int64)
        rows, columns = np.indices((gpus, kernels))
        self._rows, self._columns = rows[:, :, None], columns[:, :, None]

    def add(self, launches: IntArray, mean_ns: FloatArray, *, spread: FloatArray, step: int) -> IntArray:
        """Add one step's launches.

        Args:
            launches: Shape (gpus, kernels).
            mean_ns: Shape (gpus, kernels), the middle of their durations.
            spread: Shape (kernels,), relative width of their distribution.
            step: Number of the step, which rotates who gets the odd launches.

        Returns:
            GPU time of each, shape (gpus, kernels), nanoseconds.
        """
        factors = np.exp(spread[:, None] * _DEVIATES)
        durations = np.maximum(np.rint(mean_ns[:, :, None] * factors), 1).astype(np.int64)
        turn = (np.arange(QUANTILES) + step) % QUANTILES
        times = (launches[:, :, None] + turn) // QUANTILES
        gpu_time: IntArray = (durations * times).sum(axis=2)
        self.launches += launches
        self._sum_ns += gpu_time
        self._squares += (durations.astype(np.object_) ** 2 * times).sum(axis=2)
        where = np.broadcast_arrays(self._rows, self._columns, bucket_indices(durations) - _LOWEST)
        np.add.at(self._buckets, tuple(where), times)
        return gpu_time

    def totals(self, gpu: int) -> tuple[DurationTotals, ...]:
        """The totals of each kernel of one GPU."""
        result = []
        for kernel in range(self.launches.shape[1]):
            dense = self._buckets[gpu, kernel]
            filled = np.flatnonzero(dense)
            buckets = dict(zip((filled + _LOWEST).tolist(), dense[filled].tolist(), strict=True))
            count, sum_ns = int(self.launches[gpu, kernel]), int(self._sum_ns[gpu, kernel])
            result.append(DurationTotals(count, sum_ns, int(self._squares[gpu, kernel]), 0, buckets))
        return tuple(result)

    def reset(self, gpu: int) -> None:
        """A new process counts from 0."""
        for table in (self.launches, self._sum_ns, self._squares, self._buckets):
            table[gpu] = 0
