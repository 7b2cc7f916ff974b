"""Checks a kept configuration again, against the configuration of the untuned program (the start).

`TunedCalls` runs a `Confirmation`, an experiment, in place of a campaign, at a restart and once after an hour. Before,
some `LatePair`s find what a configuration costs only after a long stay, which the changes of an experiment hide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from random import Random
from statistics import median
from typing import Final, Protocol

from kernelcast.tuning.experiment import Arm, Decision, Experiment, Objective, Rules

# Launches after which the experiment ends without a decision, where its rules do not need more.
MAX_LAUNCHES: Final = 6000
RECHECK_SECONDS: Final = 3600.0
FIRST_STAY: Final = 256
LONGEST_STAY: Final = 2000
"""Launches of a stay on the kept configuration before a `LatePair`: first, and in the end."""
PAIRS: Final = 4
"""Pairs for each length of stay; all must say that the kept configuration is slower."""
PAIR_LAUNCHES: Final = 16
FASTER: Final = 0.9
"""Share of the time of the start below which a kept configuration is faster without another look at the start."""
SLOWER: Final = 0.01


@dataclass(frozen=True, slots=True)
class Wanted:
    """A configuration that is to be run."""

    ordinal: int
    launches: int = 1
    may_wait: bool = True


class Verdict(Protocol):
    """The verdict of an experiment, of one process or of all ranks."""

    @property
    def decision(self) -> str:
        """The decision."""

    @property
    def reason(self) -> str:
        """Its reason."""

    @property
    def ratio(self) -> float | None:
        """Time of the candidate over that of the kept configuration."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its interval."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The verdict about the kept configuration."""

    ordinal: int
    decision: Decision
    reason: str
    ratio: float | None
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, kept: int, verdict: Verdict) -> "Confirmed":
        """Return the verdict about the kept configuration, from that of an experiment in which the start is tried.

        Its ratio says how the kept configuration compares with the start, as in the search that kept it.
        """
        decision, ratio, interval = Decision(verdict.decision), verdict.ratio, verdict.interval
        return cls(
            kept,
            Decision.ROLLED_BACK if decision is Decision.KEPT else _confirmed(decision),
            f"checked again: {verdict.reason}",
            1 / ratio if ratio else None,
            (1 / interval[1], 1 / interval[0]) if interval and min(interval) > 0 else None,
        )


class Confirmation:
    """A campaign of one experiment, in which the start is the candidate.

    The kept configuration is taken back only if the start is proved faster. So little time is lost: where the kept one
    is much faster, the start is dropped after two or three launches.

    Args:
        start: Number of the configuration of the untuned program.
        kept: Number of the kept one.
        seed: Of the order of the launches.
        rules: Limits of the experiment.

    Attributes:
        kept: The configuration to be in force: the start if the kept one was taken back.
        verdicts: The verdict, once there is one.
        is_kept_tried: Whether the kept configuration has run, with the numbers of the start.
    """

    def __init__(self, start: int, kept: int, seed: int, rules: Rules | None = None) -> None:
        self._start = start
        self._kept = kept
        self._experiment = Experiment(seed=seed, rules=rules)
        self._most = max(MAX_LAUNCHES, self._experiment.rules.most_launches)
        self._arm = Arm.KEPT
        self._launches = 0
        self._request: Wanted | None = None
        self.kept = kept
        self.is_kept_tried = False
        self.verdicts: Sequence[Confirmed] = ()
        self._ask()

    def next(self) -> Wanted | None:
        """Return what to run next; None at the end."""
        return self._request

    def measured(self, times: Sequence[float]) -> None:
        """Answer the request with seconds per item."""
        for seconds in times:
            self._experiment.record(self._arm, seconds)
        self._ask()

    def failed(self, reason: str) -> None:
        """Answer the request: the start failed, so the kept configuration stays."""
        self._experiment.abandon(f"the start cannot be run: {reason}")
        self._ask()

    def refused(self, reason: str) -> None:
        """Answer the request: it was not run."""
        self._experiment.abandon(reason)
        self._ask()

    def _ask(self) -> None:
        if self._experiment.verdict() is None and self._launches < self._most:
            self._launches += 1
            may_wait = self._experiment.at_block_boundary
            self._arm = self._experiment.next_arm()
            self._request = Wanted(self._start if self._arm is Arm.CANDIDATE else self._kept, may_wait=may_wait)
            return
        self._request = None
        self._experiment.end_of_records()
        verdict = self._experiment.verdict()
        if verdict is None:
            return
        if verdict.decision is Decision.KEPT:
            self.kept = self._start
        self.verdicts = (Confirmed.of(self._kept, verdict),)


class LatePair(Confirmation):
    """Compares the end of a long stay on the kept configuration with the start, right after it.

    Args:
        start: Number of the start.
        kept: Number of the kept configuration.
        start_level: Time of the start in the pair before, 0 if unknown. It does not run if that is clearly longer.
        settle: Launches after a change that differ.

    Attributes:
        start_level: Time of the start.
        difference: Log of the kept configuration's time over that of the start; None before it is known.
    """

    def __init__(self, start: int, kept: int, start_level: float, settle: int = 1) -> None:
        self.kept = kept
        self.start_level = start_level
        self.verdicts: Sequence[Confirmed] = ()
        self.is_kept_tried = True
        self.difference: float | None = None
        self._asked = [Wanted(kept, PAIR_LAUNCHES), Wanted(start, max(PAIR_LAUNCHES, settle) + PAIR_LAUNCHES)]
        self._level = 0.0

    def next(self) -> Wanted | None:
        """Return what to run next; None at the end."""
        return self._asked[0] if self._asked else None

    def measured(self, times: Sequence[float]) -> None:
        """Answer the request with seconds per item; the first ones of the start settle."""
        del self._asked[0]
        level = median(times[-PAIR_LAUNCHES:])
        if not self._asked:
            self.start_level = level
        elif level < FASTER * self.start_level:
            self._asked.clear()
        self._level = self._level or level
        if not self._asked and self._level > 0 and self.start_level > 0:
            self.difference = log(self._level / self.start_level)

    def failed(self, reason: str) -> None:
        """Answer the request: the start failed, so the kept configuration stays."""
        self.refused(reason)

    def refused(self, reason: str) -> None:
        """Answer the request: it was not run."""
        del reason
        self._asked.clear()


def _confirmed(decision: Decision) -> Decision:
    return Decision.KEPT if decision is Decision.ROLLED_BACK else Decision.INCONCLUSIVE


@dataclass(slots=True)
class KeptCheck:
    """Schedule of the checks of a kept configuration: at a restart, after long stays, and once after an hour.

    Attributes:
        start: Number of the configuration of the untuned program.
        due_at: Time of the next check, in seconds; infinite if there is none.
        rules: Limits of an experiment.
        stay_launches: Launches of the stay before the next `LatePair`; 0 for none.
    """

    start: int = 0
    due_at: float = inf
    rules: Rules = field(default_factory=Rules)
    stay_launches: int = 0
    _hour_at: float = inf
    _start_level: float = 0.0
    _asked_at: float = 0.0
    _differences: list[float] = field(default_factory=list)

    def kept(self, start: int, now: float, launch_seconds: float) -> None:
        """Note that a search has kept a configuration in place of the start."""
        self.start, self._hour_at = start, now + RECHECK_SECONDS
        goes_by_mean = self.rules.objective is Objective.MEAN
        self.stay_launches = FIRST_STAY if self.rules.look_launches and goes_by_mean else 0
        self._schedule(now, launch_seconds)

    def is_due(self, clock: Callable[[], float]) -> bool:
        """Whether to check now. Every call of the program asks; the clock is read only while a check is to come."""
        if self.due_at == inf:
            return False
        self._asked_at = clock()
        return self._asked_at >= self.due_at

    def begin(self, kept: int) -> Confirmation:
        """Return the campaign that checks a configuration."""
        if self._asked_at < self._hour_at and self.due_at < self._hour_at:
            self.due_at = inf
            return LatePair(self.start, kept, self._start_level, self.rules.settle)
        self.due_at = self._hour_at = inf
        self.stay_launches = 0
        return Confirmation(self.start, kept, Random().getrandbits(32), self.rules)  # noqa: S311  fair, not secret

    def paired(self, pair: LatePair, now: float, launch_seconds: float) -> str:
        """Use the result of a `LatePair`, and schedule the next one.

        Returns:
            The reason to take the configuration back: it is slower in each of some pairs; empty without one.
        """
        self._start_level = pair.start_level
        if pair.difference is not None:
            self._differences.append(pair.difference)
        if len(self._differences) == PAIRS:
            slower, self._differences = self._differences, []
            if min(slower) > SLOWER:
                return (
                    f"after {self.stay_launches} launches in a row it is {exp(min(slower)):.3f} times the start or more"
                )
            self.stay_launches = 0 if self.stay_launches >= LONGEST_STAY else min(2 * self.stay_launches, LONGEST_STAY)
        self._schedule(now, launch_seconds)
        return ""

    def _schedule(self, now: float, launch_seconds: float) -> None:
        late_at = now + self.stay_launches * launch_seconds if self.stay_launches and launch_seconds else inf
        self.due_at = min(self._hour_at, late_at)
