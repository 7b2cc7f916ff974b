"""One cycle over all series: panels out of the lock in chunks, the detector, forecasts, anomaly scores, findings."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle.anomaly_scores import AnomalyScores, common_interval
from kernelcast.predictor.cycle.causes.breach_causes import BreachCauses
from kernelcast.predictor.cycle.causes.deploys import Deploys
from kernelcast.predictor.cycle.causes.device_faults import DeviceFaults, one_of_each_series
from kernelcast.predictor.cycle.causes.device_panels import DevicePanels
from kernelcast.predictor.cycle.causes.explanations import Explanations
from kernelcast.predictor.cycle.causes.fleet_comparison import FleetComparison
from kernelcast.predictor.cycle.causes.stragglers import Stragglers
from kernelcast.predictor.cycle.deep_fits import DeepFits
from kernelcast.predictor.cycle.degradations import Degradations
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.findings import findings_of
from kernelcast.predictor.cycle.forecasts import Forecasts, SeriesForecast
from kernelcast.predictor.cycle.outcomes import Outcomes
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, Anomaly, Bounds, CycleReport, Prediction
from kernelcast.predictor.cycle.program_changes import ProgramChanges, TrialBlocks, kernels_by_former, kernels_of
from kernelcast.predictor.cycle.scoring import ForecastClaim, Scores
from kernelcast.predictor.forecasting.deep.pool import Pool
from kernelcast.predictor.passage.calibration import Calibrator
from kernelcast.predictor.passage.run import MIN_BLOCKS
from kernelcast.predictor.series.attributes import SeriesAttributes
from kernelcast.predictor.series.changes import ChangePoints
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.series.windows import EMPTY, Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings
from kernelcast.predictor.tuning.runs import RunKey
from kernelcast.wire.identity import Versions

CHUNK_ROWS: Final = 4096
"""Rows described under the lock at a time, so that the reading of Kafka never waits long."""
PUBLISHED_PROBABILITY: Final = 0.4
"""Probability of a breach from which a series is published although no alert fires."""
STALE_INTERVALS: Final = 5.0


class Cycle:
    """Runs cycles over one set of windows; one thread at a time, besides the one that writes the windows.

    Attributes:
        attributes: Of all rows.
        histories: Blocks of all rows.
        regimes: Number of each row's regime, besides its process and its code version.
        detection: The detector and its memory.
        degradations: Breaches as they are published.
        scores: Coverage of past forecasts by metric.
        outcomes: Scores of everything that is published, by class and horizon.
        deploys: Kernels that a deploy made slower.
        fleet: Comparison of GPUs with the other nodes of the fleet.
        deep: Models that statsmodels fits; None where that is switched off.
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
        self._windows = windows
        self._lock = lock
        self._timer = timer
        self.attributes = SeriesAttributes(settings)
        self.histories = Histories(windows, lock, block_seconds=settings.block_seconds)
        self.histories.excused = self.attributes.excused
        self.regimes = ChangePoints(0)
        self._source = PanelSource(
            windows, self.histories, self.attributes, self.regimes, lock, TrialBlocks(self.histories.block_ns)
        )
        self.detection = Detection(self._source)
        self.degradations = Degradations(self.detection, self.attributes, self.block_seconds)
        panels = DevicePanels(self._source)
        self._faults = DeviceFaults(panels)
        self._stragglers = Stragglers(self._source)
        self._breaches = BreachCauses(panels, self.detection.memory)
        self.deploys = Deploys(self._source, self.detection.memory)
        self.fleet = FleetComparison(self._source, self._breaches, self.detection.memory)
        self._explained = Explanations(self.detection, self._source, self._breaches)
        self.deep = DeepFits(pool, settings.deep.fits_per_block) if pool is not None else None
        self._forecasts = Forecasts(self.histories, self.block_seconds, self.deep)
        self._anomalies = AnomalyScores(self._source, settings.interval_seconds)
        self.scores = Scores()
        self._time_ns = 0
        self.outcomes = Outcomes(self.detection.horizons_seconds, self.block_seconds, self._subject)
        self.detection.calibration_of = self._calibration
        self._stale_seconds = max(STALE_INTERVALS * settings.interval_seconds, 10.0)

    def run(self, *, now_seconds: float, changes: ProgramChanges | None = None) -> CycleReport:
        """Run one cycle over all live series.

        Args:
            now_seconds: This process's clock, the one that windows were written under.
            changes: Changes of programs since the last cycle; None for none.
        """
        changes = changes or ProgramChanges()
        begun, report = self._timer(), CycleReport()
        self._apply_settings()
        rows, newest = self._live(now_seconds)
        self.histories.advance(rows)
        before = self.detection.regimes_begun
        self._begin_versions(rows, newest, changes.redeployed)
        self._begin_values(rows, newest, changes)
        judged = self.attributes.judged[rows]
        known = np.isin(
            self.attributes.program[rows], [self.attributes.program_number(program) for program in changes.versioned]
        )
        self.outcomes.use_horizons(self.detection.horizons_seconds)
        self.outcomes.sync(rows, self._windows.generation[rows])
        evaluated = self.detection.run(rows[judged], newest[judged], known[judged])
        report.evaluated, report.watched = len(evaluated), int(judged.sum())
        report.time_ns = self._event_time_ns(newest)
        report.regimes_begun = self.detection.regimes_begun - before
        self._anomalies.run(rows, self._windows.generation[rows], newest)
        self._count_abstentions(evaluated, report)
        if len(evaluated):
            self._settle_scores()
        blocks = newest // self.histories.block_intervals - 1
        self.outcomes.settle(rows, blocks, self.detection.memory, self.attributes.device[rows], self._means)
        self.outcomes.claim_breaches(evaluated, self.detection.memory)
        report.judged = self._judged(rows)
        self._predict(rows, newest, report, changes)
        report.seconds = self._timer() - begun
        return report

    def change(self, settings: PredictorSettings) -> None:
        """Apply thresholds, horizons and selections with the next cycle; callable from any thread."""
        self._pending = settings

    def forecast_of(self, row: int) -> SeriesForecast | None:
        """The newest forecast of a row; None without one."""
        return self._forecasts.get(row, int(self.detection.memory.generation[row]))

    def anomaly_of(self, row: int) -> Anomaly | None:
        """The newest anomaly score of a row; None without one."""
        return self._anomalies.get(row)

    def abstention_of(self, row: int) -> Abstention | None:
        """The reason for publishing nothing about a kernel whose alert fires; None where it is published."""
        return self._explained.abstention_of(row)

    def excused(self, row: int) -> bool:
        """Whether the calendar has a period for a row now; call it under the lock."""
        time_ns = self._windows.newest[[row]] * self._windows.interval_ns
        return bool(self.attributes.excused_now(np.array([row]), time_ns)[0])

    def _apply_settings(self) -> None:
        settings, self._pending = self._pending, None
        if settings is not None:
            self.attributes.change(settings)
            self.detection.change()

    def _event_time_ns(self, newest: Ints) -> int:
        """End of the newest interval that nearly all series have; later than that of the last cycle."""
        now_ns = (common_interval(newest) + 1) * self._windows.interval_ns if len(newest) else 0
        self._time_ns = max(now_ns, self._time_ns + 1)
        return self._time_ns

    def _live(self, now_seconds: float) -> tuple[Ints, Ints]:
        """Rows that report, and the newest interval of each; describes those that are new."""
        with self._lock:
            rows = self._windows.rows()
            rows = rows[self._windows.touched[rows] >= now_seconds - self._stale_seconds]
            rows = rows[self._windows.newest[rows] != EMPTY]
            newest = self._windows.newest[rows]
        for begin in range(0, len(rows), CHUNK_ROWS):
            part = rows[begin : begin + CHUNK_ROWS]
            with self._lock:
                self.sync(part)
        return rows, newest

    def sync(self, rows: Ints) -> None:
        """Describe rows that are new, and forget the series that had them before; call it under the lock."""
        self.attributes.sync(rows, self._windows)
        self.regimes.grow(int(rows.max(initial=-1)) + 1)
        self.regimes.clear(self.detection.memory.sync(rows, self._windows.generation[rows]))

    def saved_regimes(self, rows: Ints) -> Floats:
        """First interval of each row's regime, its baseline and an unused column, shape (n, 3)."""
        memory, width = self.detection.memory, self.histories.block_intervals
        saved = np.tile([float(EMPTY), np.nan, np.nan], (len(rows), 1))
        for place in np.flatnonzero(memory.holds(rows, self._windows.generation[rows])).tolist():
            block = self.regimes.since(int(rows[place]))
            saved[place, 0] = EMPTY if block is None else block * width
            saved[place, 1] = memory.baseline[rows[place]]
        return saved

    def restore_regimes(self, rows: Ints, saved: Floats) -> None:
        """Restore what `saved_regimes` returned; call it under the lock."""
        self.sync(rows)
        begun = np.flatnonzero(saved[:, 0] > EMPTY / 2)
        blocks = saved[begun, 0].astype(np.int64) // self.histories.block_intervals
        self.regimes.put(rows[begun], blocks, np.ones(len(begun), np.int64))
        self.detection.memory.baseline[rows] = saved[:, 1]

    def saved_alarms(self, rows: Ints) -> Ints:
        """State of alerts, shape (n, 2): 0 for none, 1, or when the limit was passed; and since when one fires."""
        memory = self.detection.memory
        saved = np.zeros((len(rows), 2), np.int64)
        known = memory.holds(rows, self._windows.generation[rows])
        state = memory.firing[rows[known]] * np.maximum(memory.crossed_ns[rows[known]], 1)
        saved[known] = np.stack([state, memory.since_ns[rows[known]]], axis=1)
        return saved

    def restore_alarms(self, rows: Ints, saved: Ints) -> None:
        """Restore what `saved_alarms` returned; call it under the lock."""
        self.sync(rows)
        # Earlier versions saved 2 in place of the time.
        crossed_ns = np.where(saved[:, 0] == 2, saved[:, 1], saved[:, 0])
        self.detection.memory.firing[rows] = saved[:, 0] > 0
        self.detection.memory.crossed_ns[rows] = np.where(saved[:, 0] > 1, crossed_ns, 0)
        self.detection.memory.since_ns[rows] = saved[:, 1]

    def _begin_versions(self, rows: Ints, newest: Ints, redeployed: Mapping[RunKey, Versions]) -> None:
        with self._lock:
            found = kernels_by_former(redeployed, rows, self.attributes, self._windows)
        for former, mine in found.items():
            self._begin_since_last_cycle(mine, rows, newest, former)

    def _begin_values(self, rows: Ints, newest: Ints, changes: ProgramChanges) -> None:
        with self._lock:
            self._source.trials.update(changes.trials, rows, self.attributes, self._windows)
            retuned = [kernels_of(*which, rows, self.attributes, self._windows) for which in changes.retuned]
        for mine in retuned:
            self._begin_since_last_cycle(mine, rows, newest)

    def _begin_since_last_cycle(
        self, mine: list[int], rows: Ints, newest: Ints, former: Versions | None = None
    ) -> None:
        """Begin a regime of rows that changed since the last cycle; of a deploy with the versions before."""
        if not mine:
            return
        # The block in which they changed mixes both.
        since = int(newest[np.isin(rows, mine)].max())
        since -= round(self._settings.sweep_every_seconds / self.interval_seconds)
        block = since // self.histories.block_intervals
        changed = np.array(mine, np.int64)
        if former is not None:
            self.deploys.deployed(changed, block, former)
        self.detection.begin_regime(changed, block)
        self.detection.regimes_begun += len(mine)

    def _count_abstentions(self, evaluated: Ints, report: CycleReport) -> None:
        memory = self.detection.memory
        kernel = self.attributes.kernel[evaluated]
        unlimited = np.isnan(memory.limit[evaluated])
        short = memory.reach[evaluated] < MIN_BLOCKS
        self.outcomes.abstain(
            evaluated,
            {
                Abstention.NO_BASELINE: kernel & unlimited,
                Abstention.NO_THRESHOLD: ~kernel & unlimited,
                Abstention.WIDE_BASELINE: memory.wide[evaluated],
            },
        )
        report.abstentions[Abstention.NO_BASELINE] += int((kernel & unlimited).sum())
        report.abstentions[Abstention.NO_THRESHOLD] += int((~kernel & unlimited).sum())
        report.abstentions[Abstention.WIDE_BASELINE] += int(memory.wide[evaluated].sum())
        report.abstentions[Abstention.UNUSABLE_WINDOW] += int((short & ~unlimited).sum())

    def _judged(self, rows: Ints) -> int:
        """Number of rows about which the absence of a prediction says that none is probable."""
        memory = self.detection.memory
        limited = self.attributes.judged[rows] & ~np.isnan(memory.limit[rows]) & (memory.reach[rows] >= MIN_BLOCKS)
        return int((limited & self.degradations.answered(rows).any(axis=1)).sum())

    def _predict(self, rows: Ints, newest: Ints, report: CycleReport, changes: ProgramChanges) -> None:
        """Choose the series that are published, forecast them, and derive degradations and findings."""
        memory = self.detection.memory
        said = np.where(self.degradations.answered(rows), memory.probability[rows], np.nan)
        highest = np.nan_to_num(said).max(axis=1, initial=0.0)
        alarmed = memory.firing[rows] | memory.passed[rows] | memory.beyond[rows]
        excused = self.attributes.excused_now(rows, newest * self._windows.interval_ns)
        report.abstentions[Abstention.CALENDAR] += int((excused & alarmed).sum())
        flagged = self.attributes.judged[rows] & ~excused & (alarmed | (highest >= PUBLISHED_PROBABILITY))
        known, faults = self._faults.run()
        causes = self._explained(rows, newest, flagged, known, report)
        self._date_alarms(rows, newest, alarmed & flagged)
        report.flagged = len(causes)
        shown = np.flatnonzero(self.attributes.selected[rows] | np.isin(np.arange(len(rows)), list(causes)))
        urgency = np.where(alarmed, 1.0, highest)[shown]
        shown = shown[np.lexsort((rows[shown], -urgency))]
        allowed = self._settings.max_fits_per_sweep
        self._forecast(rows[shown[:allowed]], newest[shown[:allowed]], report)
        report.abstentions[Abstention.OVER_BUDGET] += max(len(shown) - allowed, 0)
        alarming: list[tuple[Prediction, int]] = []
        for place in shown.tolist():
            prediction = self._prediction(int(rows[place]), int(newest[place]), causes.get(place))
            if prediction is not None:
                report.predictions.append(prediction)
                if prediction.degradation is not None and alarmed[place]:
                    alarming.append((prediction, int(memory.since_ns[prediction.row])))
        deploys = self.deploys.run(rows, newest, changes)
        report.deploys_over = self.deploys.over
        slow = self._stragglers.run(rows, newest)
        found = (*findings_of(alarming), *faults, *deploys, *slow)
        every = one_of_each_series((*found, *self.fleet.run(rows, newest, known, found, changes)))
        excuses = self.attributes.excuses
        report.findings = [one for one in every if not excuses(one.metric, dict(one.labels), report.time_ns)]

    def _date_alarms(self, rows: Ints, newest: Ints, alarmed: Bools) -> None:
        """Note when each alert began and when its limit was passed; forget both when it ends."""
        memory, now_ns = self.detection.memory, (newest + 1) * self._windows.interval_ns
        passed = memory.passed[rows] | memory.beyond[rows]
        for since_ns, begun in ((memory.since_ns, alarmed), (memory.crossed_ns, alarmed & passed)):
            fresh = begun & (since_ns[rows] == 0)
            since_ns[rows[fresh]] = now_ns[fresh]
            since_ns[rows[~alarmed]] = 0

    def _forecast(self, rows: Ints, newest: Ints, report: CycleReport) -> None:
        begun = self._timer()
        generations = self.detection.memory.generation[rows]
        blocks = newest // self.histories.block_intervals - 1
        due = self._forecasts.due(rows, generations, blocks)
        for block in np.unique(blocks[due]).tolist():
            mine = due[blocks[due] == block]
            self._forecasts.make(rows[mine], generations[mine], block, self.detection.horizons_seconds)
            self._claim(rows[mine], generations[mine], block)
        report.forecasts = len(due)
        report.forecast_seconds = self._timer() - begun

    def _means(self, rows: Ints, block: int) -> Floats:
        return self.histories.blocks(rows, block)[0][:, -1]

    def _calibration(self, rows: Ints) -> Calibrator:
        return self.outcomes.scoring.calibration(self.outcomes.classes(rows), scale=self.detection.seconds_scale)

    def _claim(self, rows: Ints, generations: Ints, block: int) -> None:
        """Remember forecasts until it is known how they came out."""
        pairs = zip(rows.tolist(), generations.tolist(), strict=True)
        made = {row: found for row, generation in pairs if (found := self._forecasts.get(row, generation)) is not None}
        for horizon in self.detection.horizons_seconds:
            mine = [row for row, found in made.items() if horizon in found.bounds]
            if not mine:
                continue
            quantiles = np.stack([made[row].quantiles[horizon] for row in mine])
            last = np.array([made[row].last for row in mine])
            self.outcomes.claim_forecasts(block, horizon, np.array(mine), quantiles, last)
            for row in mine:
                self._claim_bounds(row, made[row].generation, block, horizon, made[row].bounds[horizon])

    def _claim_bounds(self, row: int, generation: int, block: int, horizon: float, bounds: Bounds) -> None:
        subject = self._subject(row)
        if subject is not None:
            due = block + max(round(horizon / self.block_seconds), 1)
            _, lower, upper = self.outcomes.published(row, horizon, bounds)
            self.scores.add(ForecastClaim(due, row, generation, subject.without_variant.metric, lower, upper))

    def _settle_scores(self) -> None:
        """Score the forecasts whose block has ended, by the mean of that block."""
        pending = self.scores.pending_rows()
        rows = np.array([row for row, _ in pending], np.int64)
        if not len(rows):
            return
        with self._lock:
            alive = {
                key: int(self._windows.newest[key[0]]) // self.histories.block_intervals - 1
                for key in pending
                if self._windows.generation[key[0]] == key[1]
            }
        last = max(alive.values(), default=0)
        place = {row: number for number, row in enumerate(rows.tolist())}
        mean = self.histories.blocks(rows, last)[0]

        def value(row: int, due: int) -> float:
            column = mean.shape[1] - 1 - (last - due)
            return float(mean[place[row], column]) if 0 <= column < mean.shape[1] else float("nan")

        self.scores.settle(lambda row, generation: alive.get((row, generation)), value)

    def _prediction(self, row: int, newest: int, cause: FoundCause | None) -> Prediction | None:
        subject, memory = self._subject(row), self.detection.memory
        if subject is None:
            return None
        found = self._forecasts.get(row, int(memory.generation[row]))
        known = found.bounds if found is not None else {}
        bounds = {
            each: self._widened(row, each, known[each]) for each in self.degradations.carried(row) if each in known
        }
        block = found.block if found is not None else newest // self.histories.block_intervals - 1
        return Prediction(
            row=row,
            subject=subject,
            end_ns=(block + 1) * self.histories.block_ns,
            value=float(memory.value[row]),
            bounds=bounds,
            expected=found.expected if found is not None else None,
            degradation=self.degradations.of(row, cause) if cause is not None else None,
            anomaly=self._anomalies.get(row) if self.attributes.selected[row] else None,
        )

    def _widened(self, row: int, horizon: float, bounds: Bounds) -> Bounds:
        # Durations, temperatures of running GPUs, power, memory and shares are never negative; a trend may be.
        mean, lower, upper = self.outcomes.published(row, horizon, bounds)
        return max(mean, 0.0), max(lower, 0.0), max(upper, 0.0)

    def _subject(self, row: int) -> Subject | None:
        with self._lock:
            return self._windows.subject(row)

    @property
    def _settings(self) -> PredictorSettings:
        return self.attributes.settings

    @property
    def block_seconds(self) -> float:
        """Length of a block."""
        return self.histories.block_intervals * self.interval_seconds

    @property
    def interval_seconds(self) -> float:
        """Length of an interval of the windows."""
        return self._windows.interval_ns / NANOSECONDS_PER_SECOND
