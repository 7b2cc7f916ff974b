"""Results of the comparison with peers, as values: slow workers, slow links and shares of uneven work."""

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """The reference that a worker was compared with."""

    PEERS = "peers"
    OWN_PAST = "own_past"


class Division(StrEnum):
    """The main reason, other than slow workers, why steps take longer than an even division of work would."""

    NONE = "none"
    STAGE = "stage"
    SEQUENCE = "sequence"
    LINK = "link"


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


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """A link that is persistently slower than its peers while neither end computes slowly.

    Attributes:
        link: Index of the link.
        ratio: Own transfer time by the peers' median, at the step of the finding.
        step: The step at which the evidence sufficed.
        own_seconds: Own transfer time.
        peers_seconds: The peers' median transfer time.
        cost_ratio: Excess of all transfers of the step by the step's compute time.
    """

    link: int
    ratio: float
    step: int
    own_seconds: float
    peers_seconds: float
    cost_ratio: float


@dataclass(frozen=True, slots=True)
class Shares:
    """Estimated prolongation of a step, as a ratio of the step with evenly divided work (0.1 = 10 % longer).

    Attributes:
        stage: By the groups' different work.
        sequence: By work that changes between replicas from step to step.
        link: By slow links.
    """

    stage: float
    sequence: float
    link: float
