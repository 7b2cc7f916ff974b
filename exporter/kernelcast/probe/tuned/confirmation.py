"""Checks a kept configuration again: by one experiment against the configuration of the untuned program (the start).

`TunedCalls` runs a `Confirmation` in place of a campaign, at a restart and once after an hour.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from kernelcast.tuning.experiment import Arm, Decision, Experiment, ExperimentVerdict, Rules

# Launches after which the experiment ends without a decision.
MAX_LAUNCHES: Final = 6000
RECHECK_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A configuration that is to be run."""

    ordinal: int
    launches: int = 1
    may_wait: bool = True


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The verdict about the kept configuration."""

    ordinal: int
    decision: Decision
    reason: str
    ratio: float | None
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, kept: int, verdict: ExperimentVerdict) -> "Confirmed":
        """Return the verdict about the kept configuration, from that of an experiment in which the start is tried."""
        return cls.inverted(kept, verdict.decision, verdict.reason, verdict.ratio, verdict.interval)

    @classmethod
    def inverted(
        cls,
        kept: int,
        decision: Decision,
        reason: str,
        ratio: float | None,
        interval: tuple[float, float] | None,
    ) -> "Confirmed":
        """Return the same from the parts of that verdict.

        Its ratio says how the kept configuration compares with the start, as in the search that kept it.
        """
        return cls(
            kept,
            Decision.ROLLED_BACK if decision is Decision.KEPT else _confirmed(decision),
            f"checked again: {reason}",
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
        if self._experiment.verdict() is None and self._launches < MAX_LAUNCHES:
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


def _confirmed(decision: Decision) -> Decision:
    return Decision.KEPT if decision is Decision.ROLLED_BACK else Decision.INCONCLUSIVE


@dataclass(slots=True)
class KeptCheck:
    """Schedule of the checks of a kept configuration: at a restart, and once after an hour.

    Attributes:
        start: Number of the configuration of the untuned program.
        due_at: Time of the next check, in seconds; infinite if there is none.
        rules: Limits of a check.
    """

    start: int = 0
    due_at: float = inf
    rules: Rules = field(default_factory=Rules)

    def kept(self, start: int, now: float) -> None:
        """Note that a search has kept a configuration in place of the start."""
        self.start, self.due_at = start, now + RECHECK_SECONDS

    def is_due(self, clock: Callable[[], float]) -> bool:
        """Whether to check now. Every call of the program asks; the clock is read only while a check is to come."""
        return self.due_at < inf and clock() >= self.due_at

    def begin(self, kept: int) -> Confirmation:
        """Return the campaign that checks a configuration."""
        self.due_at = inf
        return Confirmation(self.start, kept, Random().getrandbits(32), self.rules)  # noqa: S311  fair, not secret
