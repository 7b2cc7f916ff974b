"""Candidate findings of single series: since when each lasts, how often it has returned, and whether it is accepted.

`Alarms.step` updates them once a cycle and groups the accepted ones into findings.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kernelcast.predictor.alarms import discovery
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Severity

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
"""Metric and labels."""
CandidateKey = tuple[str, tuple[tuple[str, str], ...], bool]
"""Metric, labels, and whether a deploy is the cause: it is a finding beside another fault of the same series."""
NANOSECONDS = 1_000_000_000
IMMINENT_SECONDS: Final = 3600.0
"""Time within which a nearly certain breach waits for no evidence; without it a page came 15 minutes later."""
WAITED_SHARE: Final = 0.5
"""Share of the time to the limit that a prediction waits for evidence at most: later evidence helps nobody.

Half leaves as much time to act as was waited. Of 142 faults of `benchmarks.predictor others-fleet`, 3,000 series
watched, a quarter, a half and the whole paged .68, .68 and .67 in time; a quarter also paged one of 16 healthy nodes on
its first day.
"""
NEARLY_CERTAIN: Final = 0.9
"""Probability that such a prediction needs."""


@dataclass(slots=True)
class FindingCandidate:
    """Candidate finding of one series.

    Attributes:
        latest: The candidate of the newest cycle that had one.
        since_ns: Since when it lasts, short breaks included, Unix nanoseconds of event time, as all times here.
        seen_ns: Time of that cycle.
        begins_ns: Times at which it appeared, also after a break, the newest last; at most `AlarmSettings.flaps`.
        is_accepted: Whether it belongs to a finding.
        finding_id: That finding; empty before.
        log_score: Logarithm of the score of a prediction in the last cycle; negative infinity for another candidate.
    """

    latest: Finding
    since_ns: int
    seen_ns: int
    begins_ns: tuple[int, ...]
    is_accepted: bool = False
    finding_id: str = ""
    log_score: float = field(default=-math.inf, compare=False)

    @property
    def series(self) -> SeriesKey:
        """The series."""
        return self.latest.metric, self.latest.labels

    @property
    def key(self) -> CandidateKey:
        """The series, and whether a deploy is the cause."""
        return key_of(self.latest)


def key_of(found: Finding) -> CandidateKey:
    """The key of the candidate that a finding of a series belongs to."""
    return found.metric, found.labels, found.cause is Cause.DEPLOY


class FindingCandidates:
    """All candidates, bounded by `AlarmSettings.max_series`. Not safe for several threads: the owner holds a lock.

    Attributes:
        by_series: The candidates.
        updated_ns: Time of the last cycle.
        refused: Number of candidates refused because too many are followed.
    """

    def __init__(self, settings: AlarmSettings) -> None:
        self._settings = settings
        self.by_series: dict[CandidateKey, FindingCandidate] = {}
        self.updated_ns = 0
        self.refused = 0

    def update(self, found: Iterable[Finding], time_ns: int) -> None:
        """Record the candidates of a cycle, and forget those that have been away for long enough."""
        for one in found:
            key = key_of(one)
            known = self.by_series.get(key)
            if known is not None:
                self._seen_again(known, _as_passed(one, known.latest, time_ns), time_ns)
            elif len(self.by_series) < self._settings.max_series:
                since_ns = _since_ns(one, time_ns)
                self.by_series[key] = FindingCandidate(_as_passed(one, None, time_ns), since_ns, time_ns, (time_ns,))
            else:
                self.refused += 1
        gone = [key for key, one in self.by_series.items() if time_ns - one.seen_ns > self.linger_ns(one)]
        for key in gone:
            del self.by_series[key]
        self.updated_ns = time_ns

    def set_back(self, time_ns: int) -> None:
        """Move all later times to this one: the hosts' clocks were ahead and have been set back."""
        for one in self.by_series.values():
            one.since_ns, one.seen_ns = min(one.since_ns, time_ns), min(one.seen_ns, time_ns)
            one.begins_ns = tuple(min(each, time_ns) for each in one.begins_ns)
        self.updated_ns = min(self.updated_ns, time_ns)

    def close_deploys(self, programs: Collection[str]) -> None:
        """Forget the candidates of deploys of programs at once."""
        gone = [key for key in self.by_series if key[2] and dict(key[1]).get("program") in programs]
        for key in gone:
            del self.by_series[key]

    def linger_ns(self, one: FindingCandidate) -> int:
        """Time without a candidate after which it is forgotten; longer for one that flaps (comes and goes)."""
        settings = self._settings
        span_ns = one.begins_ns[-1] - one.begins_ns[0]
        flapping = len(one.begins_ns) >= settings.flaps and span_ns <= settings.flap_window_seconds * NANOSECONDS
        seconds = max(settings.quiet_seconds, settings.clear_seconds) if flapping else settings.clear_seconds
        return round(seconds * NANOSECONDS)

    def accept(self, watched: int, bars: Mapping[SeriesKey, float], unit_of: Callable[[Finding], Hashable]) -> None:
        """Decide which candidates belong to a finding; an accepted one stays accepted until it is forgotten.

        Args:
            watched: Number of series that are watched.
            bars: Factors of series that were marked as false alarms; others have 1.
            unit_of: Unit that a prediction concerns; predictions of one unit count once.
        """
        predicted = []
        for one in self.by_series.values():
            lasting_seconds = (one.seen_ns - one.since_ns) / NANOSECONDS
            bar = bars.get(one.series, 1.0)
            one.log_score = -math.inf
            if one.latest.state is FindingState.PASSED or (_is_observed_page(one.latest) and bar <= 1.0):
                one.is_accepted = True
            elif one.latest.state is FindingState.OBSERVED or one.latest.probability is None:
                one.is_accepted |= lasting_seconds >= bar * self._settings.hold_seconds
            else:
                one.is_accepted |= lasting_seconds >= bar * _longest_wait(one.latest, self._settings.hold_seconds)
                one.log_score = discovery.log_score(one.latest.probability, lasting_seconds, bar)
                predicted.append(one)
        units = [unit_of(one.latest) for one in predicted]
        ratio = self._settings.false_discovery_ratio
        strong = discovery.accepted([one.log_score for one in predicted], units, watched, ratio)
        for one, is_strong in zip(predicted, strong.tolist(), strict=True):
            one.is_accepted |= is_strong

    def _seen_again(self, known: FindingCandidate, one: Finding, time_ns: int) -> None:
        if known.seen_ns < self.updated_ns:
            known.begins_ns = (*known.begins_ns, time_ns)[-self._settings.flaps :]
            if not known.is_accepted:
                # The score of a prediction grows with the time for which it lasts without a break.
                known.since_ns = time_ns
        # A past that was read later shows an earlier begin.
        known.since_ns = min(known.since_ns, _since_ns(one, time_ns))
        known.latest, known.seen_ns = one, time_ns


def _longest_wait(found: Finding, hold_seconds: float) -> float:
    """Seconds that a prediction waits at most, however many series are watched; infinite where it is not certain."""
    _, median, late = found.seconds_to_limit or (None, None, None)
    is_certain = found.probability is not None and found.probability >= NEARLY_CERTAIN
    wait_seconds = WAITED_SHARE * median if median is not None and is_certain else math.inf
    return min(wait_seconds, hold_seconds) if late is not None and late <= IMMINENT_SECONDS else wait_seconds


def _since_ns(found: Finding, time_ns: int) -> int:
    """Begin of a prediction: its alert may have begun in a history that was there before this process."""
    return min(found.began_ns or time_ns, time_ns) if found.state is not FindingState.OBSERVED else time_ns


def _as_passed(found: Finding, before: Finding | None, time_ns: int) -> Finding:
    """The candidate of a limit that was passed: it counts as passed, since the same time, until it is forgotten."""
    was_passed = before is not None and before.state is FindingState.PASSED
    if found.state is not FindingState.PASSED and not (was_passed and found.state is FindingState.PREDICTED):
        return found
    known = (found.passed_ns, before.passed_ns if before is not None else 0)
    passed_ns = min((each_ns for each_ns in known if each_ns), default=time_ns)
    return replace(found, state=FindingState.PASSED, passed_ns=passed_ns)


def _is_observed_page(found: Finding) -> bool:
    """Whether an observed fault is accepted at once: a reported XID 79, for one, does not become surer by waiting.

    A comparison with other workers rests on noisy durations, so it must last.
    """
    return (
        found.state is FindingState.OBSERVED and found.severity is Severity.PAGE and found.cause is not Cause.STRAGGLER
    )
