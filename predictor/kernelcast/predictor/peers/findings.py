"""Results of the comparison with peers, as values."""

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """The reference that a worker was compared with."""

    PEERS = "peers"
    OWN_PAST = "own_past"


@dataclass(frozen=True, slots=True)
class WorkerFinding:
    """A worker that is persistently slower than its reference.

    Attributes:
        worker: Index of the worker.
        basis: The reference.
        ratio: Own compute time by the reference's, median since `since_step`.
        since_step: The first slow step.
        step: The step at which the evidence sufficed.
        until_step: The step at which the finding ended; None while it lasts.
        slow_steps: Number of slow steps so far.
        own_seconds: Own mean compute time of a unit at the last slow step.
        reference_seconds: The reference's compute time at that step.
        peers: Number of peers that reported at that step.
    """

    worker: int
    basis: Basis
    ratio: float
    since_step: int
    step: int
    until_step: int | None
    slow_steps: int
    own_seconds: float
    reference_seconds: float
    peers: int
