"""Writes the predictions and hints of a cycle to Kafka."""

import socket
from collections.abc import Callable, Iterable
from typing import Final

from kernelcast.columnar import EndedSeries, Resource, Sample, encode
from kernelcast.predictor.cycle import samples
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.scoring.published import Score
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.tuning.hints import HintBook, Issued
from kernelcast.runtime.kafka.clients import Sender
from kernelcast.wire.events import encode_event, to_event
from kernelcast.wire.topics import FORECASTS, HINTS

SERVICE_NAME: Final = "kernelcast-predictor"
SCOPE: Final = "kernelcast.predictor"

PATIENCE_SWEEPS: Final = 3
"""Cycles without a prediction after which its series ends; a cycle may skip it when time is short."""


class ForecastPublisher:
    """Writes forecasts and hints under one identity."""

    def __init__(self, settings: PredictorSettings, producer: Sender, *, clock_ns: Callable[[], int]) -> None:
        self._client_id = settings.client_id
        self._producer = producer
        self._clock_ns = clock_ns
        self._start_ns = clock_ns()
        self._ended: EndedSeries[bytes] = EndedSeries(patience=PATIENCE_SWEEPS)
        self._resource = Resource(
            (
                ("host.name", socket.gethostname()),
                ("service.instance.id", settings.client_id),
                ("service.name", SERVICE_NAME),
            )
        )

    def forecasts(self, report: CycleReport, coverage: dict[str, float], scores: Iterable[Score] = ()) -> None:
        """Write a cycle's predictions, the coverage of past ones by metric, and all scores."""
        time_ns = self._clock_ns()
        keyed = samples.by_key(report.predictions, time_ns=time_ns)
        for key in {*keyed, *self._ended.groups}:
            self._send(key, self._ended.complete(key, keyed.get(key, ()), time_ns))
        own = [Sample(score.metric, score.labels, time_ns, score.value) for score in scores]
        self._send(self._client_id.encode(), [*samples.coverage(coverage, time_ns=time_ns), *own])

    def hints(self, issued: Iterable[Issued], book: HintBook) -> None:
        """Write new hints and the number of hints issued so far."""
        time_ns = self._clock_ns()
        for one in issued:
            event = to_event(one.hint, source=f"/kernelcast/predictor/{self._client_id}", time_ns=time_ns)
            self._producer.send(HINTS.name, key=one.hint.key.encode(), value=encode_event(event))
        counts = samples.hints_issued(book.issued, time_ns=time_ns, start_ns=self._start_ns)
        for program, found in counts.items():
            self._send(program.encode(), found)

    def _send(self, key: bytes, found: list[Sample]) -> None:
        for export in encode(self._resource, found, scope=SCOPE):
            self._producer.send(FORECASTS.name, key=key, value=export.body)
