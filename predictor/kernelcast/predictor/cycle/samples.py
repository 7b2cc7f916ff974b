"""Converts predictions, hints and diagnoses to samples of the catalogue's metrics, grouped by record key.

Pure functions for `ForecastPublisher`, which writes the samples to `kernelcast.forecasts`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kernelcast.columnar import Attributes, Sample
from kernelcast.predictor.cycle.predictions import Degradation, Prediction
from kernelcast.predictor.scoring.published import duration_label
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice, holding, missing
from kernelcast.predictor.tuning.hints import HintState, OpenHint
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.catalogue.forecast import (
    APPROVAL_PENDING,
    DEGRADATION_ALERT,
    DEGRADATION_CROSSED,
    DEGRADATION_PROBABILITY,
    DEGRADATION_THRESHOLD,
    DEGRADATION_TIME,
    DIAGNOSIS,
    DIAGNOSIS_MISSING,
    FORECAST_COVERAGE,
    FORECAST_TIME,
    FORECAST_VALUE,
    HINT_EXPECTED,
    HINT_OPEN,
    HINTS_ISSUED,
    SUBJECT_LABELS,
)
from kernelcast.wire.findings import FindingState

BOUNDS: Final = ("mean", "lower", "upper")


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


def coverage(shares: Mapping[str, float], *, time_ns: int) -> list[Sample]:
    """The share of past intervals that held, by metric."""
    return [
        Sample(FORECAST_COVERAGE, (("metric", metric),), time_ns, share) for metric, share in sorted(shares.items())
    ]


def hints_issued(counts: Mapping[tuple[str, str, str], int], *, time_ns: int, start_ns: int) -> dict[str, list[Sample]]:
    """Hints so far, by program; counted since this process began."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for (program, tunable, rule), count in sorted(counts.items()):
        attributes = _sorted(program=program, tunable=tunable, rule=rule)
        samples[program].append(Sample(HINTS_ISSUED, attributes, time_ns, count, start_ns))
    return dict(samples)


def open_hints(found: Iterable[OpenHint], *, time_ns: int) -> dict[str, list[Sample]]:
    """Open hints with the ratios that they promise, by program; those that wait for a person have a row more."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for one in found:
        hint = one.hint
        rule = hint.evidence[0].rule if hint.evidence else ""
        subject = {"program": hint.program, "tunable": hint.tunable, "hint_id": hint.hint_id}
        labels = {**subject, "device_model": hint.device_model, "value": hint.value, "rule": rule}
        issued = one.issued_ns / NANOSECONDS_PER_SECOND
        mine = samples[hint.program]
        mine.append(Sample(HINT_OPEN, _sorted(**labels, previous=hint.requires, state=one.state), time_ns, issued))
        if one.state is HintState.APPROVAL:
            mine.append(Sample(APPROVAL_PENDING, _sorted(**labels), time_ns, issued))
        if hint.expected_ratio is not None:
            lower, upper = hint.expected_interval or (None, None)
            for bound, ratio in zip(BOUNDS, (hint.expected_ratio, lower, upper), strict=True):
                if ratio is not None:
                    mine.append(Sample(HINT_EXPECTED, _sorted(**subject, bound=bound), time_ns, ratio))
    return dict(samples)


def diagnoses(found: Mapping[ProgramOnDevice, Mapping[Signal, float]], *, time_ns: int) -> dict[str, list[Sample]]:
    """Rules that hold and signals that are missing, by program."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for where, signals in found.items():
        hostname, uuid, instance = where.device
        base = {"Hostname": hostname, "UUID": uuid, "program": where.program}
        if instance:
            base["GPU_I_ID"] = instance
        for rule in holding(signals):
            attributes = _sorted(**base, rule=rule.name, signal=rule.evidence)
            samples[where.program].append(Sample(DIAGNOSIS, attributes, time_ns, signals[rule.evidence]))
        for signal in missing(signals):
            samples[where.program].append(Sample(DIAGNOSIS_MISSING, _sorted(**base, signal=signal), time_ns, 1))
    return dict(samples)


def _samples(published: Subject, prediction: Prediction, time_ns: int) -> Iterator[Sample]:
    base = {name: value for name, value in published.labels if name in SUBJECT_LABELS}
    base["metric"] = published.metric
    for horizon, values in prediction.bounds.items():
        for bound, value in zip(BOUNDS, values, strict=True):
            attributes = _sorted(**base, horizon=duration_label(horizon), bound=bound)
            yield Sample(FORECAST_VALUE, attributes, time_ns, value)
    if prediction.bounds or prediction.degradation is not None:
        yield Sample(FORECAST_TIME, _sorted(**base), time_ns, prediction.end_ns / NANOSECONDS_PER_SECOND)
    yield from _degradation(base, prediction.degradation, time_ns)


def _degradation(base: Mapping[str, str], degradation: Degradation | None, time_ns: int) -> Iterator[Sample]:
    if degradation is None:
        return
    yield Sample(DEGRADATION_THRESHOLD, _sorted(**base), time_ns, degradation.threshold)
    if degradation.firing:
        state = FindingState.PASSED if degradation.crossed_ns else FindingState.PREDICTED
        yield Sample(DEGRADATION_ALERT, _sorted(**base, cause=degradation.cause, state=state), time_ns, 1)
        if degradation.crossed_ns:
            since = degradation.crossed_ns / NANOSECONDS_PER_SECOND
            yield Sample(DEGRADATION_CROSSED, _sorted(**base, cause=degradation.cause), time_ns, since)
    for horizon, probability in degradation.probability.items():
        attributes = _sorted(**base, horizon=duration_label(horizon), cause=degradation.cause)
        yield Sample(DEGRADATION_PROBABILITY, attributes, time_ns, probability)
    for quantile, seconds in degradation.seconds.items():
        attributes = _sorted(**base, cause=degradation.cause, quantile=f"{quantile:g}")
        yield Sample(DEGRADATION_TIME, attributes, time_ns, seconds)


def _weight(prediction: Prediction) -> tuple[bool, bool, float]:
    """Order of predictions about one published series."""
    degradation = prediction.degradation
    if degradation is None:
        return False, False, -1.0
    return degradation.passed, degradation.firing, max(degradation.probability.values(), default=0.0)


def _sorted(**words: str) -> Attributes:
    return tuple(sorted((name, str(value)) for name, value in words.items() if value))
