"""Converts hints and diagnoses to samples of the catalogue's metrics, by record key: the name of the program.

Pure functions for `ForecastPublisher`, which writes the samples to `kernelcast.forecasts`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kernelcast.columnar import Sample
from kernelcast.predictor.prediction_samples import BOUNDS
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice, holding, missing
from kernelcast.predictor.tuning.hints import HintState, OpenHint
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.catalogue.forecast import (
    APPROVAL_PENDING,
    DIAGNOSIS,
    DIAGNOSIS_MISSING,
    HINT_EXPECTED,
    HINT_OPEN,
    HINTS_ISSUED,
)
from kernelcast.wire.identity import labels


def hints_issued(
    counts: Mapping[tuple[str, str, str], int], *, time_ns: int, start_ns: int
) -> dict[bytes, list[Sample]]:
    """Hints so far; counted since this process began."""
    samples: defaultdict[bytes, list[Sample]] = defaultdict(list)
    for (program, tunable, rule), count in sorted(counts.items()):
        attributes = labels(program=program, tunable=tunable, rule=rule)
        samples[program.encode()].append(Sample(HINTS_ISSUED, attributes, time_ns, count, start_ns))
    return dict(samples)


def open_hints(hints: Iterable[OpenHint], *, time_ns: int) -> dict[bytes, list[Sample]]:
    """Open hints with the ratios that they promise; those that wait for a person have a row more."""
    samples: defaultdict[bytes, list[Sample]] = defaultdict(list)
    for open_hint in hints:
        hint = open_hint.hint
        rule = hint.evidence[0].rule if hint.evidence else ""
        subject = {"program": hint.program, "tunable": hint.tunable, "hint_id": hint.hint_id}
        trial = {**subject, "device_model": hint.device_model, "value": hint.value, "rule": rule}
        issued = open_hint.issued_ns / NANOSECONDS_PER_SECOND
        mine = samples[hint.program.encode()]
        attributes = labels(**trial, previous=hint.requires, state=open_hint.state)
        mine.append(Sample(HINT_OPEN, attributes, time_ns, issued))
        if open_hint.state is HintState.APPROVAL:
            mine.append(Sample(APPROVAL_PENDING, labels(**trial), time_ns, issued))
        if hint.expected_ratio is not None:
            lower, upper = hint.expected_interval or (None, None)
            for bound, ratio in zip(BOUNDS, (hint.expected_ratio, lower, upper), strict=True):
                if ratio is not None:
                    mine.append(Sample(HINT_EXPECTED, labels(**subject, bound=bound), time_ns, ratio))
    return dict(samples)


def diagnoses(
    signals_of: Mapping[ProgramOnDevice, Mapping[Signal, float]], *, time_ns: int
) -> dict[bytes, list[Sample]]:
    """Rules that hold and signals that are missing."""
    samples: defaultdict[bytes, list[Sample]] = defaultdict(list)
    for where, signals in signals_of.items():
        key = where.program.encode()
        hostname, uuid, instance = where.device
        base = {"Hostname": hostname, "UUID": uuid, "program": where.program}
        if instance:
            base["GPU_I_ID"] = instance
        for rule in holding(signals):
            attributes = labels(**base, rule=rule.name, signal=rule.evidence)
            samples[key].append(Sample(DIAGNOSIS, attributes, time_ns, signals[rule.evidence]))
        for signal in missing(signals):
            samples[key].append(Sample(DIAGNOSIS_MISSING, labels(**base, signal=signal), time_ns, 1))
    return dict(samples)
