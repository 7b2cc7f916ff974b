"""Higher acceptance bars for series that people marked as false alarms, and the precision that the marks show.

The bar of a series is a factor, 1 without marks: `FindingCandidates.accept` multiplies the time that an observed
candidate must last by it, and divides the score of a predicted one. Precision goes to the predictor's own metrics.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kernelcast.predictor.alarms.candidates import SeriesKey
from kernelcast.wire.findings import Finding, Mark, Verdict
from kernelcast.wire.known_findings import KnownFindings

LASTING_NS: Final = 30 * 24 * 3600 * 1_000_000_000
"""Time for which a mark counts, 30 days, so that a series whose fault was mended is judged like others again."""
FACTORS: Final[Mapping[int, float]] = {1: 1.5}
"""Factor by number of false alarms of a series: one alone may be a slip of the person."""
HIGHEST_FACTOR: Final = 2.0
"""Factor of a series with two false alarms or more."""


def bars(known: KnownFindings, time_ns: int) -> dict[SeriesKey, float]:
    """Bars by series, from the false alarms of the last 30 days; other verdicts raise no bar."""
    counts: Counter[SeriesKey] = Counter()
    for mark in _recent(known, time_ns):
        finding = known.findings.get(mark.finding_id)
        if mark.verdict is Verdict.FALSE_ALARM and finding is not None:
            counts.update(_series_of(finding))
    return {key: FACTORS.get(count, HIGHEST_FACTOR) for key, count in counts.items()}


def verdicts(known: KnownFindings, time_ns: int) -> dict[Verdict, int]:
    """Number of marks of each verdict in the last 30 days."""
    counts = Counter(mark.verdict for mark in _recent(known, time_ns))
    return {verdict: counts[verdict] for verdict in Verdict}


def precision(counts: Mapping[Verdict, int]) -> float | None:
    """Share of the marked findings that were real; None without marks."""
    total = sum(counts.values())
    return 1.0 - counts[Verdict.FALSE_ALARM] / total if total else None


def _series_of(finding: Finding) -> set[SeriesKey]:
    return {(one.metric, one.labels) for one in finding.evidence} | {(finding.metric, finding.labels)}


def _recent(known: KnownFindings, time_ns: int) -> list[Mark]:
    return [mark for mark in known.marks.values() if mark.time_ns > time_ns - LASTING_NS]
