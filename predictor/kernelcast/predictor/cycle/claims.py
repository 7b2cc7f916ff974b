"""Claims of a cycle: forecasts, breach probabilities and abstentions, recorded and compared with later values.

`Cycle` settles the claims whose block has ended and records abstentions; `Publication` records the forecasts. Two
scores are kept: coverage by metric (`IntervalCoverage`), and by class of metric and horizon (`RowScores`).
"""

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.cycle.degradations import Degradations
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.forecasts import SeriesForecast
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, Bounds, CycleReport
from kernelcast.predictor.cycle.row_scores import RowScores
from kernelcast.predictor.passage.run import MIN_BLOCKS
from kernelcast.predictor.scoring.coverage import ForecastClaim, IntervalCoverage


class Claims:
    """Records and settles the claims of one predictor. Only the thread that runs cycles uses it.

    Attributes:
        coverage: Coverage of published intervals by metric.
        row_scores: Scores of everything that is published, by class of metric and horizon.
    """

    def __init__(self, source: PanelSource, detection: Detection, block_seconds: float) -> None:
        self._source = source
        self._detection = detection
        self._block_seconds = block_seconds
        self._degradations = Degradations(detection, source.attributes, source.block_seconds)
        self.coverage = IntervalCoverage()
        self.row_scores = RowScores(detection.horizons_seconds, block_seconds, source.subject)

    def sync(self, rows: Ints) -> None:
        """Follow changed horizons, and rows that another series has got.

        Args:
            rows: Shape (n,), rows that report.
        """
        self.row_scores.use_horizons(self._detection.horizons_seconds)
        self.row_scores.sync(rows, self._source.windows.generation[rows])

    def settle(self, rows: Ints, newest: Ints, evaluated: Ints) -> None:
        """Compare claims with the blocks that have ended, then claim the probabilities of the new evaluations.

        Args:
            rows: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            evaluated: Rows that the detector has evaluated in this cycle.
        """
        self._settle_coverage()
        blocks = newest // self._source.histories.block_intervals - 1
        devices = self._source.attributes.device[rows]
        self.row_scores.settle(rows, blocks, self._detection.state, devices, self._means)
        self.row_scores.claim_breaches(evaluated, self._detection.state, self._degradations.answered)

    def abstain(self, evaluated: Ints, report: CycleReport) -> None:
        """Count the evaluated rows without a probability, by reason, in the scores and in the cycle's report."""
        state = self._detection.state
        kernel = self._source.attributes.kernel[evaluated]
        unlimited = np.isnan(state.limit[evaluated])
        short = state.known_blocks[evaluated] < MIN_BLOCKS
        reasons = {
            Abstention.NO_BASELINE: kernel & unlimited,
            Abstention.NO_THRESHOLD: ~kernel & unlimited,
            Abstention.WIDE_BASELINE: state.wide[evaluated],
        }
        self.row_scores.abstain(evaluated, reasons)
        for reason, which in reasons.items():
            report.abstentions[reason] += int(which.sum())
        report.abstentions[Abstention.UNUSABLE_WINDOW] += int((short & ~unlimited).sum())

    def claim_forecasts(self, made: dict[int, SeriesForecast], block: int) -> None:
        """Record forecasts that are published, made at the end of a block, until the predicted blocks have ended.

        Args:
            made: Forecasts by row.
            block: The newest block that they rest on.
        """
        published = self._degradations.answered(np.array(list(made), np.int64))
        for place, horizon in enumerate(self._detection.horizons_seconds):
            shown = zip(made.items(), published[:, place].tolist(), strict=True)
            mine = [row for (row, forecast), is_shown in shown if is_shown and horizon in forecast.bounds]
            if not mine:
                continue
            quantiles = np.stack([made[row].quantiles[horizon] for row in mine])
            last = np.array([made[row].last for row in mine])
            surprise = np.array([made[row].surprise[horizon] for row in mine])
            self.row_scores.claim_forecasts(block, horizon, np.array(mine), quantiles, last, surprise)
            for row in mine:
                self._claim_bounds(row, block, horizon, made[row])

    def published(self, row: int, horizon: float, forecast: SeriesForecast) -> Bounds:
        """Bounds of a forecast as they are published: scaled by what past intervals needed, and not negative.

        Durations, temperatures of running GPUs, power, memory and shares are never negative; a trend may lead there.
        """
        bounds, surprise = forecast.bounds[horizon], forecast.surprise[horizon]
        mean, lower, upper = self.row_scores.published(row, horizon, bounds, surprise)
        return max(mean, 0.0), max(lower, 0.0), max(upper, 0.0)

    def _claim_bounds(self, row: int, block: int, horizon: float, forecast: SeriesForecast) -> None:
        subject = self._source.subject(row)
        if subject is not None:
            due = block + max(round(horizon / self._block_seconds), 1)
            bounds, surprise = forecast.bounds[horizon], forecast.surprise[horizon]
            _, lower, upper = self.row_scores.published(row, horizon, bounds, surprise)
            metric = subject.without_variant.metric
            self.coverage.add(ForecastClaim(due, row, forecast.generation, metric, lower, upper))

    def _settle_coverage(self) -> None:
        """Score the intervals whose block has ended, by the mean of that block."""
        pending = self.coverage.pending_rows()
        windows, histories = self._source.windows, self._source.histories
        with self._source.lock:
            newest = {
                (row, generation): int(windows.newest[row]) // histories.block_intervals - 1
                for row, generation in pending
                if windows.generation[row] == generation and windows.owner[row] >= 0
            }
        due = np.array([(key[0], last) for key, last in newest.items() if pending[key] <= last], np.int64)
        means: dict[int, tuple[int, Floats]] = {}
        # Rows with one newest block are read together: hosts whose clock is behind have earlier blocks than others.
        for last in np.unique(due[:, 1]).tolist() if len(due) else ():
            rows = due[due[:, 1] == last, 0]
            means |= {
                row: (last, mean) for row, mean in zip(rows.tolist(), histories.blocks(rows, last)[0], strict=True)
            }

        def value(row: int, block: int) -> float:
            last, mean = means[row]
            place = len(mean) - 1 - (last - block)
            return float(mean[place]) if place >= 0 else float("nan")

        self.coverage.settle(lambda row, generation: newest.get((row, generation)), value)

    def _means(self, rows: Ints, block: int) -> Floats:
        return self._source.histories.blocks(rows, block)[0][:, -1]
