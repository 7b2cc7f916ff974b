"""Serves the reports of cycles on `/metrics`, and posts findings to Alertmanager where the settings name one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from kernelcast.predictor.alarms.finding_log import FindingLog
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.prediction_samples import PredictionSamples
from kernelcast.predictor.scoring.published import scores
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka import remembered
from kernelcast.predictor.without_kafka.admission import Admission
from kernelcast.predictor.without_kafka.alertmanager import AlertSender
from kernelcast.predictor.without_kafka.exposition import ServedGauges, ServedSamples
from kernelcast.wire.catalogue.forecast import DEGRADATION_ALERT


class OwnTopic:
    """The topic of findings without Kafka: what is written is known at once, and nobody else writes.

    Attributes:
        take: Gets each value.
    """

    def __init__(self) -> None:
        self.take: Callable[[bytes], None] = lambda _value: None

    def send(self, _topic: str, *, value: bytes | None, **_more: Any) -> None:
        """Hand a value back."""
        if value is not None:
            self.take(value)

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Do nothing."""


class PrometheusOutputs:
    """The outputs of a predictor without Kafka. Only the thread that runs cycles uses it.

    Attributes:
        findings: Those that last.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        engine: Engine,
        admission: Admission,
        registry: CollectorRegistry,
        *,
        clock_ns: Callable[[], int],
    ) -> None:
        """Prepare to serve.

        Args:
            settings: As they are at the start.
            engine: Runs the cycles.
            admission: Knows the users of GPUs.
            registry: Is shown on `/metrics`.
            clock_ns: The time of this machine.
        """
        self._engine, self._admission, self._clock_ns = engine, admission, clock_ns
        topic: Any = OwnTopic()
        source = settings.prometheus
        self._alerts = (
            AlertSender(source.alertmanager_url, source.access, registry) if source.alertmanager_url else None
        )
        self.findings = FindingLog(
            settings.alarms,
            topic,
            topic,
            client_id=settings.client_id,
            registry=registry,
            are_posted=self._alerts is not None,
        )
        topic.take = self.findings.add
        self._gauges = ServedGauges()
        self._samples = ServedSamples(without=() if self._alerts is None else (DEGRADATION_ALERT,))
        registry.register(self._gauges)
        registry.register(self._samples)
        self._predictions = PredictionSamples(settings.client_id, self._samples.write, clock_ns=clock_ns)
        self.remembered: remembered.Remembered | None = None

    @property
    def accepted(self) -> Mapping[str, int]:
        """Programs of which a person accepted that a deploy made them slower, and when."""
        return self.findings.accepted

    @property
    def restorers(self) -> Sequence[Callable[[], bool]]:
        """Read findings back from Prometheus."""
        return () if self.remembered is None else (self.remembered.restore,)

    @property
    def steps(self) -> Sequence[Callable[[CycleReport], None]]:
        """Findings first, then predictions."""
        return (self._show_findings, self._show_predictions)

    def save(self, *, restored: bool) -> None:
        """Do nothing: Prometheus has what a later start reads."""

    def _show_findings(self, report: CycleReport) -> None:
        self.findings.cycle(
            report.candidates,
            watched=report.watched,
            time_ns=report.time_ns,
            deploys_over=report.deploys_over,
            programs=report.programs,
        )
        self._gauges.show(remembered.gauges(self.findings.alarms))
        if self._alerts is not None:
            with self._engine.lock:
                users = dict(self._admission.attributes)
            self._alerts.post(self.findings.alarms.lasting, users, self._clock_ns() / 1e9)

    def _show_predictions(self, report: CycleReport) -> None:
        cycle = self._engine.cycle
        self._predictions.forecasts(report, cycle.coverage.by_metric(), scores(cycle.row_scores.scoring))
