"""Order of launches in an experiment: baseline, race, then counterbalanced blocks in random order with random gaps.

`Experiment` takes each launch from a `LaunchSchedule`. Example, with two compared launches in a slot (k, c), one launch
after each change that is not compared (x), and a gap of one idle launch (i)::

    baseline k k … k (16), race c c c, block i kk xcc cc xkk, block xcc xkk kk xcc

Six short blocks come first, then one with long slots (a *look*), then blocks of a few launches to the end. Where the
experiment asks for them, further looks come, and *stays*: many launches of the candidate between few of the kept
configuration, which show its rare long launches at the least cost.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm, Rules

BASELINE_SLOTS: Final = 4
"""Slots of the kept configuration at the start; the race is compared with the times of their launches."""
RACE_LAUNCHES: Final = 3
"""Launches of the candidate before the first block; a much slower candidate is dropped after two of them."""
LONGEST_GAP: Final = 2
"""Idle launches before a block are 0 to 2, at random, so that no period of the load stays in step with the blocks."""
BLOCKS_BEFORE_LOOK: Final = 6
"""Short blocks at the start."""
SHORT_BLOCKS: Final = 14
"""Short blocks with those after the look: a large gain is proved in them."""
STAY_LAUNCHES: Final = 128
"""Launches of the candidate in a stay."""
STAY_KEPT: Final = 8
"""Launches of the kept configuration before and after it."""
SLOTS_OF_SETTLING: Final = 4
"""Compared launches of a slot for each that is not, where a configuration settles late."""
LONGEST_SLOT: Final = 48
"""Compared launches of a slot then, at most."""
RACE_BLOCK: Final = -1
"""Number of the block of launches before the first one."""


class LaunchRole(Enum):
    """Use of a launch."""

    IDLE = "idle"
    """Runs the kept configuration between blocks; its time describes the noise only."""
    RACE = "race"
    COMPARED = "compared"
    """Belongs to a slot of a block. It is compared if the configuration has settled by then."""


class BlockKind(Enum):
    """Kind of a block."""

    COUNTERBALANCED = "counterbalanced"
    """A few launches in each of four slots, or of two; its contrast is evidence about the mean."""
    LOOK = "look"
    """The same with long slots, which show what only a long stay on a configuration shows."""
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch or step of an experiment.

    Attributes:
        number: Its number in this experiment, from 0.
        arm: The configuration that it runs.
        role: Its use.
        block: The block that it belongs to; `RACE_BLOCK` before the first.
        slot: Position of its slot in its block; -1 for other launches.
        position: Launches in a row on this configuration before it.
        kind: Kind of its block.
        block_launches: Launches of all slots of its block.
    """

    number: int
    arm: Arm
    role: LaunchRole
    block: int
    slot: int = -1
    position: int = 0
    kind: BlockKind = BlockKind.COUNTERBALANCED
    block_launches: int = 0


class _Planned(NamedTuple):
    arm: Arm
    role: LaunchRole
    block: int
    slot: int = -1
    kind: BlockKind = BlockKind.COUNTERBALANCED
    block_launches: int = 0


class LaunchSchedule:
    """Plans the launches. The plan depends on the seed, on when the experiment waits, and on `settle`.

    Attributes:
        settle: Launches after a change that are not compared; the experiment raises it as it learns.
        wanted: Kind of the next block that the experiment asks for; stays alternate with counterbalanced blocks.
        new: Launches planned on the candidate so far.
        compared: Those of them that are compared; those of long blocks come on top.
        blocks: Blocks begun so far.
    """

    def __init__(self, seed: int, rules: Rules) -> None:
        self._random = Random(seed)  # noqa: S311  the order must be fair, not secret
        self._rules = rules
        self._number = 0
        self._last, self._position = Arm.KEPT, -1
        self._planned: deque[_Planned] = deque()
        baseline = BASELINE_SLOTS * rules.slot_launches
        self._planned.extend(_Planned(Arm.KEPT, LaunchRole.IDLE, RACE_BLOCK) for _ in range(baseline))
        race = RACE_LAUNCHES + rules.patience + max(0, rules.settle - 1)
        self._planned.extend(_Planned(Arm.CANDIDATE, LaunchRole.RACE, RACE_BLOCK) for _ in range(race))
        self.settle = rules.settle
        self.wanted = BlockKind.COUNTERBALANCED
        self._last_kind = BlockKind.COUNTERBALANCED
        self.new = self.compared = 0
        self.blocks = 0

    @property
    def at_block_boundary(self) -> bool:
        """Whether the next launch would begin a block."""
        return not self._planned

    @property
    def exhausted(self) -> bool:
        """Whether another block could exceed the limit of launches on the candidate."""
        slots = 1 if self._kind() is BlockKind.STAY else self._rules.block_slots // 2
        return not self._planned and self.compared + slots * self._slot_launches() > self._rules.maximum_new

    def end_race(self) -> None:
        """Plan no further launch of the race: the candidate has settled."""
        while self._planned and self._planned[0].role is LaunchRole.RACE:
            self._planned.popleft()

    def idle(self) -> Launch:
        """Plan a launch of the kept configuration outside of any block."""
        return self._launch(_Planned(Arm.KEPT, LaunchRole.IDLE, self.blocks))

    def next(self) -> Launch:
        """Plan the next launch; begins a block where none is open."""
        if not self._planned:
            self._plan_block()
        return self._launch(self._planned.popleft())

    def _kind(self) -> BlockKind:
        """Kind of the next block."""
        first = 0 if self._rules.patience else BLOCKS_BEFORE_LOOK
        if first <= self.blocks < first + self._rules.look_blocks:
            return BlockKind.LOOK
        return BlockKind.COUNTERBALANCED if self._last_kind is self.wanted else self.wanted

    def _slot_launches(self) -> int:
        """Compared launches of each slot of the next block."""
        kind = self._kind()
        if kind is BlockKind.STAY:
            return STAY_LAUNCHES
        if kind is BlockKind.LOOK:
            return self._rules.look_launches * (2 if self._rules.patience else 1)
        is_short = self.blocks < SHORT_BLOCKS and not self._rules.patience
        least = self._rules.short_launches if is_short else self._rules.slot_launches
        # Where a change costs time, long slots have fewer changes.
        return max(least, min(SLOTS_OF_SETTLING * self.settle, LONGEST_SLOT) if self.settle > 1 else 0)

    # A gap, then four slots in the order ABBA or BAAB; ABAB or BABA in a look, whose stays are of one length then; ABA
    # in a stay. After each change of the arm, launches are added that are not compared. Blocks of two slots, AB or BA,
    # differ in length by that, and have no gap.
    def _plan_block(self) -> None:
        kind, launches = self._kind(), self._slot_launches()
        self._last_kind = kind
        block, self.blocks = self.blocks, self.blocks + 1
        last = self._last
        is_pair = self._rules.block_slots == 2
        for _ in range(0 if is_pair else self._random.randrange(LONGEST_GAP + 1)):
            self._planned.append(_Planned(Arm.KEPT, LaunchRole.IDLE, block))
            last = Arm.KEPT
        first, second = (Arm.KEPT, Arm.CANDIDATE) if self._random.random() < 0.5 else (Arm.CANDIDATE, Arm.KEPT)
        order = [(arm, launches) for arm in (first, second, second, first)[: self._rules.block_slots]]
        if kind is BlockKind.LOOK:
            order = [(arm, launches) for arm in (first, second, first, second)]
        elif kind is BlockKind.STAY:
            order = [(Arm.KEPT, STAY_KEPT), (Arm.CANDIDATE, launches), (Arm.KEPT, STAY_KEPT)]
        slots = []
        for arm, number in order:
            slots.append((arm, number + (self.settle if arm is not last and kind is not BlockKind.LOOK else 0)))
            last = arm
        total = sum(number for _, number in slots)
        for slot, (arm, number) in enumerate(slots):
            self._planned.extend(_Planned(arm, LaunchRole.COMPARED, block, slot, kind, total) for _ in range(number))

    def _launch(self, planned: _Planned) -> Launch:
        self._position = self._position + 1 if planned.arm is self._last else 0
        launch = Launch(
            self._number,
            planned.arm,
            planned.role,
            planned.block,
            planned.slot,
            self._position,
            planned.kind,
            planned.block_launches,
        )
        self._number += 1
        self._last = planned.arm
        if planned.arm is Arm.CANDIDATE:
            self.new += 1
            is_counted = planned.role is LaunchRole.COMPARED and planned.kind is not BlockKind.LOOK
            self.compared += is_counted and self._position >= self.settle
        return launch
