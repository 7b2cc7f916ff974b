"""Anomaly scores of all live series, interval by interval of event time; `Cycle.run` advances them."""

from typing import Final

import numpy as np

from kernelcast.predictor.anomalies.detector import AnomalyDetector, AnomalyStep
from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Anomaly

CHUNK_ROWS: Final = 4096
"""Rows read under the lock at a time."""
MAX_STEPS: Final = 60
"""Intervals per cycle: after a start, the windows are read over several cycles."""
_FIRST_ROWS: Final = 64
"""Rows of the detector at first; it doubles when it is too small."""


class AnomalyScores:
    """One detector over all rows; a series begins without knowledge when it gets its row.

    Only the thread that runs cycles uses it; `get` may be called from another one, between cycles.
    """

    def __init__(self, source: PanelSource, interval_seconds: float) -> None:
        self._source = source
        self._detector = AnomalyDetector(_FIRST_ROWS, interval_seconds)
        self._generation: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self._scored: Ints = np.zeros(0, np.int64)  # generation of each row at the newest score
        self._newest: int | None = None
        self._latest: AnomalyStep | None = None

    def run(self, rows: Ints, generations: Ints, newest: Ints) -> None:
        """Score the intervals that nearly all series have, and that were not scored yet.

        Args:
            rows: Shape (n,), rows that report.
            generations: Of these rows.
            newest: Shape (n,), newest interval of each.
        """
        if not len(rows):
            return
        self._sync(rows, generations)
        # The newest interval may still change.
        until = self._source.common_interval(rows, newest) - 1
        if self._newest is not None and until < self._newest - self._source.windows.points:
            # The clocks of the hosts were ahead and have been set back; `Windows` has discarded the earlier points.
            self._newest = until - 1
        begin = until - self._source.windows.points + 1 if self._newest is None else self._newest + 1
        count = min(until - begin + 1, self._source.windows.points)
        if count <= 0:
            return
        begin = until - count + 1
        count = min(count, MAX_STEPS)
        values = np.full((count, len(self._generation)), np.nan)
        times_ns = (begin + np.arange(count)) * self._source.windows.interval_ns
        for start in range(0, len(rows), CHUNK_ROWS):
            part = rows[start : start + CHUNK_ROWS]
            with self._source.lock:
                read = self._source.windows.read(part, np.full(len(part), begin + count - 1), count)
            excused = self._source.attributes.excused(part, times_ns, self._source.windows.interval_ns)
            values[:, part] = (read if excused is None else np.where(excused, np.nan, read)).T
        for step in values:
            self._latest = self._detector.step(np.asarray(step, np.float64))
        self._scored = self._generation.copy()
        self._newest = begin + count - 1

    def get(self, row: int) -> Anomaly | None:
        """Score of a row at the newest interval that was scored; None before the first one."""
        if self._latest is None or row >= len(self._scored) or self._scored[row] != self._generation[row]:
            return None
        return Anomaly(float(self._latest.score[row]), int(self._latest.direction[row]))

    def _sync(self, rows: Ints, generations: Ints) -> None:
        size = int(rows.max()) + 1
        before = len(self._generation)
        if size > before:
            size = max(size, 2 * before)
            self._detector = self._detector.enlarged(size)
            self._generation = np.concatenate([self._generation, np.zeros(size - before, np.int64)])
        reused = rows[self._generation[rows] != generations]
        if len(reused):
            self._detector.reset(reused)
            self._generation[rows] = generations
