"""Kafka, the predictor and two exporters as the ranks of a job see them, while each of them is killed and comes back.

The ranks see hints that come late, twice, under a new id or on one node only, withdrawals, and outcomes that nothing
takes. Ranks 0 and 1 are on node `a`, 2 and 3 on node `b`. A step is the unit of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

NODES: Final = {"a": (0, 1), "b": (2, 3)}
SERVICES: Final = ("kafka", "predictor", "exporter a", "exporter b")
NEVER: Final = 10**6
MAX_LAG: Final = 4
"""Steps after which a hint that an exporter has read is with a rank."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The SIGKILL of a service.

    Attributes:
        service: One of `SERVICES`.
        at: Step of the kill.
        back: Step at which it runs again; `NEVER` if it does not.
    """

    service: str
    at: int
    back: int = NEVER


@dataclass(frozen=True, slots=True)
class Issue:
    """A hint that the predictor wants to issue, or to withdraw where it has no value."""

    hint_id: str
    value: str
    at: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A hint, or a withdrawal where it has no value, as a rank receives it."""

    hint_id: str
    value: str


@dataclass
class Exporter:
    """One node's exporter: reads the topic from its beginning whenever it connects to Kafka."""

    ranks: tuple[int, ...]
    position: int | None = None


@dataclass
class Services:
    """Runs the services for all steps of a job.

    Args:
        issues: The hints.
        kills: The kills.
        steps: Steps of the job.
        seed: Of the lags.

    Attributes:
        deliveries: Deliveries by rank and step.
        away: Steps by rank in which no exporter takes its outcomes.
    """

    issues: Sequence[Issue]
    kills: Sequence[Kill]
    steps: int
    seed: str
    deliveries: dict[tuple[int, int], list[Delivery]] = field(default_factory=dict)
    away: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = Random(f"services {self.seed}")
        self._topic: list[Delivery] = []
        self._outbox: list[Delivery] = []
        self._missed: list[Issue] = []
        self._exporters = {node: Exporter(ranks) for node, ranks in NODES.items()}
        for step in range(self.steps):
            self._predict(step)
            for node, exporter in self._exporters.items():
                self._export(step, exporter, alive=self._runs(f"exporter {node}", step))

    @classmethod
    def drawn(cls, seed: str, steps: int) -> "Services":
        """Draw hints and up to three kills; a fifth of the services does not come back."""
        random = Random(f"kills {seed}")
        first, second = random.randrange(60), random.randrange(140, 240)
        issues = [Issue("p1", "128", first), Issue("p2", random.choice(("64", "48", "128")), second)]
        if random.random() < 0.3:
            issues.append(Issue("", "", random.randrange(first, steps)))
        kills = []
        for _ in range(random.randrange(4)):
            at = random.randrange(steps)
            back = NEVER if random.random() < 0.2 else at + random.randrange(1, 150)
            kills.append(Kill(random.choice(SERVICES), at, back))
        return cls(issues, kills, steps, seed)

    def _runs(self, service: str, step: int) -> bool:
        return not any(kill.service == service and kill.at <= step < kill.back for kill in self.kills)

    def _predict(self, step: int) -> None:
        """Issue hints. One that a kill has kept from Kafka is issued again under a new id."""
        wanted = [issue for issue in self.issues if issue.at == step]
        if not self._runs("predictor", step):
            self._missed += [*wanted, *(Issue(one.hint_id, one.value, step) for one in self._outbox)]
            self._outbox.clear()
            return
        again = [Delivery(f"{one.hint_id}'" if one.value else "", one.value) for one in self._missed]
        self._missed.clear()
        self._outbox += [*again, *(Delivery(one.hint_id, one.value) for one in wanted)]
        if self._runs("kafka", step):
            self._topic += self._outbox
            self._outbox.clear()

    def _export(self, step: int, exporter: Exporter, *, alive: bool) -> None:
        if not alive:
            for rank in exporter.ranks:
                self.away.setdefault(rank, set()).add(step)
        if not alive or not self._runs("kafka", step):
            exporter.position = None
            return
        # A reader that begins gets a compacted topic, in which all have one key.
        found = self._topic[-1:] if exporter.position is None else self._topic[exporter.position :]
        exporter.position = len(self._topic)
        for rank in exporter.ranks if found else ():
            at = step + self._random.randrange(MAX_LAG)
            self.deliveries.setdefault((rank, at), []).extend(found)
