"""Begins a regime of the kernels of programs that changed since the last cycle, and saves the regimes of rows.

`Cycle` calls it before the detector runs, with the changes that programs reported: other versions (a deploy), and other
values of tunables. In a new regime the baseline of a kernel is learnt again.
"""

from collections.abc import Mapping

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.faults.deploys import Deploys
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.program_changes import ProgramChanges, kernels_by_former, kernels_of
from kernelcast.predictor.series.windows import EMPTY
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.predictor.tuning.runs import RunKey
from kernelcast.wire.identity import Versions


class Regimes:
    """Begins and saves regimes. Only the thread that runs cycles begins them; saving happens under the lock."""

    def __init__(self, source: PanelSource, detection: Detection, deploys: Deploys) -> None:
        self._source = source
        self._detection = detection
        self._deploys = deploys

    def begin(self, rows: Ints, newest: Ints, changes: ProgramChanges) -> None:
        """Begin the regimes of kernels whose program runs on other versions, or with another value of a tunable.

        Args:
            rows: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            changes: Changes since the last cycle.
        """
        self._begin_versions(rows, newest, changes.redeployed)
        self._begin_values(rows, newest, changes)

    def saved(self, rows: Ints) -> Floats:
        """First interval of each row's regime, its baseline and an unused column, shape (n, 3)."""
        source, state = self._source, self._detection.state
        saved = np.tile([float(EMPTY), np.nan, np.nan], (len(rows), 1))
        for place in np.flatnonzero(state.holds(rows, source.windows.generation[rows])).tolist():
            block = source.regimes.since(int(rows[place]))
            saved[place, 0] = EMPTY if block is None else block * source.histories.block_intervals
            saved[place, 1] = state.baseline[rows[place]]
        return saved

    def restore(self, rows: Ints, saved: Floats) -> None:
        """Restore what `saved` returned, of rows that are described already."""
        known = np.flatnonzero(saved[:, 0] > EMPTY / 2)
        blocks = saved[known, 0].astype(np.int64) // self._source.histories.block_intervals
        self._source.regimes.put(rows[known], blocks, np.ones(len(known), np.int64))
        self._detection.state.baseline[rows] = saved[:, 1]

    def _begin_versions(self, rows: Ints, newest: Ints, redeployed: Mapping[RunKey, Versions]) -> None:
        source = self._source
        with source.lock:
            by_former = kernels_by_former(redeployed, rows, source.attributes, source.windows)
        for former, mine in by_former.items():
            self._begin_since_last_cycle(mine, rows, newest, former)

    def _begin_values(self, rows: Ints, newest: Ints, changes: ProgramChanges) -> None:
        source = self._source
        with source.lock:
            source.trials.update(changes.trials, rows, source.attributes, source.windows)
            retuned = [kernels_of(*which, rows, source.attributes, source.windows) for which in changes.retuned]
        for mine in retuned:
            self._begin_since_last_cycle(mine, rows, newest)

    def _begin_since_last_cycle(
        self, mine: list[int], rows: Ints, newest: Ints, former: Versions | None = None
    ) -> None:
        """Begin a regime of rows that changed since the last cycle; of a deploy with the versions before."""
        if not mine:
            return
        source, changed = self._source, np.array(mine, np.int64)
        interval_seconds = source.windows.interval_ns / NANOSECONDS_PER_SECOND
        cycle_intervals = round(source.settings.sweep_every_seconds / interval_seconds)
        # The block in which they changed has values of both; the first blocks of a regime count for no baseline.
        blocks = (self._newest_of_hosts(changed, rows, newest) - cycle_intervals) // source.histories.block_intervals
        for block in np.unique(blocks).tolist():
            part = changed[blocks == block]
            if former is not None:
                self._deploys.deployed(part, block, former)
            self._detection.begin_regime(part, block)
        self._detection.regimes_begun += len(mine)

    def _newest_of_hosts(self, changed: Ints, rows: Ints, newest: Ints) -> Ints:
        """Newest interval of each row's host among the rows that changed: a host may have a clock that is ahead."""
        host, place = np.unique(self._source.attributes.host[changed], return_inverse=True)
        last = np.full(len(host), EMPTY, np.int64)
        np.maximum.at(last, place, newest[np.searchsorted(rows, changed)])
        return last[place]
