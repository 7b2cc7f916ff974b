"""The predictor's cycles: each evaluates every series and hands the report to the outputs; state is saved when due.

A service makes one `CycleLoop`, runs it on a thread of its own, and saves once more while it stops. `CycleOutputs` are
those on Kafka (`kafka_outputs`), or the pages of a predictor without Kafka (`without_kafka.outputs`).
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.measures import Measures
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.service_manager import ServiceLoop

RESTORE_FOR_SECONDS: Final = 300.0
"""Time for which saved states are asked for; then scores and findings begin again, and replace those that are saved."""
RESTORE_EVERY_SECONDS: Final = 5.0
"""Time between two attempts."""

_log = get_logger(__name__)


class CycleOutputs(Protocol):
    """What becomes of a cycle's report, and of state that outlasts the process."""

    @property
    def accepted(self) -> Mapping[str, int]:
        """Programs of which a person accepted that a deploy made them slower, and when, Unix nanoseconds."""
        ...

    @property
    def restorers(self) -> Sequence[Callable[[], bool]]:
        """Functions that restore state before the first cycle; False to be called again, as nothing answers."""
        ...

    @property
    def steps(self) -> Sequence[Callable[[CycleReport], None]]:
        """What is done with each report, in order; a step that fails prevents no other one."""
        ...

    def save(self, *, restored: bool) -> None:
        """Save state; `restored` says whether what is saved already was read."""
        ...


class CycleLoop:
    """Runs cycles at intervals. `run` belongs to one thread; `save` may be called once it has ended.

    Attributes:
        completed_at: Time of the monotonic clock at which the newest cycle was complete; None before the first.
    """

    def __init__(
        self, settings: PredictorSettings, engine: Engine, outputs: CycleOutputs, *, measures: Measures
    ) -> None:
        """Prepare to run.

        Args:
            settings: As they are at the start.
            engine: Evaluates the series.
            outputs: Take the reports.
            measures: The predictor's own metrics.
        """
        self._settings, self._engine, self._outputs, self._measures = settings, engine, outputs, measures
        self._restored = False
        self.completed_at: float | None = None

    def run(self, ending: threading.Event, part: ServiceLoop) -> None:
        """Restore state, then run cycles until the end.

        Args:
            ending: Set when it is to end.
            part: Is notified that this thread makes progress.
        """
        part.progressed()  # waiting for saved state counts as started
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
        """Evaluate every series, and hand the report to each output.

        Raises:
            ExceptionGroup: Some steps failed.
        """
        report = self._engine.run_cycle(self._outputs.accepted)
        self._measures.completed(report)
        failures = []
        for step in self._outputs.steps:
            try:
                step(report)
            except Exception as error:  # noqa: BLE001  raised below, once the other steps are done
                failures.append(error)
        self._measures.update(self._engine)
        if failures:
            raise ExceptionGroup("steps of a cycle failed", failures)
        self.completed_at = time.monotonic()

    def save(self) -> None:
        """Save the state of the outputs."""
        self._outputs.save(restored=self._restored)

    def _restore_all(self, ending: threading.Event, part: ServiceLoop) -> bool:
        """Restore state; returns False where it is to end before."""
        until = time.monotonic() + RESTORE_FOR_SECONDS
        for restore in self._outputs.restorers:
            while not restore() and time.monotonic() < until:
                if part.wait(ending.wait, RESTORE_EVERY_SECONDS):
                    return False
        return True
