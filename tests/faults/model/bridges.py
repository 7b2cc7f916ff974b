"""Bridges of the model: intake and store of the product, around a client of the cluster in memory."""

from dataclasses import dataclass, field
from typing import Literal

from tests.faults.model.cluster import Client, Cluster, Group
from tests.faults.model.producers import TOPICS, Named, samples
from tests.support.bridge.fleet import Site, page
from tests.support.bridge.list_kafka import SkewedClock

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.intake.discovery import Discovery
from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.bridge.tables.columns import PointRules
from kernelcast.runtime.kafka.topic_names import TopicNames

Mode = Literal["group", "replica"]
TTL_SECONDS = 60.0
MISSED_INTERVALS = 12
FLOOR_SECONDS = 15.0
RULES = PointRules(
    takeover_ms=15_000,
    unlearned_ms=round(TTL_SECONDS * 1e3 / MISSED_INTERVALS),
    missed_intervals=MISSED_INTERVALS,
    floor_ms=round(FLOOR_SECONDS * 1e3),
)
"""Scaled down, and such that a series' interval is known after half a minute."""
MAX_STEPS = 40
"""Polls of one turn: a bridge that reads faster than this is at its end."""


@dataclass
class Replica:
    """A place where a bridge runs, or does not.

    Attributes:
        polls: How often it reads in a turn; few make it lag.
        site: The bridge; None while none runs.
    """

    cluster: Cluster
    number: int
    count: int
    mode: Mode
    group: Group | None
    at_once: int
    polls: int = MAX_STEPS
    suspended: bool = False
    site: Site | None = None
    client: Client | None = None
    clock: SkewedClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = SkewedClock(self.cluster.clock)

    @property
    def running(self) -> bool:
        """Whether it can be scraped."""
        return self.site is not None and not self.suspended

    def start(self) -> None:
        """Start a bridge."""
        if self.site is not None:
            return
        self.cluster.joined_seconds = self.cluster.clock.seconds
        grouped = self.mode == "group"
        self.client = Client(self.cluster, self.number, at_once=self.at_once, group=self.group, owner=self.mode)
        self.site = Site(
            kafka=self.client,
            clock=self.clock,
            formats={topic: TopicFormat(format="otlp_proto") for topic in TOPICS},
            policy=IntakePolicy(TTL_SECONDS, 2 * TTL_SECONDS, grouped=grouped),
            rules=RULES,
        )
        self.client.intake = self.site.intake
        self._discovery = Discovery(self.client, self.site.intake, TopicNames(TOPICS), clock=self.clock)

    def kill(self) -> None:
        """`kill -9`."""
        self.site = self.client = None
        self.suspended = False

    def leave(self) -> None:
        """SIGTERM: the bridge leaves the group."""
        if self.site is None or self.client is None or self.suspended:
            return
        if self.group is not None and self.cluster.answers:
            self.group.leave(self.client)
        self.kill()

    def suspend(self) -> None:
        """SIGSTOP."""
        self.suspended = self.site is not None

    def resume(self) -> None:
        """SIGCONT; librdkafka's queue still has the messages fetched before the suspension."""
        if self.suspended and self.client is not None:
            self.suspended, self.client.late = False, True

    def step(self) -> bool:
        """Poll once; whether there was anything."""
        assert self.site is not None
        if self.group is None:
            self._discovery.look()
        return self.site.intake.step() > 0

    def scrape(self) -> dict[Named, float]:
        """The samples that it exposes."""
        assert self.site is not None
        return {} if self.site.intake.membership.doubtful else dict(samples(page(self.site.store)))

    def ready(self) -> bool:
        """Whether `/-/ready` reports the bridge as ready."""
        return self.site is not None and self.site.intake.readiness()[0]

    def behind(self) -> list[tuple[str, int]]:
        """Partitions that have not been read to where they ended when they were assigned."""
        assert self.client is not None
        return [
            key
            for key, (made, end) in self.client.gates.items()
            if key in self.client.reading and self.cluster.ids.get(key[0]) == made and self.client.reading[key] < end
        ]
