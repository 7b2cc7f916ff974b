"""Random schedules: the job, its hints and its faults."""

from dataclasses import dataclass
from random import Random
from typing import Final

from tests.faults.ranks.services import Services

RANKS: Final = 4
STEPS: Final = 360


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: `before`, `after`: an error of the group; `own`: an error of ours while a message is made; `learn`: a
            configuration has failed on another node; `search`: an error of the search; `stop`, `resume`, `withdraw`,
            `kill`.
        rank: The rank.
        at: Number of the exchange for errors of the group, else of the step.
    """

    kind: str
    rank: int
    at: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job with its faults.

    Attributes:
        group: `all_gather` or `broadcast`.
        coupled: Whether every step communicates, as distributed training does: a rank that meets at another step
            than the others then hangs the job.
        gain: Of the hinted value.
        hints: Step at which each rank gets the hint for all; -1 for never.
        some: Ranks that get the other hint.
        faults: The faults.
        searches: Whether the ranks search a space, too.
        services: Bring hints, and are killed; None hands the hints over directly.
    """

    group: str
    coupled: bool
    step_seconds: float
    gain: float
    hints: tuple[int, ...]
    some: tuple[int, ...]
    faults: tuple[Fault, ...]
    searches: bool = False
    services: Services | None = None

    @classmethod
    def drawn(cls, seed: str) -> "Schedule":
        """Draw a schedule."""
        random = Random(seed)
        faults: list[Fault] = []
        kinds = ("before", "before", "after", "own", "stop", "withdraw", "kill", "learn", "search")
        for _ in range(random.randrange(5)):
            rank, step = random.randrange(RANKS), random.randrange(STEPS)
            kind = random.choice(kinds)
            at = random.randrange(24) if kind in ("before", "after") else step
            faults.append(Fault(kind, rank, at))
            if kind == "stop" and random.random() < 0.5:
                faults.append(Fault("resume", rank, step + random.randrange(1, 60)))
        late = random.random() < 0.8
        group = random.choice(("all_gather", "broadcast"))
        return cls(
            group,
            random.random() < 0.6,
            random.choice((0.002, 0.05, 0.4)),
            random.choice((-40.0, -0.03, 0.0, 0.05, 0.3)),
            tuple(random.randrange(60) if late or rank else -1 for rank in range(RANKS)),
            tuple(sorted(random.sample(range(RANKS), random.randrange(RANKS)))),
            tuple(faults),
            random.random() < 0.5,
            Services.drawn(seed, STEPS) if random.random() < 0.5 else None,
        )

    def has(self, *kinds: str) -> bool:
        """Whether there is a fault of one of these kinds."""
        return any(fault.kind in kinds for fault in self.faults)
