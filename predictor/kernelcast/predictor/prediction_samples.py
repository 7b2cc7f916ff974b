"""Turns the report of each cycle into samples by record key; a prediction that ends is sent once without a value.

`ForecastPublisher` writes them to Kafka, `without_kafka.exposition` serves them on `/metrics`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kernelcast.columnar import EndedSeries, Sample
from kernelcast.predictor.cycle.predictions import CycleReport, Degradation, Prediction
from kernelcast.predictor.scoring.published import Score, duration_label
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.catalogue.forecast import (
    DEGRADATION_ALERT,
    DEGRADATION_CROSSED,
    DEGRADATION_PROBABILITY,
    DEGRADATION_THRESHOLD,
    DEGRADATION_TIME,
    FORECAST_COVERAGE,
    FORECAST_TIME,
    FORECAST_VALUE,
    JUDGED_SERIES,
    SUBJECT_LABELS,
)
from kernelcast.wire.findings import FindingState
from kernelcast.wire.identity import labels

BOUNDS: Final = ("mean", "lower", "upper")
"""Values of the label `bound`, in the order of `Bounds`."""
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
        self._deliver_states(by_key(report.predictions, time_ns=time_ns), self._ended, time_ns)
        own = [Sample(score.metric, score.labels, time_ns, score.value) for score in scores]
        own.append(Sample(JUDGED_SERIES, (), time_ns, report.judged))
        self._deliver(self._client_id.encode(), [*coverage_samples(coverage, time_ns=time_ns), *own])

    def _deliver_states(self, samples: Mapping[bytes, list[Sample]], ended: EndedSeries[bytes], time_ns: int) -> None:
        """Send all present samples of one kind by record key, and withdraw those that have ended."""
        for key in {*samples, *ended.groups}:
            self._deliver(key, ended.complete(key, samples.get(key, ()), time_ns))


def by_key(predictions: Iterable[Prediction], *, time_ns: int) -> dict[bytes, list[Sample]]:
    """Samples of all predictions by record key.

    Variants of one kernel share the kernel's series: one with an alert is published before all others, then the one
    with the most probable degradation.

    Args:
        predictions: The predictions of one cycle.
        time_ns: When they are issued, Unix nanoseconds.
    """
    worst: dict[Subject, Prediction] = {}
    for prediction in predictions:
        published = prediction.subject.without_variant
        if published not in worst or _weight(prediction) > _weight(worst[published]):
            worst[published] = prediction
    samples: defaultdict[bytes, list[Sample]] = defaultdict(list)
    for published, prediction in worst.items():
        samples[published.key].extend(_samples(published, prediction, time_ns))
    return dict(samples)


def coverage_samples(shares: Mapping[str, float], *, time_ns: int) -> list[Sample]:
    """The share of past intervals that held, by metric."""
    return [
        Sample(FORECAST_COVERAGE, (("metric", metric),), time_ns, share) for metric, share in sorted(shares.items())
    ]


def _samples(published: Subject, prediction: Prediction, time_ns: int) -> Iterator[Sample]:
    base = {name: value for name, value in published.labels if name in SUBJECT_LABELS}
    base["metric"] = published.metric
    for horizon, values in prediction.bounds.items():
        for bound, value in zip(BOUNDS, values, strict=True):
            attributes = labels(**base, horizon=duration_label(horizon), bound=bound)
            yield Sample(FORECAST_VALUE, attributes, time_ns, value)
    if prediction.bounds or prediction.degradation is not None:
        yield Sample(FORECAST_TIME, labels(**base), time_ns, prediction.end_ns / NANOSECONDS_PER_SECOND)
    yield from _degradation(base, prediction.degradation, time_ns)


def _degradation(base: Mapping[str, str], degradation: Degradation | None, time_ns: int) -> Iterator[Sample]:
    if degradation is None:
        return
    yield Sample(DEGRADATION_THRESHOLD, labels(**base), time_ns, degradation.threshold)
    if degradation.firing:
        state = FindingState.PASSED if degradation.crossed_ns else FindingState.PREDICTED
        yield Sample(DEGRADATION_ALERT, labels(**base, cause=degradation.cause, state=state), time_ns, 1)
        if degradation.crossed_ns:
            since = degradation.crossed_ns / NANOSECONDS_PER_SECOND
            yield Sample(DEGRADATION_CROSSED, labels(**base, cause=degradation.cause), time_ns, since)
    for horizon, probability in degradation.probability.items():
        attributes = labels(**base, horizon=duration_label(horizon), cause=degradation.cause)
        yield Sample(DEGRADATION_PROBABILITY, attributes, time_ns, probability)
    for quantile, seconds in degradation.seconds.items():
        attributes = labels(**base, cause=degradation.cause, quantile=f"{quantile:g}")
        yield Sample(DEGRADATION_TIME, attributes, time_ns, seconds)


def _weight(prediction: Prediction) -> tuple[bool, bool, float]:
    """Order of predictions about one published series."""
    degradation = prediction.degradation
    if degradation is None:
        return False, False, -1.0
    return degradation.passed, degradation.firing, max(degradation.probability.values(), default=0.0)
