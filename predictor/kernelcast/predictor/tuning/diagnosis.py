"""Diagnosis of programs: which rules of the catalogue hold for a program on a GPU, and which signals are missing.

Pure functions. A rule holds if all of its thresholds hold. A threshold on a signal that is not measured does not hold.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelcast.predictor.series.subjects import DeviceKey
from kernelcast.wire.catalogue.diagnosis.rules import RULES, DiagnosisRule, Signal, Threshold

Signals = Mapping[Signal, float]
"""Values of the signals that are measured, finite; others are absent (`signals.read_signals`)."""


@dataclass(frozen=True, slots=True)
class ProgramOnDevice:
    """One program on one GPU.

    Attributes:
        program: Its name.
        device: Hostname, UUID and MIG instance of the GPU.
    """

    program: str
    device: DeviceKey


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One rule that holds.

    Attributes:
        subject: The program and the GPU for which it holds.
        rule: The rule.
        value: Value of `rule.evidence`, the signal that is published as the reason.
    """

    subject: ProgramOnDevice
    rule: DiagnosisRule
    value: float


def holding(signals: Signals, rules: Iterable[DiagnosisRule] = RULES) -> list[DiagnosisRule]:
    """Rules that hold, in the order of `rules`."""
    return [rule for rule in rules if all(_holds(threshold, signals) for threshold in rule.thresholds)]


def missing(signals: Signals, rules: Iterable[DiagnosisRule] = RULES) -> list[Signal]:
    """Signals that are not measured and without which a rule may hold or not, in the order of `Signal`.

    A rule of which a measured signal fails a threshold cannot hold, so its other signals are not missing.
    """
    wanted = {threshold.signal for rule in rules if _not_ruled_out(rule, signals) for threshold in rule.thresholds}
    wanted -= signals.keys()
    return [signal for signal in Signal if signal in wanted]


def diagnose(measured: Mapping[ProgramOnDevice, Signals]) -> list[Diagnosis]:
    """Rules of the catalogue that hold, for each program on each GPU."""
    return [
        Diagnosis(subject, rule, signals[rule.evidence])
        for subject, signals in measured.items()
        for rule in holding(signals)
    ]


def _holds(threshold: Threshold, signals: Signals) -> bool:
    """Whether a signal is at or above the limit, or, for an upper limit, strictly below it."""
    value = signals.get(threshold.signal)
    if value is None:
        return False
    return value >= threshold.limit if threshold.at_least else value < threshold.limit


def _not_ruled_out(rule: DiagnosisRule, signals: Signals) -> bool:
    """Whether no measured signal fails a threshold of the rule."""
    return all(_holds(threshold, signals) for threshold in rule.thresholds if threshold.signal in signals)
