"""Simulated training jobs with slow workers, slow links or unevenly divided work; the truth is known."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from benchmarks.predictor.traces.reading import Trace
from numpy.typing import NDArray

from kernelcast.predictor.peers import Links, PeerStep

STEPS: Final = 40
KINDS: Final = (
    "healthy",
    "one slow",
    "two slow",
    "slow from step k",
    "stage",
    "sequence in turn",
    "sequence, random replica",
    "sequence at random",
    "link",
    "few peers, healthy",
    "few peers, slow from step k",
    "sequence, four replicas alone",
    "hidden stage",
    "hidden stage, slow from step k",
)
DIVISIONS: Final = {
    "stage": "stage",
    "sequence in turn": "sequence",
    "sequence, random replica": "sequence",
    "sequence, four replicas alone": "sequence",
    "sequence at random": "sequence",
    "link": "link",
}


@dataclass(frozen=True)
class Job:
    """A simulated job.

    Attributes:
        kind: One of `KINDS`.
        trace: The recording.
        slow: Index of each slow worker, with the index of its first slow step.
        division: The division that is to be named.
    """

    kind: str
    trace: Trace
    slow: dict[int, int]
    division: str


@dataclass
class _Draft:
    """Times of shape (steps, stages, replicas, units), and of transfers of shape (steps, stages - 1, replicas)."""

    times: NDArray[np.float64]
    transfers: NDArray[np.float64]


def simulate(kind: str, rng: np.random.Generator) -> Job:
    """Draw a job: 1 to 6 stages, 4 to 12 replicas (1 or 2 for few peers), 4 to 24 microbatches.

    "sequence, four replicas alone" has one stage and four replicas: no other stage shows that the data were long.
    With "hidden" the detector does not know the stages.
    """
    few = kind.startswith("few")
    stages = int(rng.integers(2, 7) if few or kind == "link" or "stage" in kind else rng.integers(1, 7))
    replicas = int(rng.integers(1, 3) if few else rng.integers(4, 13))
    if kind.endswith("alone"):
        stages, replicas = 1, 4
    draft = _healthy(rng, stages, replicas, int(rng.integers(4, 25)))
    slow = _slow_workers(kind, rng, draft)
    _uneven(kind, rng, draft)
    trace = replace(_trace(draft), stages_known="hidden" not in kind)
    return Job(kind, trace, slow, DIVISIONS.get(kind, "none"))


def _healthy(rng: np.random.Generator, stages: int, replicas: int, units: int) -> _Draft:
    """Workers differ by about 0.5 to 1 %; one worker-step in 200 has a hiccup of 20 to 100 %."""
    shape = (STEPS, stages, replicas, units)
    log = np.log(rng.uniform(0.1, 1.0)) + rng.normal(0, rng.uniform(0.004, 0.01), (1, stages, replicas, 1))
    log = log + rng.normal(0, rng.uniform(0.003, 0.01), (STEPS, stages, replicas, 1))
    log = log + rng.normal(0, rng.uniform(0.005, 0.03), (STEPS, 1, replicas, units))
    times = np.exp(log + rng.normal(0, 0.01, shape))
    hiccup = rng.random((STEPS, stages, replicas, 1)) < 1 / 200
    times *= np.where(hiccup, rng.uniform(1.2, 2.0, hiccup.shape), 1.0)
    times[:, -1] *= rng.uniform(1.0, 1.03)
    path = rng.uniform(0.8, 1.25, (1, max(stages - 1, 0), 1)) * 0.002
    transfers = path * np.exp(rng.normal(0, 0.05, (1, max(stages - 1, 0), replicas)))
    return _Draft(times, transfers * np.exp(rng.normal(0, 0.03, (STEPS, max(stages - 1, 0), replicas))))


def _slow_workers(kind: str, rng: np.random.Generator, draft: _Draft) -> dict[int, int]:
    count = {"one slow": 1, "two slow": 2}.get(kind, int(kind.endswith("slow from step k")))
    stages, replicas = draft.times.shape[1:3]
    slow: dict[int, int] = {}
    for worker in rng.choice(stages * replicas, size=count, replace=False):
        start = int(rng.integers(8, STEPS - 10)) if kind.endswith("step k") else 0
        draft.times[start:, worker // replicas, worker % replicas] *= rng.uniform(1.2, 2.5)
        slow[int(worker)] = start
    return slow


def _uneven(kind: str, rng: np.random.Generator, draft: _Draft) -> None:
    steps, _, replicas, units = draft.times.shape
    if "stage" in kind:
        draft.times[:, -1] *= rng.uniform(1.25, 1.8)
    elif kind == "sequence in turn":
        turn = np.arange(steps) % replicas
        draft.times[np.arange(steps), :, turn] *= rng.uniform(1.3, 2.0)
    elif kind in {"sequence, random replica", "sequence, four replicas alone"}:
        draft.times[np.arange(steps), :, rng.integers(0, replicas, steps)] *= rng.uniform(1.3, 2.0)
    elif kind == "sequence at random":
        lengths = rng.normal(0, rng.uniform(0.25, 0.5), (steps, 1, replicas, units))
        draft.times *= np.exp(lengths)
    elif kind == "link":
        link, replica = rng.integers(draft.transfers.shape[1]), rng.integers(replicas)
        draft.transfers[int(rng.integers(0, steps - 10)) :, link, replica] *= rng.uniform(3.0, 10.0)


def _trace(draft: _Draft) -> Trace:
    steps, stages, replicas, units = draft.times.shape
    stage, dp_rank = np.divmod(np.arange(stages * replicas), replicas)
    group, replica = np.divmod(np.arange((stages - 1) * replicas), replicas)
    links = Links(group * replicas + replica, (group + 1) * replicas + replica, group, np.zeros_like(group))
    compute = draft.times.reshape(steps, stages * replicas, units)
    transfer = draft.transfers.reshape(steps, (stages - 1) * replicas)
    count = np.full(transfer.shape[1], units)
    return Trace(stage, dp_rank, links, [PeerStep(at, compute[at], transfer[at], count) for at in range(steps)])
