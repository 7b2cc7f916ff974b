"""Checks a kept configuration again, against the configuration of the untuned program (the start).

`SearchedShapes` runs a `Confirmation`, an experiment, in place of a campaign, at a restart and once after an hour.
Before, some `LatePair`s find what it costs only after a long stay, which the changes of an experiment hide. `Recheck`
says when.
"""

from collections.abc import Sequence
from math import log
from statistics import median
from typing import Final

from kernelcast.tuning.experiment import Arm, Decision, Experiment, Rules
from kernelcast.tuning.requests import LaunchRequest, Proved

# Launches after which the experiment ends without a decision, where its rules do not need more.
MAX_LAUNCHES: Final = 6000
PAIR_LAUNCHES: Final = 16
FASTER: Final = 0.9
"""Share of the time of the start below which a kept configuration is faster without another look at the start."""


def confirmed(start: Proved) -> Proved:
    """Return the verdict about the kept configuration, from that about the start, which was tried against it.

    Its ratio says how the kept configuration compares with the start, as in the search that kept it.
    """
    decisions = {Decision.KEPT: Decision.ROLLED_BACK, Decision.ROLLED_BACK: Decision.KEPT}
    ratio, interval = start.ratio, start.interval
    return Proved(
        start.against,
        start.ordinal,
        decisions.get(start.decision, Decision.INCONCLUSIVE),
        f"checked again: {start.reason}",
        1 / ratio if ratio else None,
        (1 / interval[1], 1 / interval[0]) if interval and min(interval) > 0 else None,
    )


class Confirmation:
    """A campaign of one experiment, in which the start is the candidate.

    The kept configuration is taken back only if the start is proved faster. So little time is lost: where the kept one
    is much faster, the start is dropped after two or three launches.

    Args:
        start: Number of the configuration of the untuned program.
        kept: Number of the kept configuration.
        seed: Seed of the order of the launches.
        rules: Limits of the experiment.

    Attributes:
        kept: Number of the configuration to be in force: the start if the kept one was taken back.
        verdicts: Empty, then the verdict.
        is_kept_tried: Whether the kept configuration has run, with the numbers of the start.
    """

    def __init__(self, start: int, kept: int, seed: int, rules: Rules | None = None) -> None:
        self._start = start
        self._kept = kept
        self._experiment = Experiment(seed=seed, rules=rules)
        self._most = max(MAX_LAUNCHES, self._experiment.rules.most_launches)
        self._arm = Arm.KEPT
        self._launches = 0
        self._request: LaunchRequest | None = None
        self.kept = kept
        self.is_kept_tried = False
        self.verdicts: Sequence[Proved] = ()
        self._ask()

    def next(self) -> LaunchRequest | None:
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
            ordinal = self._start if self._arm is Arm.CANDIDATE else self._kept
            self._request = LaunchRequest(ordinal, 1, may_wait)
            return
        self._request = None
        self._experiment.end_of_records()
        verdict = self._experiment.verdict()
        if verdict is None:
            return
        if verdict.decision is Decision.KEPT:
            self.kept = self._start
        figures = verdict.decision, verdict.reason, verdict.ratio, verdict.interval
        self.verdicts = (confirmed(Proved(self._start, self._kept, *figures)),)


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
        self.verdicts: Sequence[Proved] = ()
        self.is_kept_tried = True
        self.difference: float | None = None
        settled = max(PAIR_LAUNCHES, settle) + PAIR_LAUNCHES
        self._asked = [LaunchRequest(kept, PAIR_LAUNCHES), LaunchRequest(start, settled)]
        self._level = 0.0

    def next(self) -> LaunchRequest | None:
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
