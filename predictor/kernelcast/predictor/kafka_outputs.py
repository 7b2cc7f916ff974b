"""Writes the reports of cycles to Kafka, with hints and baselines, and keeps partitions, scores and findings there.

`service` makes one `KafkaOutputs`; `CycleLoop` calls it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.measures import KafkaMeasures
from kernelcast.predictor.publish import ForecastPublisher
from kernelcast.predictor.scoring.published import scores
from kernelcast.predictor.state.own_state import OwnState
from kernelcast.predictor.state.partitions import Partitions
from kernelcast.predictor.topic_logs import TopicLogs
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import BrokerError, WireError

DIAGNOSE_EVERY_SECONDS: Final = 30.0
"""Time between two diagnoses of programs."""

_log = get_logger(__name__)


@dataclass
class KafkaOutputs:
    """The outputs of a predictor on Kafka. Only the thread that runs cycles uses it.

    Attributes:
        engine: Has the series, hints and scores.
        publisher: Writes forecasts and hints.
        logs: Findings, baselines, hints and scores.
        partitions: The partitions that this predictor reads.
        measures: Its own metrics.
    """

    engine: Engine
    publisher: ForecastPublisher
    logs: TopicLogs
    partitions: Partitions
    measures: KafkaMeasures
    _diagnosis_due: float = 0.0

    @property
    def accepted(self) -> Mapping[str, int]:
        """Programs of which a person accepted that a deploy made them slower, and when, Unix nanoseconds."""
        return self.logs.findings.accepted

    @property
    def restorers(self) -> Sequence[Callable[[], bool]]:
        """Restore scores, then findings."""
        return (
            partial(_restored, "scores", self.logs.scores, self.engine.cycle.row_scores.scoring.load),
            partial(_restored, "findings", self.logs.alarms, self.logs.findings.restore),
        )

    @property
    def steps(self) -> Sequence[Callable[[CycleReport], None]]:
        """Findings first, then predictions, hints and baselines."""
        return (self._send_findings, self._send_predictions, self._issue_hints, self._send_baselines)

    def save(self, *, restored: bool) -> None:
        """Queue the state of each partition, and scores and findings, unless those on Kafka were not read yet."""
        for partition in self.partitions.held:
            self.partitions.save(partition)
        if not restored:
            return
        self.logs.scores.write(self.engine.cycle.row_scores.scoring.dump())
        self.logs.alarms.write(self.logs.findings.save())

    def _send_findings(self, report: CycleReport) -> None:
        changed = self.logs.findings.cycle(
            report.candidates,
            watched=report.watched,
            time_ns=report.time_ns,
            deploys_over=report.deploys_over,
            programs=report.programs,
        )
        if changed:
            # A finding that a crash would forget would stay open on its topic, and begin again beside it.
            self.logs.alarms.write(self.logs.findings.save())
        for candidate in report.candidates:
            _log.debug(
                "candidate finding",
                metric=candidate.metric,
                cause=candidate.cause,
                state=candidate.state,
                value=candidate.value,
            )

    def _send_predictions(self, report: CycleReport) -> None:
        cycle = self.engine.cycle
        self.publisher.policy(self.engine.policy)
        self.publisher.forecasts(report, cycle.coverage.by_metric(), scores(cycle.row_scores.scoring))
        if time.monotonic() >= self._diagnosis_due:
            self._diagnosis_due = time.monotonic() + DIAGNOSE_EVERY_SECONDS
            self.publisher.diagnoses(self.engine.signals())

    def _issue_hints(self, _report: CycleReport) -> None:
        if not (self.logs.hints.caught_up and self.partitions.ready()[0]):
            return
        issued = self.engine.propose()
        written = self.publisher.hints(issued, self.engine.hints)
        self.engine.withdraw(issued_hint for issued_hint in issued if issued_hint not in written)
        for issued_hint in written:
            self.measures.hints.labels(issued_hint.rule).inc()
            _log.info(
                "hint issued",
                program=issued_hint.hint.program,
                tunable=issued_hint.hint.tunable,
                value=issued_hint.hint.value,
            )
        self.publisher.open_hints(self.engine.open_hints())
        self.publisher.experiences(self.engine.changed_experiences())

    def _send_baselines(self, _report: CycleReport) -> None:
        self.logs.baselines.write()


def _restored(name: str, saved: OwnState, restore: Callable[[bytes], None]) -> bool:
    """Restore a state; returns False where Kafka does not answer."""
    try:
        state = saved.read()
        if state is not None:
            restore(state)
    except (BrokerError, WireError) as error:
        _log.warning("state not restored", state=name, reason=str(error))
        return not isinstance(error, BrokerError)
    return True
