"""The predictor's cycles: each evaluates every series and writes changes to Kafka; state is saved when it is due.

`service` makes one `CycleLoop`, runs it on a thread of its own, and saves once more while it stops.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.measures import Measures
from kernelcast.predictor.publish import ForecastPublisher
from kernelcast.predictor.scoring.published import scores
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.state.own_state import OwnState
from kernelcast.predictor.state.partitions import Partitions
from kernelcast.predictor.topic_logs import TopicLogs
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.service_manager import ServiceLoop
from kernelcast.wire.errors import BrokerError, WireError

DIAGNOSE_EVERY_SECONDS: Final = 30.0
"""Time between two diagnoses of programs."""
RESTORE_FOR_SECONDS: Final = 300.0
"""Time for which saved states are asked for; then scores and findings begin again, and replace those on Kafka."""
RESTORE_EVERY_SECONDS: Final = 5.0
"""Time between two attempts."""

_log = get_logger(__name__)


class CycleLoop:
    """Runs cycles at intervals. `run` belongs to one thread; `save` may be called once it has ended.

    Attributes:
        completed_at: Time of the monotonic clock at which the newest cycle was complete; None before the first.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        engine: Engine,
        publisher: ForecastPublisher,
        *,
        logs: TopicLogs,
        partitions: Partitions,
        measures: Measures,
    ) -> None:
        """Prepare to run.

        Args:
            settings: As they are at the start.
            engine: Evaluates the series.
            publisher: Writes forecasts and hints.
            logs: Findings, baselines, hints and scores.
            partitions: The partitions that this predictor reads.
            measures: Its own metrics.
        """
        self._settings, self._engine, self._publisher, self._logs = settings, engine, publisher, logs
        self._partitions, self._measures = partitions, measures
        self._diagnosis_due = 0.0
        self._restored = False
        self.completed_at: float | None = None

    def run(self, ending: threading.Event, part: ServiceLoop) -> None:
        """Restore state, then run cycles until the end.

        Args:
            ending: Set when it is to end.
            part: Is notified that this thread makes progress.
        """
        part.progressed()  # waiting for Kafka counts as started
        self._restored = self._restore_all(ending, part)
        snapshot_due = time.monotonic() + self._settings.snapshot_every_seconds
        while not part.wait(ending.wait, self._settings.sweep_every_seconds):
            self._try("cycle failed", self.run_cycle)
            if time.monotonic() >= snapshot_due:
                snapshot_due = time.monotonic() + self._settings.snapshot_every_seconds
                self._try("state not saved", self.save)
            part.progressed()

    def _try(self, trouble: str, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:  # noqa: BLE001  the next cycle may succeed; reading must go on
            self._measures.sweep_failures.inc()
            _log.exception(trouble)

    def run_cycle(self) -> None:
        """Evaluate every series, and send the changes; a step that fails prevents no other one.

        Raises:
            ExceptionGroup: Some steps failed.
        """
        report = self._engine.run_cycle(self._logs.findings.accepted)
        self._measures.completed(report)
        failures = []
        for step in (self._send_findings, self._send_predictions, self._issue_hints, self._send_baselines):
            try:
                step(report)
            except Exception as error:  # noqa: BLE001  raised below, once the other steps are done
                failures.append(error)
        self._measures.update(self._engine)
        if failures:
            raise ExceptionGroup("steps of a cycle failed", failures)
        self.completed_at = time.monotonic()

    def save(self) -> None:
        """Queue the state of each partition, and scores and findings, unless those on Kafka were not read yet."""
        for partition in self._partitions.held:
            self._partitions.save(partition)
        if not self._restored:
            return
        self._logs.scores.write(self._engine.cycle.outcomes.scoring.dump())
        self._logs.alarms.write(self._logs.findings.save())

    def _restore_all(self, ending: threading.Event, part: ServiceLoop) -> bool:
        """Restore scores and findings; returns False where it is to end before."""
        until = time.monotonic() + RESTORE_FOR_SECONDS
        for name, saved, restore in (
            ("scores", self._logs.scores, self._engine.cycle.outcomes.scoring.load),
            ("findings", self._logs.alarms, self._logs.findings.restore),
        ):
            while not _restored(name, saved, restore) and time.monotonic() < until:
                if part.wait(ending.wait, RESTORE_EVERY_SECONDS):
                    return False
        return True

    def _send_findings(self, report: CycleReport) -> None:
        changed = self._logs.findings.cycle(
            report.findings,
            watched=report.watched,
            time_ns=report.time_ns,
            deploys_over=report.deploys_over,
            programs=report.programs,
        )
        if changed:
            # A finding that a crash would forget would stay open on its topic, and begin again beside it.
            self._logs.alarms.write(self._logs.findings.save())
        for finding in report.findings:
            _log.debug("finding", metric=finding.metric, cause=finding.cause, state=finding.state, value=finding.value)

    def _send_predictions(self, report: CycleReport) -> None:
        cycle = self._engine.cycle
        self._publisher.policy(self._engine.policy)
        self._publisher.forecasts(report, cycle.scores.coverage(), scores(cycle.outcomes.scoring))
        if time.monotonic() >= self._diagnosis_due:
            self._diagnosis_due = time.monotonic() + DIAGNOSE_EVERY_SECONDS
            self._publisher.diagnoses(self._engine.signals())

    def _issue_hints(self, _report: CycleReport) -> None:
        if not (self._logs.hints.caught_up and self._partitions.ready()[0]):
            return
        issued = self._engine.propose()
        written = self._publisher.hints(issued, self._engine.hints)
        self._engine.withdraw(one for one in issued if one not in written)
        for one in written:
            self._measures.hints.labels(one.rule).inc()
            _log.info("hint issued", program=one.hint.program, tunable=one.hint.tunable, value=one.hint.value)
        self._publisher.open_hints(self._engine.open_hints())
        self._publisher.experiences(self._engine.changed_experiences())

    def _send_baselines(self, _report: CycleReport) -> None:
        self._logs.baselines.write()


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
