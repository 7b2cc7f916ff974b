"""Chooses the series that a cycle publishes, forecasts them, and derives degradations and findings.

`Cycle.run` calls `Publication.run` after the detector. A series is published if an alert fires, its limit is passed or
a breach is probable, or if the settings select it. The results go into the cycle's report, which `publish` and
`findings` write to Kafka.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle import programs
from kernelcast.predictor.cycle.causes.breach_causes import BreachCauses
from kernelcast.predictor.cycle.causes.deploys import Deploys
from kernelcast.predictor.cycle.causes.device_faults import DeviceFaults, one_of_each_series
from kernelcast.predictor.cycle.causes.device_panels import DevicePanels, DeviceRows
from kernelcast.predictor.cycle.causes.explanations import Explanations
from kernelcast.predictor.cycle.causes.fleet_comparison import FleetComparison
from kernelcast.predictor.cycle.causes.stragglers import Stragglers
from kernelcast.predictor.cycle.degradations import Degradations
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.findings import findings_of
from kernelcast.predictor.cycle.forecasts import Forecasts, SeriesForecast
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, Bounds, CycleReport, Prediction
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.cycle.scores.claims import Claims
from kernelcast.predictor.passage.run import MIN_BLOCKS
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
        causes = BreachCauses(panels, detection.memory)
        self._faults = DeviceFaults(panels)
        self._stragglers = Stragglers(source)
        self.degradations = Degradations(detection, source.attributes, source.block_seconds)
        self.deploys = Deploys(source, detection.memory)
        self.fleet = FleetComparison(source, causes, detection.memory)
        self.explanations = Explanations(detection, source, causes)

    def run(self, rows: Ints, newest: Ints, report: CycleReport, changes: ProgramChanges) -> None:
        """Fill the report with predictions and findings.

        Args:
            rows: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            report: The report of the cycle.
            changes: Changes of programs since the last cycle.
        """
        memory, attributes = self._detection.memory, self._source.attributes
        report.judged = self._judged(rows)
        highest = self._highest_probability(rows)
        alarmed = memory.firing[rows] | memory.passed[rows] | memory.beyond[rows]
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
        alarming: list[tuple[Prediction, int]] = []
        for place in published.tolist():
            prediction = self._prediction(int(rows[place]), int(newest[place]), causes.get(place))
            if prediction is not None:
                report.predictions.append(prediction)
                if prediction.degradation is not None and alarmed[place]:
                    alarming.append((prediction, int(memory.since_ns[prediction.row])))
        self._add_findings(rows, newest, report, changes, known, (*findings_of(alarming), *faults))

    def _judged(self, rows: Ints) -> int:
        """Number of rows about which the absence of a prediction says that none is probable."""
        memory, attributes = self._detection.memory, self._source.attributes
        limited = attributes.judged[rows] & ~np.isnan(memory.limit[rows]) & ~memory.wide[rows]
        limited &= memory.known_blocks[rows] >= MIN_BLOCKS
        return int((limited & self.degradations.answered(rows).any(axis=1)).sum())

    def _highest_probability(self, rows: Ints) -> Floats:
        """Highest probability of a breach over the horizons that a row's history carries, shape (n,); 0 for none."""
        carried = np.where(self.degradations.answered(rows), self._detection.memory.probability[rows], np.nan)
        highest: Floats = np.nan_to_num(carried).max(axis=1, initial=0.0)
        return highest

    def _probable(self, rows: Ints, highest: Floats) -> Bools:
        """Rows whose breach is probable, from one bound until the other, shape (n,)."""
        memory = self._detection.memory
        stays = memory.probable[rows] & (highest >= WITHDRAWN_PROBABILITY)
        memory.probable[rows] = (highest >= PUBLISHED_PROBABILITY) | stays
        found: Bools = memory.probable[rows]
        return found

    def _by_urgency(self, rows: Ints, causes: dict[int, FoundCause], urgency: Floats) -> Ints:
        """Places of the rows that are published, the most urgent first: only the first ones may be forecast."""
        selected = self._source.attributes.selected[rows] | np.isin(np.arange(len(rows)), list(causes))
        places: Ints = np.flatnonzero(selected)
        return places[np.lexsort((rows[places], -urgency[places]))]

    def _date_alarms(self, rows: Ints, newest: Ints, alarmed: Bools) -> None:
        """Note when each alert began and when its limit was passed; forget both when it ends."""
        memory, now_ns = self._detection.memory, (newest + 1) * self._source.windows.interval_ns
        passed = memory.passed[rows] | memory.beyond[rows]
        for since_ns, holds in ((memory.since_ns, alarmed), (memory.crossed_ns, alarmed & passed)):
            fresh = holds & (since_ns[rows] == 0)
            since_ns[rows[fresh]] = now_ns[fresh]
            since_ns[rows[~alarmed]] = 0

    def _forecast(self, rows: Ints, newest: Ints, report: CycleReport) -> None:
        """Forecast the rows whose newest block is new, and claim these forecasts."""
        start = self._timer()
        generations = self._detection.memory.generation[rows]
        blocks = newest // self._source.histories.block_intervals - 1
        due = self._forecasts.due(rows, generations, blocks)
        for block in np.unique(blocks[due]).tolist():
            mine = due[blocks[due] == block]
            self._forecasts.make(rows[mine], generations[mine], block, self._detection.horizons_seconds)
            pairs = zip(rows[mine].tolist(), generations[mine].tolist(), strict=True)
            made = {row: found for row, generation in pairs if (found := self._forecasts.get(row, generation))}
            self._claims.claim_forecasts(made, block)
        report.forecasts = len(due)
        report.forecast_seconds = self._timer() - start

    def _prediction(self, row: int, newest: int, cause: FoundCause | None) -> Prediction | None:
        subject, memory, histories = self._source.subject(row), self._detection.memory, self._source.histories
        if subject is None:
            return None
        block = newest // histories.block_intervals - 1
        found = self._forecasts.get(row, int(memory.generation[row]))
        if found is not None and found.block != block:
            # The budget leaves the series out: an earlier forecast would pass for one of now.
            found = None
        return Prediction(
            row=row,
            subject=subject,
            end_ns=(block + 1) * histories.block_ns,
            value=float(memory.value[row]),
            bounds=self.bounds(row, found) if found is not None else {},
            degradation=self.degradations.of(row, cause) if cause is not None else None,
        )

    def bounds(self, row: int, found: SeriesForecast) -> dict[float, Bounds]:
        """Bounds of a forecast as they are published, by horizon in seconds, for those that the history carries."""
        carried = (horizon for horizon in self.degradations.carried(row) if horizon in found.bounds)
        return {horizon: self._claims.published(row, horizon, found) for horizon in carried}

    def _add_findings(
        self,
        rows: Ints,
        newest: Ints,
        report: CycleReport,
        changes: ProgramChanges,
        known: DeviceRows,
        found: tuple[Finding, ...],
    ) -> None:
        """Add slow deploys, slow workers and GPUs slower than the fleet; keep those that no calendar excuses."""
        deploys = self.deploys.run(rows, newest, changes)
        report.deploys_over = self.deploys.over
        report.programs = programs.alone_on_devices(self._source.attributes, rows)
        found = (*found, *deploys, *self._stragglers.run(rows, newest))
        every = one_of_each_series((*found, *self.fleet.run(rows, newest, known, found, changes)))
        excuses = self._source.attributes.excuses
        report.findings = [one for one in every if not excuses(one.metric, dict(one.labels), report.time_ns)]
