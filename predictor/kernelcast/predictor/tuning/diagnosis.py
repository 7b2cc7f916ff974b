"""Diagnosis of programs: which rules of the catalogue hold for a program on a GPU, and which signals are missing.

Pure functions. A rule holds if all of its thresholds do, and the signal that decides it is among them; a signal that is
not measured passes no threshold.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelcast.predictor.series.subjects import DeviceKey
from kernelcast.wire.catalogue.diagnosis.rules import RULES, DiagnosisRule, Signal, Threshold

Signals = Mapping[Signal, float]
"""Values of the signals that are measured; others are absent."""


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
        where: The program and the GPU for which it holds.
        rule: The rule.
        value: Value of `rule.decides`, the signal that is shown as the reason.
    """

    where: ProgramOnDevice
    rule: DiagnosisRule
    value: float


def holding(signals: Signals, rules: Iterable[DiagnosisRule] = RULES) -> list[DiagnosisRule]:
    """Rules that hold, in the order of `rules`."""
    return [rule for rule in rules if all(_holds(threshold, signals) for threshold in rule.thresholds)]


def missing(signals: Signals, rules: Iterable[DiagnosisRule] = RULES) -> list[Signal]:
    """Signals that are not measured and could still decide a rule, in the order of `Signal`.

    A rule that a measured signal has ruled out needs no further signal.
    """
    wanted = {threshold.signal for rule in rules if _not_ruled_out(rule, signals) for threshold in rule.thresholds}
    wanted -= signals.keys()
    return [signal for signal in Signal if signal in wanted]


def diagnose(measured: Mapping[ProgramOnDevice, Signals]) -> list[Diagnosis]:
    """Rules of the catalogue that hold, for each program on each GPU."""
    return [
        Diagnosis(where, rule, signals[rule.decides])
        for where, signals in measured.items()
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
