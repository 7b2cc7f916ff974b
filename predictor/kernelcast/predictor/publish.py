"""Writes the predictions, hints, diagnoses and policy of a cycle to Kafka; `cycle_loop` calls it in each cycle.

A state that ends is withdrawn: its series is sent once more without a value (`EndedSeries`). `PredictionSamples` makes
the samples of predictions, `hint_samples` those of hints and diagnoses.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kernelcast.columnar import EndedSeries, Resource, Sample, encode
from kernelcast.predictor import hint_samples
from kernelcast.predictor.prediction_samples import PredictionSamples
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice
from kernelcast.predictor.tuning.hints import HintBook, Issued, OpenHint
from kernelcast.runtime.kafka.clients import ConfirmingSender
from kernelcast.runtime.kafka.producer import Undelivered
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import to_event
from kernelcast.wire.topics import FORECASTS, HINTS, POLICY, Topic
from kernelcast.wire.tuning.experience import Experience, experience_event
from kernelcast.wire.tuning.policy import POLICY_KEY, Policy, policy_event

SERVICE_NAME: Final = "kernelcast-predictor"
SCOPE: Final = "kernelcast.predictor"

_KEY_CHARACTERS: Final = 200
"""Characters of a key that a log shows."""
_log = get_logger(__name__)


class ForecastPublisher(PredictionSamples):
    """Writes forecasts and hints under one identity. Only the thread that runs cycles uses it."""

    def __init__(self, settings: PredictorSettings, producer: ConfirmingSender, *, clock_ns: Callable[[], int]) -> None:
        super().__init__(settings.client_id, self._send, clock_ns=clock_ns)
        self._source = f"/kernelcast/predictor/{settings.client_id}"
        self._producer = producer
        self._start_ns = clock_ns()
        self._ended_diagnoses: EndedSeries[bytes] = EndedSeries(patience=1)
        self._policy: Policy | None = None
        self._ended_hints: EndedSeries[bytes] = EndedSeries(patience=1)
        self._resource = Resource(
            (
                ("host.name", socket.gethostname()),
                ("service.instance.id", settings.client_id),
                ("service.name", SERVICE_NAME),
            )
        )

    def hints(self, issued: Iterable[Issued], book: HintBook) -> list[Issued]:
        """Write new hints, and count those written in the book; returns them, without ones that are too long."""
        time_ns = self._clock_ns()
        written = []
        for issued_hint in issued:
            event = to_event(issued_hint.hint, source=self._source, time_ns=time_ns)
            if self._send_event(HINTS, issued_hint.hint.key, event):
                book.issued[issued_hint.hint.program, issued_hint.hint.tunable, issued_hint.rule] += 1
                written.append(issued_hint)
        counts = hint_samples.hints_issued(book.issued, time_ns=time_ns, start_ns=self._start_ns)
        for key, samples in counts.items():
            self._send(key, samples)
        return written

    def policy(self, policy: Policy) -> None:
        """Write the site's policy for trials, if it has changed, or if Kafka did not take it."""
        if policy == self._policy:
            return
        self._policy = policy
        written = replace(policy, time_ns=self._clock_ns())
        event = policy_event(written, source=self._source)
        value = encode_event(event)
        self._producer.send(POLICY.name, key=POLICY_KEY.encode(), value=value, on_delivery=self._policy_delivered)

    def experiences(self, changed: Iterable[Experience]) -> None:
        """Write what searches have found on all nodes."""
        for experience in changed:
            event = experience_event(experience, source=self._source, time_ns=self._clock_ns())
            self._send_event(POLICY, experience.key, event)

    def open_hints(self, hints: Iterable[OpenHint]) -> None:
        """Write which hints are open, and which of them wait for a person."""
        time_ns = self._clock_ns()
        self._deliver_states(hint_samples.open_hints(hints, time_ns=time_ns), self._ended_hints, time_ns)

    def diagnoses(self, signals_of: Mapping[ProgramOnDevice, Mapping[Signal, float]]) -> None:
        """Write which rules hold for programs, and which signals are missing."""
        time_ns = self._clock_ns()
        self._deliver_states(hint_samples.diagnoses(signals_of, time_ns=time_ns), self._ended_diagnoses, time_ns)

    def _policy_delivered(self, reason: Undelivered | None) -> None:
        if reason is not None:
            self._policy = None

    def _send_event(self, topic: Topic, key: str, event: dict[str, Any]) -> bool:
        """Write an event with texts of a program; returns False where they make it too long."""
        try:
            value = encode_event(event)
        except EventError as error:
            _log.warning("event dropped", topic=topic.name, key=key[:_KEY_CHARACTERS], reason=str(error))
            return False
        self._producer.send(topic.name, key=key.encode(), value=value)
        return True

    def _send(self, key: bytes, samples: list[Sample]) -> None:
        for export in encode(self._resource, samples, scope=SCOPE):
            self._producer.send(FORECASTS.name, key=key, value=export.body)
