"""Finds causes: applies the table of rules to features, and returns each cause with its evidence.

A pure function of the features: it knows neither time nor windows, and no earlier result. The table of rules is in
`wire.catalogue.cause_rules`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.wire.catalogue.cause_rules import RULES, ComparisonOperator, Condition, Excuse, Rule
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.features import FEATURES, Feature
from kernelcast.wire.catalogue.meanings import Cause, MeaningQuestion
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.findings import FindingEvidence, Severity

NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class FeatureColumn:
    """One feature of all rows, arrays of shape (n,); NaN where it is not known.

    Attributes:
        figure: The figure that rules compare.
        value: Value of the metric, in its own unit.
        reference: Value that it was compared with.
        span_seconds: Length of the time that the figure describes.
    """

    figure: Floats
    value: Floats
    reference: Floats
    span_seconds: float = 300.0

    @classmethod
    def plain(cls, figure: Floats, span_seconds: float = 300.0) -> "FeatureColumn":
        """A feature that is the metric's own value, without a reference."""
        return cls(figure, figure, np.full(len(figure), np.nan), span_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """Features of GPUs, or of programs on GPUs; n rows.

    Attributes:
        columns: The features that are known for at least one row.
        labels: Labels of each row, sorted pairs.
        end_ns: Shape (n,), end of each row's newest interval, Unix nanoseconds.
    """

    columns: Mapping[Feature, FeatureColumn]
    labels: Sequence[tuple[tuple[str, str], ...]]
    end_ns: Sequence[int]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class FoundCause:
    """A cause with its evidence.

    Attributes:
        cause: The cause.
        severity: Urgency of the rule that found it.
        evidence: The facts behind it.
    """

    cause: Cause
    severity: Severity
    evidence: tuple[FindingEvidence, ...]


@dataclass(frozen=True, slots=True)
class RowCauses:
    """Causes of one row, or the reason for none.

    Attributes:
        causes: In the order of precedence, each once; empty where there is none.
        reason: Why there is none; None where there are causes.
    """

    causes: tuple[FoundCause, ...] = ()
    reason: Excuse | None = None

    def first_of(self, causes: frozenset[Cause]) -> FoundCause | None:
        """The first of some causes."""
        return next((cause for cause in self.causes if cause.cause in causes), None)


@dataclass(slots=True)
class _Row:
    """Rules that hold for one row."""

    rules: list[Rule] = field(default_factory=list)
    topics: set[MeaningQuestion] = field(default_factory=set)

    def add(self, rule: Rule) -> None:
        if rule.topic in self.topics or (rule.topic is MeaningQuestion.LAST and self.rules):
            return
        if rule.topic is not None:
            self.topics.add(rule.topic)
        if rule.result not in [held.result for held in self.rules]:
            self.rules.append(rule)


def find(rows: FeatureRows, rules: Sequence[Rule] = RULES) -> list[RowCauses]:
    """Find the causes of each row.

    Args:
        rows: The features.
        rules: In the order of their precedence.
    """
    held = [_Row() for _ in range(len(rows))]
    for rule in rules:
        for number in _holding(rows, rule):
            held[number].add(rule)
    known = _known(rows).tolist()
    nothing = {True: RowCauses(reason=Excuse.NORMAL), False: RowCauses(reason=Excuse.NO_DATA)}
    return [_causes_of(rows, number, row) if row.rules else nothing[known[number]] for number, row in enumerate(held)]


def _known(rows: FeatureRows) -> Bools:
    """Whether any feature of each row is known, shape (n,)."""
    known = np.zeros(len(rows), dtype=np.bool_)
    for column in rows.columns.values():
        known |= ~np.isnan(column.figure)
    return known


def _holding(rows: FeatureRows, rule: Rule) -> list[int]:
    """Rows for which a rule holds."""
    result = np.ones(len(rows), dtype=np.bool_)
    for condition in rule.conditions:
        column = rows.columns.get(condition.feature)
        if column is None:
            return []
        result &= _satisfied(column.figure, condition)
        if not result.any():
            return []
    holding: list[int] = np.flatnonzero(result).tolist()
    return holding


def _satisfied(figure: Floats, condition: Condition) -> Bools:
    """Whether each figure fulfils a condition; not where it is NaN."""
    known = ~np.isnan(figure)
    match condition.comparison:
        case ComparisonOperator.AT_LEAST:
            return known & (figure >= condition.limit)
        case ComparisonOperator.AT_MOST:
            return known & (figure <= condition.limit)
        case ComparisonOperator.ONE_OF:
            return known & np.isin(figure, sorted(condition.members))


def _causes_of(rows: FeatureRows, number: int, row: _Row) -> RowCauses:
    """The causes of a row for which a rule holds, else the first reason why there is none."""
    causes = tuple(
        FoundCause(rule.result, Severity.PAGE if rule.page else Severity.TICKET, _evidence(rows, number, rule))
        for rule in row.rules
        if isinstance(rule.result, Cause)
    )
    if causes:
        return RowCauses(causes)
    excuses = [rule.result for rule in row.rules if isinstance(rule.result, Excuse)]
    return RowCauses(reason=excuses[0])


def _evidence(rows: FeatureRows, number: int, rule: Rule) -> tuple[FindingEvidence, ...]:
    """Evidence of the features that a rule reads, and of those that it shows beside them, where they are known."""
    features = dict.fromkeys((*(condition.feature for condition in rule.conditions), *rule.evidence))
    named = [(feature, rows.columns[feature]) for feature in features if feature in rows.columns]
    return tuple(
        _fact(rows, number, feature, column) for feature, column in named if not np.isnan(column.figure[number])
    )


def _fact(rows: FeatureRows, number: int, feature: Feature, column: FeatureColumn) -> FindingEvidence:
    source, end_ns = FEATURES[feature], int(rows.end_ns[number])
    reference = _number(column.reference[number])
    return FindingEvidence(
        metric=source.metric.prometheus_name,
        labels=_selecting(source.metric, rows.labels[number]),
        value=_number(column.value[number]),
        reference=reference,
        against=source.against if reference is not None else "",
        begin_ns=end_ns - int(column.span_seconds * NANOSECONDS),
        end_ns=end_ns,
    )


def _selecting(metric: Metric, labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The labels that a metric has; a GPU's series have no program and no kernel."""
    return tuple(pair for pair in labels if pair[0] in (metric.labels or device.DEVICE_LABELS))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
