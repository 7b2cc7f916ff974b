"""Chooses the series that a cycle publishes, forecasts them, and derives degradations and candidate findings.

`Cycle.run` calls `Publication.run` after the detector. A series is published if an alert fires, its limit is passed or
a breach is probable, or if the settings select it. The results go into the cycle's report, whose predictions `publish`
writes to Kafka, and whose candidates `alarms` takes.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle import programs
from kernelcast.predictor.cycle.breach_causes import BreachCauses
from kernelcast.predictor.cycle.candidate_findings import breach_candidate, of_each_series
from kernelcast.predictor.cycle.claims import Claims
from kernelcast.predictor.cycle.degradations import Degradations
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.device_panels import DevicePanels, DeviceRows
from kernelcast.predictor.cycle.explanations import Explanations
from kernelcast.predictor.cycle.faults.deploys import Deploys
from kernelcast.predictor.cycle.faults.device_faults import DeviceFaults
from kernelcast.predictor.cycle.faults.fleet_comparison import FleetComparison
from kernelcast.predictor.cycle.faults.stragglers import Stragglers
from kernelcast.predictor.cycle.forecasts import Forecasts, SeriesForecast
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, Bounds, CycleReport, Prediction
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.passage.run import MIN_BLOCKS
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.findings import Finding

PUBLISHED_PROBABILITY: Final = 0.4
"""Probability of a breach from which a series is published although no alert fires; half of that which raises one."""
WITHDRAWN_PROBABILITY: Final = 0.2
"""Probability below which it is no longer published: half of the other, so that noise around it draws nothing twice."""


class Publication:
    """Fills the report of each cycle. Only the thread that runs cycles uses it.

    Attributes:
        degradations: Breaches as they are published.
        deploys: Kernels that a deploy made slower.
        fleet: Comparison of GPUs with the other nodes of the fleet.
        explanations: Cause of each flagged series, or the reason for publishing nothing about it.
    """

    def __init__(
        self,
        source: PanelSource,
        detection: Detection,
        claims: Claims,
        forecasts: Forecasts,
        timer: Callable[[], float],
    ) -> None:
        self._source = source
        self._detection = detection
        self._claims = claims
        self._forecasts = forecasts
        self._timer = timer
        panels = DevicePanels(source)
        causes = BreachCauses(panels, detection.state)
        self._faults = DeviceFaults(panels)
        self._stragglers = Stragglers(source)
        self.degradations = Degradations(detection, source.attributes, source.block_seconds)
        self.deploys = Deploys(source, detection.state)
        self.fleet = FleetComparison(source, causes, detection.state)
        self.explanations = Explanations(detection, source, causes)

    def run(self, rows: Ints, newest: Ints, report: CycleReport, changes: ProgramChanges) -> None:
        """Fill the report with predictions and candidates.

        Args:
            rows: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            report: The report of the cycle.
            changes: Changes of programs since the last cycle.
        """
        state, attributes = self._detection.state, self._source.attributes
        report.judged = self._judged(rows)
        highest = self._highest_probability(rows)
        alarmed = state.firing[rows] | state.passed[rows] | state.beyond[rows]
        excused = attributes.excused_now(rows, newest * self._source.windows.interval_ns)
        report.abstentions[Abstention.CALENDAR] += int((excused & alarmed).sum())
        flagged = attributes.judged[rows] & ~excused & (alarmed | self._probable(rows, highest))
        known, faults = self._faults.run()
        causes = self.explanations(rows, newest, flagged, known, report)
        self._date_alarms(rows, newest, alarmed & flagged)
        report.flagged = len(causes)
        published = self._by_urgency(rows, causes, np.where(alarmed, 1.0, highest))
        allowed = self._source.settings.max_fits_per_sweep
        self._forecast(rows[published[:allowed]], newest[published[:allowed]], report)
        report.abstentions[Abstention.OVER_BUDGET] += max(len(published) - allowed, 0)
        breaches: list[Finding] = []
        for place in published.tolist():
            prediction = self._prediction(int(rows[place]), int(newest[place]), causes.get(place))
            if prediction is not None:
                report.predictions.append(prediction)
                if prediction.degradation is not None and alarmed[place]:
                    breaches.append(breach_candidate(prediction, since_ns=int(state.since_ns[prediction.row])))
        self._add_candidates(rows, newest, report, changes, known, (*breaches, *faults))

    def _judged(self, rows: Ints) -> int:
        """Number of rows about which the absence of a prediction says that none is probable."""
        state, attributes = self._detection.state, self._source.attributes
        limited = attributes.judged[rows] & ~np.isnan(state.limit[rows]) & ~state.wide[rows]
        limited &= state.known_blocks[rows] >= MIN_BLOCKS
        return int((limited & self.degradations.answered(rows).any(axis=1)).sum())

    def _highest_probability(self, rows: Ints) -> Floats:
        """Highest probability of a breach over the horizons that a row's history carries, shape (n,); 0 for none."""
        carried = np.where(self.degradations.answered(rows), self._detection.state.probability[rows], np.nan)
        highest: Floats = np.nan_to_num(carried).max(axis=1, initial=0.0)
        return highest

    def _probable(self, rows: Ints, highest: Floats) -> Bools:
        """Rows whose breach is probable, from one bound until the other, shape (n,)."""
        state = self._detection.state
        stays = state.probable[rows] & (highest >= WITHDRAWN_PROBABILITY)
        state.probable[rows] = (highest >= PUBLISHED_PROBABILITY) | stays
        probable: Bools = state.probable[rows]
        return probable

    def _by_urgency(self, rows: Ints, causes: dict[int, FoundCause], urgency: Floats) -> Ints:
        """Places of the rows that are published, the most urgent first: only the first ones may be forecast."""
        selected = self._source.attributes.selected[rows] | np.isin(np.arange(len(rows)), list(causes))
        places: Ints = np.flatnonzero(selected)
        return places[np.lexsort((rows[places], -urgency[places]))]

    def _date_alarms(self, rows: Ints, newest: Ints, alarmed: Bools) -> None:
        """Note when each alert began and when its limit was passed; forget both when it ends."""
        state, now_ns = self._detection.state, (newest + 1) * self._source.windows.interval_ns
        passed = state.passed[rows] | state.beyond[rows]
        for since_ns, holds in ((state.since_ns, alarmed), (state.crossed_ns, alarmed & passed)):
            fresh = holds & (since_ns[rows] == 0)
            since_ns[rows[fresh]] = now_ns[fresh]
            since_ns[rows[~alarmed]] = 0

    def _forecast(self, rows: Ints, newest: Ints, report: CycleReport) -> None:
        """Forecast the rows whose newest block is new, and claim these forecasts."""
        start = self._timer()
        generations = self._detection.state.generation[rows]
        blocks = newest // self._source.histories.block_intervals - 1
        due = self._forecasts.due(rows, generations, blocks)
        for block in np.unique(blocks[due]).tolist():
            mine = due[blocks[due] == block]
            self._forecasts.make(rows[mine], generations[mine], block, self._detection.horizons_seconds)
            pairs = zip(rows[mine].tolist(), generations[mine].tolist(), strict=True)
            made = {row: forecast for row, generation in pairs if (forecast := self._forecasts.get(row, generation))}
            self._claims.claim_forecasts(made, block)
        report.forecasts = len(due)
        report.forecast_seconds = self._timer() - start

    def _prediction(self, row: int, newest: int, cause: FoundCause | None) -> Prediction | None:
        subject, state, histories = self._source.subject(row), self._detection.state, self._source.histories
        if subject is None:
            return None
        block = newest // histories.block_intervals - 1
        now_seconds = (newest + 1) * histories.block_ns / histories.block_intervals / NANOSECONDS_PER_SECOND
        forecast = self._forecasts.get(row, int(state.generation[row]))
        if forecast is not None and forecast.block != block:
            # The budget leaves the series out: an earlier forecast would pass for one of now.
            forecast = None
        return Prediction(
            row=row,
            subject=subject,
            end_ns=(block + 1) * histories.block_ns,
            value=float(state.value[row]),
            bounds=self.bounds(row, forecast) if forecast is not None else {},
            degradation=self.degradations.of(row, cause, now_seconds) if cause is not None else None,
        )

    def bounds(self, row: int, forecast: SeriesForecast) -> dict[float, Bounds]:
        """Bounds of a forecast as they are published, by horizon in seconds.

        Horizons that the history does not carry are absent, and those whose forecast contradicts a predicted breach.
        """
        carried = (horizon for horizon in self.degradations.carried(row) if horizon in forecast.bounds)
        bounds = {horizon: self._claims.published(row, horizon, forecast) for horizon in carried}
        return {
            horizon: values
            for horizon, values in bounds.items()
            if not self.degradations.contradicts(row, horizon, values[0])
        }

    def _add_candidates(
        self,
        rows: Ints,
        newest: Ints,
        report: CycleReport,
        changes: ProgramChanges,
        known: DeviceRows,
        candidates: tuple[Finding, ...],
    ) -> None:
        """Add slow deploys, slow workers and GPUs slower than the fleet; keep those that no calendar excuses."""
        deploys = self.deploys.run(rows, newest, changes)
        report.deploys_over = self.deploys.over
        report.programs = programs.alone_on_devices(self._source.attributes, rows)
        candidates = (*candidates, *deploys, *self._stragglers.run(rows, newest))
        every = of_each_series((*candidates, *self.fleet.run(rows, newest, known, candidates, changes)))
        excuses = self._source.attributes.excuses
        report.candidates = [
            candidate for candidate in every if not excuses(candidate.metric, dict(candidate.labels), report.time_ns)
        ]
