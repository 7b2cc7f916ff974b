"""The judges that are compared: the experiment, and the rule of revision f236111 (alternating blocks).

A judge decides whether a candidate configuration is faster than the kept one. `trials` asks it for the arm of each
launch, the kept or the candidate one, and records the launch's time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import comb, log
from statistics import median
from typing import Final, Protocol

from kernelcast.tuning.experiment import Arm, Decision, Experiment


@dataclass(frozen=True, slots=True)
class Decided:
    """A judge's result: its decision and the launches on the candidate."""

    decision: Decision
    candidate_launches: int


class Judge(Protocol):
    """Decides whether the candidate is kept; see the module."""

    def next_arm(self) -> Arm:
        """Return the arm of the next launch."""
        ...

    def record(self, arm: Arm, seconds: float, items: float) -> None:
        """Add the time of the launch."""
        ...

    def decided(self) -> Decided | None:
        """Return the result; None before it."""
        ...


class ExperimentJudge:
    """The experiment of `kernelcast.tuning`.

    Args:
        seed: Of the order of the arms.
        attributed: Each time is known to be that of its launch, as with CUDA events.
    """

    def __init__(self, seed: int, *, attributed: bool = False) -> None:
        self._experiment = Experiment(seed=seed, attributed=attributed)
        self.next_arm = self._experiment.next_arm
        self.record = self._experiment.record

    def decided(self) -> Decided | None:
        """Return the result; None before it."""
        verdict = self._experiment.verdict()
        return Decided(verdict.decision, verdict.candidate_launches) if verdict else None


class AlternatingJudge:
    """Blocks of three steps, old and new in turn, the first step of each not measured; evaluated at 15 and 30 pairs.

    The time of a block is the sum over its launches, whatever work they did.
    """

    WARM_UP: Final = 1
    MEASURED: Final = 2
    EVALUATED_PAIRS: Final = (15, 30)
    KEEP_BELOW: Final = 0.99
    ABORT_ABOVE: Final = 1.2
    ABORT_PAIRS: Final = 3

    def __init__(self, _seed: int) -> None:
        self._step = 0
        self._new = 0
        self._seconds = self._old_seconds = 0.0
        self._trying = False
        self._ratios: list[float] = []
        self._decision: Decision | None = None

    def next_arm(self) -> Arm:
        """Return the arm of the next launch."""
        return Arm.CANDIDATE if self._trying else Arm.KEPT

    def record(self, arm: Arm, seconds: float, items: float) -> None:
        """Add the time of the launch."""
        del items
        self._step += 1
        self._new += arm is Arm.CANDIDATE
        if self._step > self.WARM_UP:
            self._seconds += seconds
        if self._step < self.WARM_UP + self.MEASURED:
            return
        if self._trying:
            self._ratios.append(log(self._seconds / self._old_seconds))
            self._judge()
        self._old_seconds, self._seconds, self._step = self._seconds, 0.0, 0
        self._trying = not self._trying

    def decided(self) -> Decided | None:
        """Return the result; None before it."""
        return Decided(self._decision, self._new) if self._decision else None

    def _judge(self) -> None:
        pairs, middle = len(self._ratios), median(self._ratios)
        if pairs >= self.ABORT_PAIRS and middle > log(self.ABORT_ABOVE):
            self._decision = Decision.ROLLED_BACK
        elif pairs in self.EVALUATED_PAIRS:
            ordered = sorted(self._ratios)
            if ordered[pairs - _rank(pairs)] < log(self.KEEP_BELOW):
                self._decision = Decision.KEPT
            elif middle >= log(self.KEEP_BELOW) or pairs == self.EVALUATED_PAIRS[-1]:
                self._decision = Decision.ROLLED_BACK


def _rank(pairs: int) -> int:
    """Return the rank of the order statistic that bounds the median with 97.5 %."""
    rank, tail = 0, 0.0
    while (tail := tail + comb(pairs, rank) / 2.0**pairs) <= 0.025:
        rank += 1
    return rank


JUDGES: Final[dict[str, Callable[[int], Judge]]] = {
    "experiment": ExperimentJudge,
    "attributed": partial(ExperimentJudge, attributed=True),
    "alternating": AlternatingJudge,
}
