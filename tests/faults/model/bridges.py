"""Bridges of the model: intake, deltas and store of the product, around a client of the cluster in memory."""

from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import Counter
from tests.faults.model.cluster import Client, Cluster, Group, Key
from tests.faults.model.overtaken import overtaken
from tests.faults.model.producers import DELTAS, TOPICS, Named, Producer, samples
from tests.faults.model.unsaved import points, unsaved
from tests.support.bridge.fleet import Site, page
from tests.support.bridge.list_kafka import SkewedClock

from kernelcast.bridge.delta.settings import DeltaSettings
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
    tolerance_ns=10_000_000_000,
    takeover_ms=15_000,
    unlearned_ms=round(TTL_SECONDS * 1e3 / MISSED_INTERVALS),
    missed_intervals=MISSED_INTERVALS,
    floor_ms=round(FLOOR_SECONDS * 1e3),
)
"""Scaled down, and such that a series' interval is known after half a minute."""
DROPPED = ("older", "malformed", "spread", "limit")
"""Outcomes of delta points that are not in any total, and are counted as such."""
MAX_STEPS = 40
"""Polls of one turn: a bridge that reads faster than this is at its end."""


@dataclass
class Replica:
    """A place where a bridge runs, or does not.

    Attributes:
        polls: How often it reads in a turn; few make it lag.
        dropped: Delta points that bridges here have counted as not added; those of dead ones, too.
        reached: Offsets up to which the bridge that was killed here last had read the topics of that time.
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
    dropped: float = 0.0
    reached: dict[tuple[int, Key], int] = field(default_factory=dict)
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
            state=self.cluster.state,
            deltas=DeltaSettings(snapshot_seconds=10),
            rules=RULES,
        )
        self.client.intake = self.site.intake
        self._discovery = Discovery(self.client, self.site.intake, TopicNames(TOPICS), clock=self.clock)

    def kill(self) -> None:
        """`kill -9`."""
        if self.site is not None and self.client is not None:
            self.dropped += self._dropped_here()
            self.reached = {(self.cluster.ids.get(key[0], 0), key): at for key, at in self.client.reading.items()}
        self.site = self.client = None
        self.suspended = False

    def leave(self) -> None:
        """SIGTERM: the bridge leaves the group and writes its totals for a restart."""
        if self.site is None or self.client is None or self.suspended:
            return
        if self.group is not None and self.cluster.answers:
            self.group.leave(self.client)
        self.site.intake.close()
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

    def has_read_all(self, producer: Producer) -> bool:
        """Whether it reads the partition of a producer's key, and has read all that the producer has written."""
        to = (DELTAS, self.cluster.partition_of(DELTAS, producer.key, producer.salt))
        read = self.client.reading.get(to) if self.client is not None else None
        undelivered = producer.hold > 0 or any(key == producer.key for _, _, key in self.cluster.pending)
        return read is not None and read == len(self.cluster.logs.get(to, ())) and not undelivered

    def unread(self, _producer: Producer) -> int:
        """The most delta points of a producer that it may not have read where `has_read_all` holds: none."""
        return 0

    def lost(self, producer: Producer) -> int:
        """Points of a producer that are lost if the topic of delta series is deleted now, see `unsaved`.

        None while a bridge runs here, and none in a group, where a total begins again with its topic.
        """
        if self.site is not None or self.mode == "group":
            return 0
        present = self.cluster.ids.get(DELTAS, 0)
        reached = {key: offset for (topic_id, key), offset in self.reached.items() if topic_id == present}
        return unsaved(self.cluster, producer.number, reached)

    def overtaken(self, producer: Producer) -> int:
        """Points of a producer that are in no total because its clock was corrected, see `overtaken`."""
        return overtaken(producer) if self.mode == "group" and self.count > 1 else 0

    def new_points(self, producer: Producer) -> int:
        """Points of a producer that it has read in a topic that was made again, without those of the deleted ones."""
        reading = self.client.reading if self.client is not None else {}
        return len(points(self.cluster, producer.number, reading) - self.cluster.deleted[DELTAS])

    @property
    def drops(self) -> float:
        """Delta points that were counted as not added, ever."""
        return self.dropped + (self._dropped_here() if self.site is not None else 0.0)

    def _dropped_here(self) -> float:
        assert self.site is not None
        points = self.site.registry._names_to_collectors["kernelcast_bridge_delta_points_total"]  # `own` collects all
        assert isinstance(points, Counter)
        return sum(float(points.labels(outcome)._value.get()) for outcome in DROPPED)
