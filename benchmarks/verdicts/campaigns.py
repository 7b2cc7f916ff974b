"""Campaigns: many candidates in a row, none of them faster; how often a program ends up slower.

A candidate that is kept becomes the kept configuration, so errors add up. A kept one is compared with its
predecessor once more, and goes back when it is not proved again.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from benchmarks.verdicts.recordings import Recording
from benchmarks.verdicts.trials import Cell, run_trial

from kernelcast.tuning.experiment import Decision

CANDIDATES: Final = 50
"""Candidates of a campaign, one after the other."""
WORST_GAIN: Final = -0.03
"""True gains of the candidates lie between this and 0: none is faster."""
TOO_SLOW: Final = 1.01
"""Ratio to the first configuration above which a campaign has made the program slower."""


@dataclass(frozen=True, slots=True)
class Campaigns:
    """Result of all campaigns under one disturbance."""

    judge: str
    disturbance: str
    campaigns: int
    slower: int
    kept: int
    worst_ratio: float


def run_campaigns(judge: str, recordings: list[Recording], disturbance: str, campaigns: int, seed: int) -> Campaigns:
    """Run campaigns, recordings in turn."""
    slower = kept = 0
    worst = 0.0
    for number in range(campaigns):
        random = Random(f"{seed} {disturbance} {number}")
        recording = recordings[number % len(recordings)]
        ratio = 1.0
        for _ in range(CANDIDATES):
            gain = random.uniform(WORST_GAIN, 0.0)
            if _kept(judge, recording, disturbance, gain, random) and _kept(
                judge, recording, disturbance, gain, random
            ):
                ratio *= 1 - gain
                kept += 1
        slower += ratio > TOO_SLOW
        worst = max(worst, ratio)
    return Campaigns(judge, disturbance, campaigns, slower, kept, worst)


def _kept(judge: str, recording: Recording, disturbance: str, gain: float, random: Random) -> bool:
    decided, _ = run_trial(judge, recording, Cell(recording.name, disturbance, gain), random)
    return decided.decision is Decision.KEPT
