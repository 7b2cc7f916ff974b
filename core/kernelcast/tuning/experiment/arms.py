"""Values of an experiment, for its callers: the two arms, the settings, the verdict."""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Final

from kernelcast.tuning.experiment.evidence import MIXTURE
from kernelcast.wire.errors import TunableError

LEAST_OF_P99: Final = 1000
"""Launches of each arm from which on a 99th percentile is reported and judged: ten of them are above it."""
MOST_OF_P99: Final = 5000
"""Launches of the candidate by which its 99th percentile must be proved lower."""
LONGEST_DECLARED: Final = 200
"""Launches after a change that a program may declare as not settled."""


class Arm(StrEnum):
    """The two configurations that an experiment compares."""

    KEPT = "kept"
    CANDIDATE = "candidate"


class Objective(StrEnum):
    """What a candidate must lower to be kept, in seconds an item: the mean time, or the 99th percentile of launches."""

    MEAN = "mean"
    P99 = "p99"


class Decision(StrEnum):
    """Result of an experiment.

    `inconclusive`: neither a gain worth keeping nor its absence was proved within the limit of launches. The kept
    configuration stays in force after every result but `kept`.
    """

    KEPT = "kept"
    ROLLED_BACK = "rolled_back"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExperimentVerdict:
    """Result of an experiment with its figures.

    Attributes:
        decision: The result.
        reason: The reason, for people.
        ratio: Seconds per item of the candidate over those of the kept configuration; None if nothing was compared.
        interval: Confidence interval of the ratio; None where the data give none.
        second_ratio: The same by the second measure; None where it has none.
        second_interval: Confidence interval of the second ratio.
        blocks: Counterbalanced blocks that were compared.
        kept_launches: Launches or steps on the kept configuration.
        candidate_launches: Launches or steps on the candidate, those that are not compared included.
        settle: Launches after a change of configuration that were not compared.
        is_early: Whether a slow candidate was dropped before it had time to settle.
        first_launches: Times of the candidate's first launches, in usual ones of the kept configuration.
    """

    decision: Decision
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    second_ratio: float | None = None
    second_interval: tuple[float, float] | None = None
    blocks: int = 0
    kept_launches: int = 0
    candidate_launches: int = 0
    settle: int = 0
    is_early: bool = False
    first_launches: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of an experiment.

    Attributes:
        objective: What the candidate must lower.
        minimum_gain: Smallest gain worth keeping: 0.01 is 1 % less time per item.
        maximum_new: Most compared launches or steps on the candidate; those before it has settled come on top.
        level: Coverage of the interval; holds at every analysis.
        worst: Longest launch that is reckoned with, in typical launches of the kept configuration. As long as few long
            launches were seen, the candidate is charged for this one at the highest rate that their number allows.
        settle: Launches after a change of configuration that are not compared; more where the times show it.
        short_launches: Compared launches of a slot in the first blocks, in which a slow candidate is noticed.
        slot_launches: Compared launches of a slot in later blocks.
        block_slots: Slots of a block: four, in which a steady drift cancels out, or two.
        look_launches: Launches of each slot of a look, which shows what only a long stay on a configuration shows;
            0 for none. With patience, twice as many.
        race_ratio: A candidate whose two last launches both take longer than this times the kept median is dropped,
            if the noise of the kept configuration does not explain it.
        patience: Further launches of the race in which such a candidate may settle. Two looks come first then.
        harmful_ratio: A candidate is dropped when the median of at least three blocks is above this, with the same
            condition.
        minimum_blocks: Blocks after which a candidate can be kept.
        mixture: Weight of small effects in the evidence; a lower one proves a large gain in fewer blocks.
        maximum_pending: Launches of the candidate without a record, above which the kept configuration runs.
        run_seconds: Time in which a candidate must pay back what its first launches took beyond later ones.
    """

    objective: Objective = Objective.MEAN
    minimum_gain: float = 0.01
    maximum_new: int = 1200
    level: float = 0.95
    worst: float = 6.0
    settle: int = 1
    short_launches: int = 2
    slot_launches: int = 4
    block_slots: int = 4
    look_launches: int = 34
    race_ratio: float = 1.5
    patience: int = 0
    harmful_ratio: float = 1.1
    minimum_blocks: int = 10
    mixture: float = MIXTURE
    maximum_pending: int = 24
    run_seconds: float = 3600.0

    @property
    def most_launches(self) -> int:
        """Launches of both arms by which an experiment has ended, those that are not compared included."""
        return 3 * self.maximum_new

    @property
    def look_blocks(self) -> int:
        """Number of looks without further ones that the times ask for."""
        return (2 if self.patience else 1) if self.look_launches else 0

    def declared(
        self, worst: float | None, settle: int | None, run_seconds: float | None, objective: str = Objective.MEAN
    ) -> "Rules":
        """Return the rules with what a program declares; None leaves a limit as it is.

        Raises:
            TunableError: A value cannot be used.
        """
        if worst is not None and not 1 < worst < inf:
            raise TunableError(
                f"worst is {worst!r}; it must be a number above 1: the longest launch over a typical one"
            )
        if settle is not None and not 1 <= settle <= LONGEST_DECLARED:
            raise TunableError(f"settle is {settle!r}; it must be a number of launches from 1 to {LONGEST_DECLARED}")
        if run_seconds is not None and not run_seconds > 0:
            raise TunableError(f"run_seconds is {run_seconds!r}; it must be above 0")
        if objective not in list(Objective):
            raise TunableError(f"objective is {objective!r}; it must be one of {', '.join(Objective)}")
        is_mean = objective == Objective.MEAN
        if not is_mean and self.maximum_new < LEAST_OF_P99:
            raise TunableError(f"objective is {objective!r}; it needs {LEAST_OF_P99} launches, so declare no epochs")
        return replace(
            self,
            objective=Objective(objective),
            maximum_new=self.maximum_new if is_mean else MOST_OF_P99,
            worst=self.worst if worst is None else worst,
            settle=self.settle if settle is None else settle,
            run_seconds=self.run_seconds if run_seconds is None else run_seconds,
        )

    def by_epoch(self) -> "Rules":
        """Return the rules for launches that are sums of many steps, as epochs and whole runs are.

        A program has few of them, so that a large gain is to be proved in few.
        """
        return replace(
            self,
            maximum_new=min(self.maximum_new, 130),
            worst=1.5,
            short_launches=1,
            slot_launches=1,
            block_slots=2,
            look_launches=0,
            mixture=1.0,
        )
