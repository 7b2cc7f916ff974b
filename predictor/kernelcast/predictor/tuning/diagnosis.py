"""Diagnosis of programs: which rules of the catalogue hold for a program on a GPU, and which signals are missing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelcast.predictor.series.subjects import DeviceKey
from kernelcast.wire.catalogue.diagnosis.rules import RULES, DiagnosisRule, Signal, Threshold

Signals = Mapping[Signal, float]


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
        where: The program and its GPU.
        rule: The rule.
        value: Value of the signal that decides.
    """

    where: ProgramOnDevice
    rule: DiagnosisRule
    value: float


def holding(signals: Signals, rules: Iterable[DiagnosisRule] = RULES) -> list[DiagnosisRule]:
    """Rules that hold, in the catalogue's order."""
    return [rule for rule in rules if all(_holds(one, signals) for one in rule.thresholds)]


def missing(signals: Signals, rules: Iterable[DiagnosisRule] = RULES) -> list[Signal]:
    """Signals that are not measured and without which some rule cannot be judged, in the catalogue's order."""
    wanted = {one.signal for rule in rules if _open(rule, signals) for one in rule.thresholds}
    return [signal for signal in Signal if signal in wanted - signals.keys()]


def diagnose(found: Mapping[ProgramOnDevice, Signals]) -> list[Diagnosis]:
    """Rules that hold, for each program on each GPU."""
    return [
        Diagnosis(where, rule, signals[rule.decides]) for where, signals in found.items() for rule in holding(signals)
    ]


def _holds(threshold: Threshold, signals: Signals) -> bool:
    value = signals.get(threshold.signal)
    if value is None:
        return False
    return value >= threshold.limit if threshold.at_least else value < threshold.limit


def _open(rule: DiagnosisRule, signals: Signals) -> bool:
    """Whether everything that is measured speaks for the rule."""
    return all(_holds(one, signals) for one in rule.thresholds if one.signal in signals)
