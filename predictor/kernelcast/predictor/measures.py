"""The predictor's own metrics, made from their rows in the catalogue; every known label set starts at 0.

`cycle_loop` counts cycles and copies the engine's totals; with Kafka, `service` counts messages and points besides.
"""

from prometheus_client import CollectorRegistry, Counter

from kernelcast.predictor.cycle.deep_fits import DeepFits, every_outcome
from kernelcast.predictor.cycle.predictions import ABSTENTIONS, CycleReport
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.forecasting.deep.pool import Shed
from kernelcast.predictor.tuning.hints import Withheld
from kernelcast.predictor.tuning.rules import RULE_NAMES
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import predictor as rows
from kernelcast.wire.topics import DEVICE, KERNELS

TOPICS = (DEVICE.name, KERNELS.name)
COMBINATION = "combination"
ESTIMATED = "estimated"
SNAPSHOT_REASONS = ("unusable", "other_grid", "unread")


class Measures:
    """Counters and gauges of one predictor, whatever its series come from."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.series = gauge(rows.SERIES, registry)
        self.sweeps = counter(rows.SWEEPS, registry)
        self.sweep_seconds = gauge(rows.SWEEP_SECONDS, registry)
        self.sweep_failures = counter(rows.SWEEP_FAILURES, registry)
        self.flagged = gauge(rows.FLAGGED, registry)
        self.raised = gauge(rows.RAISED, registry)
        self.fits = counter(rows.FITS, registry)
        self.fit_seconds = counter(rows.FIT_SECONDS, registry)
        self.abstentions = counter(rows.ABSTENTIONS, registry)
        self.regimes = counter(rows.REGIMES, registry)
        self._refused = Following(counter(rows.SERIES_REFUSED, registry))
        self._ignored = Following(counter(rows.IGNORED_POINTS, registry))
        self._unscored = Following(counter(rows.UNSCORED, registry))
        self.deep = DeepMeasures(registry)
        self.fits.labels(COMBINATION, ESTIMATED)
        for abstention in ABSTENTIONS:
            self.abstentions.labels(abstention)

    def completed(self, report: CycleReport) -> None:
        """Count one finished cycle."""
        self.sweeps.inc()
        self.sweep_seconds.set(report.seconds)
        self.flagged.set(report.flagged)
        self.raised.set(len(report.predictions))
        self.fit_seconds.inc(report.forecast_seconds)
        self.fits.labels(COMBINATION, ESTIMATED).inc(report.forecasts)
        self.regimes.inc(report.regimes_begun)
        for abstention, count in report.abstentions.items():
            self.abstentions.labels(abstention).inc(count)

    def update(self, engine: Engine) -> None:
        """Copy the engine's totals into the metrics."""
        self.series.set(len(engine.windows))
        self._refused.follow(engine.windows.refused)
        self._ignored.follow(engine.ignored)
        self._unscored.follow(engine.cycle.row_scores.scoring.unscored)
        if engine.cycle.deep is not None:
            self.deep.update(engine.cycle.deep)


class KafkaMeasures(Measures):
    """These and what only a predictor on Kafka has: messages, lag, snapshots, tunables and hints."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.points = counter(rows.POINTS, registry)
        self.messages = counter(rows.MESSAGES, registry)
        self.tunables = gauge(rows.TUNABLES, registry)
        self.hints = counter(rows.HINTS, registry)
        self.snapshot_time = gauge(rows.SNAPSHOT_TIME, registry)
        self.snapshot_failures = counter(rows.SNAPSHOT_FAILURES, registry)
        self.restored = counter(rows.RESTORED, registry)
        self.lag = gauge(rows.LAG, registry)
        self.skipped = counter(rows.SKIPPED, registry)
        withheld = counter(rows.HINTS_WITHHELD, registry)
        self._withheld = {reason: Following(withheld.labels(reason)) for reason in Withheld}
        for topic in TOPICS:
            self.points.labels(topic)
            self.lag.labels(topic)
            self.skipped.labels(topic)
            for outcome in ("used", "empty", "unusable"):
                self.messages.labels(topic, outcome)
        for rule in RULE_NAMES:
            self.hints.labels(rule)
        for reason in SNAPSHOT_REASONS:
            self.snapshot_failures.labels(reason)

    def update(self, engine: Engine) -> None:
        """Copy the engine's totals into the metrics."""
        super().update(engine)
        self.tunables.set(len(engine.tunables))
        for reason, following in self._withheld.items():
            following.follow(engine.hints.withheld[reason])


class DeepMeasures:
    """Counters and gauges of the models that statsmodels fits."""

    def __init__(self, registry: CollectorRegistry) -> None:
        fits, shed = counter(rows.DEEP_FITS, registry), counter(rows.DEEP_SHED, registry)
        self._fits = {each: Following(fits.labels(*each)) for each in every_outcome()}
        self._shed = {reason: Following(shed.labels(reason)) for reason in Shed}
        self._seconds = Following(counter(rows.DEEP_FIT_SECONDS, registry))
        self._starts = Following(counter(rows.DEEP_WORKER_STARTS, registry))
        self._series = gauge(rows.DEEP_SERIES, registry)
        self._used = gauge(rows.DEEP_USED_SERIES, registry)

    def update(self, deep: DeepFits) -> None:
        """Copy the totals."""
        for each, following in self._fits.items():
            following.follow(deep.outcomes[each])
        for reason, shed in self._shed.items():
            shed.follow(deep.shed[reason])
        self._seconds.follow(deep.seconds)
        self._starts.follow(deep.starts)
        self._series.set(deep.series)
        self._used.set(deep.used_series)


class Following:
    """A counter that follows a total kept elsewhere, such as in the engine. One thread calls it."""

    def __init__(self, target: Counter) -> None:
        self._target = target
        self._seen = 0.0

    def follow(self, total: float) -> None:
        """Add the increase of the total since the last call."""
        self._target.inc(max(total - self._seen, 0))
        self._seen = total
