"""Shares of time in which each program's kernels, and its waits, were measured, for rates of what was seen in it.

`WindowFeed` divides the rates of metrics of `wire.catalogue.windows` by it.
"""

from typing import Final

import numpy as np

from kernelcast.columnar import Attributes
from kernelcast.predictor.arrays import Floats, Ints, extended
from kernelcast.predictor.series.windows import NOT_ADMITTED, Windows
from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.catalogue.windows import measured_time

TIMES: Final = {kernel.PROBE_MEASURED: 0, kernel.PROBE_WAITS_MEASURED: 1, kernel.PROBE_RUNNING: 2}
"""Columns of a program's times."""
_PROGRAM: Final = frozenset(kernel.PROGRAM_LABELS)


class MeasuredShares:
    """Rows of the times of each program; program and measured time of each row. The caller holds the windows' lock."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._numbers: dict[Attributes, int] = {}
        self._times: Ints = np.full((0, len(TIMES)), NOT_ADMITTED, np.int64)
        # Number of the program, and column of the measured time.
        self._program: Ints = np.zeros((0, 2), np.int64)

    def place(self, metric: Metric, labels: Attributes, row: int) -> None:
        """Record the row of a program's time, or of a total that was seen in it."""
        program = tuple(pair for pair in labels if pair[0] in _PROGRAM)
        number = self._numbers.get(program)
        if number is None:
            number = self._numbers[program] = len(self._times)
            self._times = np.concatenate([self._times, np.full((1, len(TIMES)), NOT_ADMITTED, np.int64)])
        if metric in TIMES:
            self._times[number, TIMES[metric]] = row
            return
        self._program = extended(self._program, row + 1, 0)
        self._program[row] = number, TIMES[measured_time(metric)]

    def forget(self, rows: Ints) -> None:
        """Forget dropped rows of times, and the names of their programs."""
        gone = np.isin(self._times, rows)
        self._times[gone] = NOT_ADMITTED
        ended = set(np.flatnonzero(gone.any(axis=1)).tolist())
        if ended:
            self._numbers = {name: number for name, number in self._numbers.items() if number not in ended}

    def of(self, rows: Ints, time_ns: Ints) -> Floats:
        """The share at a time of each row.

        Args:
            rows: Shape (n,), rows of totals.
            time_ns: Shape (n,), Unix nanoseconds.

        Returns:
            Shape (n,). 1 for a program that does not count its measured time, and where no time passed; NaN for an
            interval in which nothing was measured. Before the times of an interval have come: that of the newest one.
        """
        program, column = self._program[rows].T
        times = np.stack([self._times[program, column], self._times[program, TIMES[kernel.PROBE_RUNNING]]], axis=1)
        counted = (times != NOT_ADMITTED).all(axis=1)
        shares: Floats = np.ones(len(rows))
        if counted.any():
            last = time_ns[counted] // self._windows.interval_ns
            measured, running = (
                self._windows.read(each, np.minimum(last, self._windows.newest[each]), 1)[:, 0].astype(np.float64)
                for each in times[counted].T
            )
            share = np.divide(measured, running, out=np.ones(len(running)), where=running != 0)
            shares[counted] = np.where(share > 0, share, np.nan)
        return shares
