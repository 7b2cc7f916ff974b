"""Trials of one judge under one noise, and their summary."""

from collections import Counter, deque
from dataclasses import dataclass
from random import Random
from typing import Final

from benchmarks.verdicts.disturbances import DISTURBANCES
from benchmarks.verdicts.judges import JUDGES, Decided
from benchmarks.verdicts.recordings import Recording

from kernelcast.tuning.experiment import Arm, Decision

LONGEST: Final = 5000
"""Launches after which a judge must have decided."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the matrix: a recording's noise under a disturbance, with a true gain."""

    recording: str
    disturbance: str
    gain: float


@dataclass(frozen=True, slots=True)
class Result:
    """Shares of the decisions of a judge in a cell, and its launches."""

    judge: str
    cell: Cell
    trials: int
    kept: int
    rolled_back: int
    inconclusive: int
    mean_launches: float
    most_new: int


def run_cell(judge: str, recording: Recording, cell: Cell, trials: int, *, seed: int, delay: int = 0) -> Result:
    """Run the trials of a cell.

    Args:
        judge: Name of the judge.
        recording: The recording of the cell.
        cell: The cell.
        trials: Number of trials.
        seed: Of everything random.
        delay: Launches by which records are late.
    """
    decisions: Counter[Decision] = Counter()
    launches = most_new = 0
    for trial in range(trials):
        random = Random(f"{seed} {cell} {trial}")
        decided, number = run_trial(judge, recording, cell, random, delay=delay)
        decisions[decided.decision] += 1
        launches += number
        most_new = max(most_new, decided.candidate_launches)
    return Result(
        judge,
        cell,
        trials,
        decisions[Decision.KEPT],
        decisions[Decision.ROLLED_BACK],
        decisions[Decision.INCONCLUSIVE],
        launches / trials,
        most_new,
    )


def run_trial(name: str, recording: Recording, cell: Cell, random: Random, *, delay: int = 0) -> tuple[Decided, int]:
    """Run one trial; returns its result and the number of launches."""
    judge = JUDGES[name](random.randrange(2**32))
    noise = recording.draw(random)
    disturbance = DISTURBANCES[cell.disturbance](random)
    factor = {Arm.KEPT: 1.0, Arm.CANDIDATE: 1 - cell.gain}
    late: deque[tuple[Arm, float, float]] = deque()
    last = None
    for launch in range(1, LONGEST):
        arm = judge.next_arm()
        disturbed, items = next(disturbance)
        recorded = noise[0] if arm is not last else noise[random.randrange(1, len(noise))]
        late.append((arm, recorded * disturbed * factor[arm], items))
        last = arm
        if len(late) > delay:
            judge.record(*late.popleft())
        if decided := judge.decided():
            return decided, launch
    raise AssertionError(f"{name} has not decided after {LONGEST} launches in {cell}")
