"""Order of launches in an experiment: baseline, race, then counterbalanced blocks in random order with random gaps.

`Experiment` takes each launch from a `LaunchSchedule`. Example, with two kept and one candidate launch in a slot (k,
c), a discarded launch after each change (x), and a gap of one idle launch (i)::

    baseline k k k k, race c c c, block i kk xc c xkk, block xc xkk kk xc
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from kernelcast.tuning.experiment.arms import Arm, Rules

BASELINE_LAUNCHES: Final = 4
"""Launches of the kept configuration at the start; the race is compared with their times."""
RACE_LAUNCHES: Final = 3
"""Launches of the candidate before the first block; a much slower candidate is dropped after two of them."""
LONGEST_GAP: Final = 2
"""Idle launches before a block are 0 to 2, at random, so that no period of the load stays in step with the blocks."""
RACE_BLOCK: Final = -1
"""Number of the block of launches before the first one."""


class LaunchRole(Enum):
    """Use of a launch."""

    IDLE = "idle"
    """Runs the kept configuration between blocks; its time describes the noise only."""
    DISCARDED = "discarded"
    """The first after a change of configuration; its time is not used."""
    RACE = "race"
    COMPARED = "compared"


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch or step of an experiment.

    Attributes:
        number: Its number in this experiment, from 0.
        arm: The configuration that it runs.
        role: Its use.
        block: The block that it belongs to; `RACE_BLOCK` before the first.
        slot: Position among the four compared launches of its block; -1 for other launches.
    """

    number: int
    arm: Arm
    role: LaunchRole
    block: int
    slot: int = -1


class LaunchSchedule:
    """Plans the launches. The plan depends on the seed and on when the experiment waits, never on a measured time.

    Attributes:
        new: Launches planned on the candidate so far.
        blocks: Blocks begun so far.
    """

    def __init__(self, seed: int, rules: Rules) -> None:
        self._random = Random(seed)  # noqa: S311  the order must be fair, not secret
        self._rules = rules
        self._number = 0
        self._last = Arm.KEPT
        self._planned: deque[tuple[Arm, LaunchRole, int, int]] = deque()
        self._planned.extend((Arm.KEPT, LaunchRole.IDLE, RACE_BLOCK, -1) for _ in range(BASELINE_LAUNCHES))
        self._planned.extend((Arm.CANDIDATE, LaunchRole.RACE, RACE_BLOCK, -1) for _ in range(RACE_LAUNCHES))
        self.new = 0
        self.blocks = 0

    @property
    def at_block_boundary(self) -> bool:
        """Whether the next launch would begin a block."""
        return not self._planned

    @property
    def exhausted(self) -> bool:
        """Whether another block could exceed the limit of launches on the candidate."""
        longest = 2 * (self._rules.candidate_launches + self._rules.discarded)
        return not self._planned and self.new + longest > self._rules.maximum_new

    def idle(self) -> Launch:
        """Plan a launch of the kept configuration outside of any block."""
        return self._launch(Arm.KEPT, LaunchRole.IDLE, self.blocks)

    def next(self) -> Launch:
        """Plan the next launch; begins a block where none is open."""
        if not self._planned:
            self._plan_block()
        return self._launch(*self._planned.popleft())

    # A gap, then four slots in the order ABBA or BAAB. After each change of the arm, launches are discarded.
    def _plan_block(self) -> None:
        block, self.blocks = self.blocks, self.blocks + 1
        last = self._last
        for _ in range(self._random.randrange(LONGEST_GAP + 1)):
            self._planned.append((Arm.KEPT, LaunchRole.IDLE, block, -1))
            last = Arm.KEPT
        outer, inner = (Arm.KEPT, Arm.CANDIDATE) if self._random.random() < 0.5 else (Arm.CANDIDATE, Arm.KEPT)
        for slot, arm in enumerate((outer, inner, inner, outer)):
            if arm is not last:
                self._planned.extend((arm, LaunchRole.DISCARDED, block, -1) for _ in range(self._rules.discarded))
            launches = self._rules.kept_launches if arm is Arm.KEPT else self._rules.candidate_launches
            self._planned.extend((arm, LaunchRole.COMPARED, block, slot) for _ in range(launches))
            last = arm

    def _launch(self, arm: Arm, role: LaunchRole, block: int, slot: int = -1) -> Launch:
        launch = Launch(self._number, arm, role, block, slot)
        self._number += 1
        self._last = arm
        self.new += arm is Arm.CANDIDATE
        return launch
