"""One cycle over all series: detector, claims of earlier cycles, then the publication.

`Engine.run_cycle` runs a cycle every `sweep_every_seconds`; its report has predictions for `publish` and candidates for
`alarms`. The stages are objects of this folder: `Regimes`, `Detection`, `Claims` and `Publication`. Panels are copied
out of the windows in chunks, so that the thread which reads Kafka waits for the lock for milliseconds only.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.cycle.claims import Claims
from kernelcast.predictor.cycle.deep_fits import DeepFits
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.forecasts import Forecasts, SeriesForecast
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, Bounds, CycleReport
from kernelcast.predictor.cycle.program_changes import ProgramChanges, TrialBlocks
from kernelcast.predictor.cycle.publication import Publication
from kernelcast.predictor.cycle.regimes import Regimes
from kernelcast.predictor.forecasting.deep.pool import Pool
from kernelcast.predictor.series.attributes import SeriesAttributes
from kernelcast.predictor.series.changes import ChangePoints
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.windows import EMPTY, Windows
from kernelcast.predictor.settings import PredictorSettings

CHUNK_ROWS: Final = 4096
"""Rows described under the lock at a time, so that the reading of Kafka never waits long."""
STALE_INTERVALS: Final = 5.0
"""A series that has no point for this number of intervals takes no part in a cycle."""
LEAST_STALE_SECONDS: Final = 10.0
"""The least of this time, for short intervals: samples may be some seconds late."""


class Cycle:
    """Runs cycles over one set of windows; one thread at a time, besides the one that writes the windows.

    Attributes:
        attributes: Of all rows.
        histories: Blocks of all rows.
        regimes: Number of each row's regime, besides its process and its code version.
        detection: The detector and its state.
        degradations: Breaches as they are published.
        coverage: Coverage of past forecasts by metric.
        row_scores: Scores of everything that is published, by class and horizon.
        deploys: Kernels that a deploy made slower.
        fleet: Comparison of GPUs with the other nodes of the fleet.
        deep: Models that statsmodels fits; None where that is switched off.
        limit_origins: Origin of slowdown temperatures that no exporter writes, by UUID and instance of the GPU.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        windows: Windows,
        lock: threading.RLock,
        *,
        timer: Callable[[], float] = time.perf_counter,
        pool: Pool | None = None,
    ) -> None:
        self._pending: PredictorSettings | None = None
        self._unused = ProgramChanges()
        self._refilled: list[Ints] = []
        self._silent: list[Ints] = []
        self._windows = windows
        self._lock = lock
        self._timer = timer
        self._time_ns = 0
        self._stale_seconds = max(STALE_INTERVALS * settings.interval_seconds, LEAST_STALE_SECONDS)
        self.limit_origins: dict[tuple[str, str], str] = {}
        self.attributes = SeriesAttributes(settings)
        self.histories = Histories(windows, lock, block_seconds=settings.block_seconds)
        self.histories.excused = self.attributes.excused
        self.regimes = ChangePoints(0)
        self._source = source = PanelSource(
            windows, self.histories, self.attributes, self.regimes, lock, TrialBlocks(self.histories.block_ns)
        )
        self.block_seconds = source.block_seconds
        self.detection = Detection(source)
        self.deep = DeepFits(pool, settings.deep.fits_per_block) if pool is not None else None
        self._forecasts = Forecasts(self.histories, self.block_seconds, self.deep)
        self._claims = Claims(source, self.detection, self.block_seconds)
        self.coverage, self.row_scores = self._claims.coverage, self._claims.row_scores
        self._publication = Publication(source, self.detection, self._claims, self._forecasts, self._timer)
        self.degradations, self.deploys = self._publication.degradations, self._publication.deploys
        self.fleet = self._publication.fleet
        self._program_regimes = Regimes(source, self.detection, self.deploys)

    def run(self, *, now_seconds: float, changes: ProgramChanges | None = None) -> CycleReport:
        """Run one cycle over all live series.

        Args:
            now_seconds: This process's clock, the one that windows were written under.
            changes: Changes of programs since the last cycle; None for none.
        """
        self._unused = changes = (changes or ProgramChanges()).with_earlier(self._unused)
        start, report = self._timer(), CycleReport()
        self._apply_settings()
        rows, newest = self._live(now_seconds)
        self.histories.advance(rows)
        while self._refilled:
            self.detection.state.evaluate_again(self._refilled.pop())
        while self._silent:
            self.detection.state.reset(self._silent.pop())
        # Before their use: a change that cannot be used must not end each later cycle.
        self._unused = ProgramChanges()
        before = self.detection.regimes_begun
        self._program_regimes.begin(rows, newest, changes)
        self._claims.sync(rows)
        evaluated = self._evaluate(rows, newest, changes, report)
        report.time_ns = self._event_time_ns(newest)
        report.regimes_begun = self.detection.regimes_begun - before
        self._claims.abstain(evaluated, report)
        self._claims.settle(rows, newest, evaluated)
        self._publication.run(rows, newest, report, changes)
        report.seconds = self._timer() - start
        return report

    def change(self, settings: PredictorSettings) -> None:
        """Apply thresholds, horizons and selections with the next cycle; callable from any thread."""
        self._pending = settings

    def evaluate_again(self, rows: Ints) -> None:
        """Evaluate the newest blocks of rows in the next cycle: they have another past; callable from any thread."""
        self._refilled.append(rows)

    def forget_alerts(self, rows: Ints) -> None:
        """Forget the alerts of rows that are silent; their past stays. Callable from any thread."""
        self._silent.append(rows)

    def forecast_of(self, row: int) -> SeriesForecast | None:
        """The forecast of a row from its newest or second newest block; None without one."""
        forecast = self._forecasts.get(row, int(self.detection.state.generation[row]))
        newest_block = int(self._windows.newest[row]) // self.histories.block_intervals - 1
        return forecast if forecast is not None and newest_block - 1 <= forecast.block else None

    def bounds_of(self, row: int) -> dict[float, Bounds]:
        """Bounds of that forecast as they are published, by horizon in seconds."""
        forecast = self.forecast_of(row)
        return self._publication.bounds(row, forecast) if forecast is not None else {}

    def abstention_of(self, row: int) -> Abstention | None:
        """The reason for publishing nothing about a kernel whose alert fires; None where it is published."""
        return self._publication.explanations.abstention_of(row)

    def excused(self, row: int) -> bool:
        """Whether the calendar has a period for a row now; call it under the lock."""
        time_ns = self._windows.newest[[row]] * self._windows.interval_ns
        return bool(self.attributes.excused_now(np.array([row]), time_ns)[0])

    def sync(self, rows: Ints) -> None:
        """Describe rows that are new, and forget the series that had them before; call it under the lock."""
        self.attributes.sync(rows, self._windows)
        self.regimes.grow(int(rows.max(initial=-1)) + 1)
        self.regimes.clear(self.detection.state.sync(rows, self._windows.generation[rows]))

    def saved_regimes(self, rows: Ints) -> Floats:
        """Regimes of rows, for a snapshot; see `Regimes.saved`."""
        return self._program_regimes.saved(rows)

    def restore_regimes(self, rows: Ints, saved: Floats) -> None:
        """Restore what `saved_regimes` returned; call it under the lock."""
        self.sync(rows)
        self._program_regimes.restore(rows, saved)

    def saved_alarms(self, rows: Ints) -> Ints:
        """State of the alerts of rows, for a snapshot; see `DetectorState.saved_alarms`."""
        return self.detection.state.saved_alarms(rows, self._windows.generation[rows])

    def restore_alarms(self, rows: Ints, saved: Ints) -> None:
        """Restore what `saved_alarms` returned; call it under the lock."""
        self.sync(rows)
        self.detection.state.restore_alarms(rows, saved)

    def _apply_settings(self) -> None:
        settings, self._pending = self._pending, None
        if settings is not None:
            self.attributes.change(settings)
            self.detection.change()

    def _live(self, now_seconds: float) -> tuple[Ints, Ints]:
        """Rows that report, and the newest interval of each; describes those that are new."""
        with self._lock:
            every = self._windows.rows()
            rows = every[self._windows.touched[every] >= now_seconds - self._stale_seconds]
            rows = rows[self._windows.newest[rows] != EMPTY]
            newest = self._windows.newest[rows]
            described = every if self.attributes.forget_names() else rows
        for begin in range(0, len(described), CHUNK_ROWS):
            part = described[begin : begin + CHUNK_ROWS]
            with self._lock:
                self.sync(part)
        return rows, newest

    def _evaluate(self, rows: Ints, newest: Ints, changes: ProgramChanges, report: CycleReport) -> Ints:
        """Run the detector on the rows with a limit; returns the rows that have a new evaluation."""
        judged = self.attributes.judged[rows]
        numbers = [self.attributes.program_number(program) for program in changes.versioned]
        known_versions = np.isin(self.attributes.program[rows], numbers)
        evaluated = self.detection.run(rows[judged], newest[judged], known_versions[judged])
        report.evaluated, report.watched = len(evaluated), int(judged.sum())
        return evaluated

    def _event_time_ns(self, newest: Ints) -> int:
        """End of the newest interval that nearly all series have; later than that of the last cycle.

        It is earlier where this machine's clock was set back too: by more than a window, as in `Windows`.
        """
        if not len(newest):
            self._time_ns += self._time_ns > 0
            return self._time_ns
        now_ns = (self._source.common_interval(newest) + 1) * self._windows.interval_ns
        is_set_back = now_ns < self._time_ns - self._windows.points * self._windows.interval_ns
        self._time_ns = now_ns if is_set_back else max(now_ns, self._time_ns + 1)
        return self._time_ns
