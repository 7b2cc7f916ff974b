"""Values of an experiment, for its callers: the two arms, the settings, the verdict."""

from dataclasses import dataclass
from enum import StrEnum


class Arm(StrEnum):
    """The two configurations that an experiment compares."""

    KEPT = "kept"
    CANDIDATE = "candidate"


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
        candidate_launches: Launches or steps on the candidate, discarded ones included.
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


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of an experiment.

    Attributes:
        minimum_gain: Smallest gain worth keeping: 0.01 is 1 % less time per item.
        maximum_new: Most launches or steps on the candidate, discarded ones included.
        level: Coverage of the interval; holds at every analysis.
        discarded: Launches after a change of configuration that are not compared.
        kept_launches: Launches of the kept configuration in a slot of a block.
        candidate_launches: Launches of the candidate in a slot of a block.
        race_ratio: A candidate whose two last launches both take longer than this times the kept median is dropped,
            if the noise of the kept configuration does not explain it.
        harmful_ratio: A candidate is dropped when the median of at least three blocks is above this, with the same
            condition.
        minimum_blocks: Blocks after which a candidate can be kept.
        maximum_pending: Launches of the candidate without a record, above which the kept configuration runs.
    """

    minimum_gain: float = 0.01
    maximum_new: int = 130
    level: float = 0.95
    discarded: int = 1
    kept_launches: int = 2
    candidate_launches: int = 1
    race_ratio: float = 1.5
    harmful_ratio: float = 1.1
    minimum_blocks: int = 10
    maximum_pending: int = 24

    @property
    def block_launches(self) -> int:
        """Compared launches of a block: two slots of each arm."""
        return 2 * (self.kept_launches + self.candidate_launches)
