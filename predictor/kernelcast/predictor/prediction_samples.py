"""Turns the report of each cycle into samples by record key; a prediction that ends is sent once without a value.

`ForecastPublisher` writes them to Kafka, `without_kafka.exposition` serves them on `/metrics`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kernelcast.columnar import EndedSeries, Sample
from kernelcast.predictor.cycle import samples
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.scoring.published import Score
from kernelcast.wire.catalogue.forecast import JUDGED_SERIES

EXCLUSIVE: Final = ("cause", "state")
"""Labels of which a series has one value at a time: a limit that is passed is no longer predicted to be."""
PATIENCE_SWEEPS: Final = 3
"""Cycles without a prediction after which its series ends; a cycle may skip it when time is short."""


class PredictionSamples:
    """Sends samples of predictions under one identity. Only the thread that runs cycles uses it."""

    def __init__(
        self, client_id: str, send: Callable[[bytes, list[Sample]], None], *, clock_ns: Callable[[], int]
    ) -> None:
        """Prepare to send.

        Args:
            client_id: The key of samples about the predictor itself.
            send: Takes a record key, and all samples of that key that are new, changed or ended.
            clock_ns: The time of this machine.
        """
        self._client_id, self._deliver, self._clock_ns = client_id, send, clock_ns
        self._ended: EndedSeries[bytes] = EndedSeries(patience=PATIENCE_SWEEPS, exclusive=EXCLUSIVE)

    def forecasts(self, report: CycleReport, coverage: dict[str, float], scores: Iterable[Score] = ()) -> None:
        """Send a cycle's predictions, the number of series judged, the coverage of past ones by metric, and scores."""
        time_ns = self._clock_ns()
        keyed = samples.by_key(report.predictions, time_ns=time_ns)
        for key in {*keyed, *self._ended.groups}:
            self._deliver(key, self._ended.complete(key, keyed.get(key, ()), time_ns))
        own = [Sample(score.metric, score.labels, time_ns, score.value) for score in scores]
        own.append(Sample(JUDGED_SERIES, (), time_ns, report.judged))
        self._deliver(self._client_id.encode(), [*samples.coverage(coverage, time_ns=time_ns), *own])
