"""Invariants of the bridges: those of every scrape, and those after the last fault.

`Watcher` is a Prometheus that scrapes all replicas: their series are one, as with `honor_labels`, but in mode
`replica`, where each replica is a target of its own.
"""

from dataclasses import dataclass, field

from tests.faults.model.bridges import FLOOR_SECONDS, MISSED_INTERVALS, TTL_SECONDS, Replica
from tests.faults.model.producers import COUNTERS, GAUGE, RUNS, TOPIC_OF, Named, Producer

INTERVAL_SECONDS = 2.0
"""Between two writes of a producer."""
MARGIN_SECONDS = 8.0
"""Expiry runs every 2 s, and members learn of partitions every 6 s."""
GRACE_SECONDS = max(FLOOR_SECONDS, MISSED_INTERVALS * INTERVAL_SECONDS) + MARGIN_SECONDS
"""How long a bridge of a group may still expose a series whose key has gone to a partition of another bridge: it cannot
know that the series goes on elsewhere, and has to wait until the series has missed its intervals."""


class Violation(AssertionError):  # noqa: N818  it is no error of the program
    """An invariant does not hold.

    Attributes:
        kind: Which one; the same for all findings of one kind.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass
class Watcher:
    """Scrapes, and compares with the truth.

    Attributes:
        grace_seconds: See `GRACE_SECONDS`.
        lifetime_seconds: How long the series of a partition that falls silent may be exposed at the most.
        seen: By target and series, the last sample.
    """

    replicas: list[Replica]
    producers: list[Producer]
    seen: dict[tuple[int, Named], float] = field(default_factory=dict)
    since: dict[tuple[int, Named], float] = field(default_factory=dict)
    grace_seconds: float = GRACE_SECONDS
    lifetime_seconds: float = TTL_SECONDS + MARGIN_SECONDS

    @property
    def _grouped(self) -> bool:
        return self.replicas[0].mode == "group"

    def scrape(self, replica: Replica) -> dict[Named, float]:
        """Scrape one replica, and judge each sample."""
        shown = replica.scrape()
        target = replica.number if replica.mode == "replica" else -1
        now_seconds = replica.cluster.clock.seconds
        for key in [key for key in self.since if key[0] == replica.number and key[1] not in shown]:
            del self.since[key]
        for named, value in shown.items():
            self.since.setdefault((replica.number, named), now_seconds)
            if named[0] in COUNTERS:
                self._judge(replica, named, target, value)
        if replica.ready() and (behind := replica.behind()):
            raise Violation("ready before it has caught up", f"replica {replica.number}, partitions {behind}")
        return shown

    def at_once(self, pages: dict[int, dict[Named, float]]) -> None:
        """Judge what all replicas that can be scraped expose at one moment."""
        if self.replicas[0].mode == "replica":
            return
        first: dict[Named, int] = {}
        for number, shown in pages.items():
            for named, value in shown.items():
                other = first.setdefault(named, number)
                written = self.producers[named[1]].written_seconds
                older = min(value, pages[other][named], key=lambda one: written.get(one, 0.0))
                if other != number and not self._excused(named, other, number, value=older):
                    raise Violation("a series on two replicas", f"{named} on {other} and {number}")

    def settled(self, pages: dict[int, dict[Named, float]]) -> str:
        """The first difference between the exposed values and the truth; empty when there is none."""
        holders = [one.number for one in self.replicas] if self.replicas[0].mode == "replica" else [-1]
        whole = {-1: {named: value for shown in pages.values() for named, value in shown.items()}, **pages}
        for holder in holders:
            for producer in self.producers:
                reason = self._differs(whole[holder], producer)
                if reason:
                    return f"producer {producer.number}: {reason}"
        return ""

    def _differs(self, shown: dict[Named, float], producer: Producer) -> str:
        run = producer.alive[0]
        for name in COUNTERS:
            truth, value = RUNS * run.written + run.number, shown.get((name, producer.number))
            if value != truth:
                return f"{name} is {value}, the truth {truth}"
        gauge = shown.get((GAUGE, producer.number))
        if gauge is None or gauge < producer.gauges[-2:][0]:
            return f"the gauge is {gauge}, written were {producer.gauges[-3:]}"
        return ""

    def _judge(self, replica: Replica, named: Named, target: int, value: float) -> None:
        producer, seen = self.producers[named[1]], self.seen.get((target, named), 0.0)
        before, now = producer.runs[int(seen) % RUNS - 1], producer.runs[int(value) % RUNS - 1]
        if value >= seen and now.number >= before.number:
            self.seen[target, named] = value
        elif now.number > before.number or (before.first_seconds <= now.last_seconds and now is not before):
            self.seen[target, named] = value  # a restart, or two that share a name
        elif not self._excused(named, replica.number, value=value):
            kind = "a counter falls" if now is before else "a counter shows a former run"
            raise Violation(kind, f"{named} {seen:.0f} -> {value:.0f} on replica {replica.number}")

    def _excused(self, named: Named, *numbers: int, value: float) -> bool:
        """Whether a series' key has just gone to another partition, which another bridge of the group may read.

        A bridge that has exposed it ever since may wait for a time-to-live; one that begins to, later, knows better.
        Only values from before the move are excused. Time in which the former partition could not be reached does not
        count, unless the topic has grown: then its owner knows that the series may have moved.

        Args:
            named: The series.
            numbers: The replicas that expose it.
            value: The older one of the exposed values.
        """
        producer, topic = self.producers[named[1]], TOPIC_OF[named[0]]
        cluster, key = producer.cluster, (topic, producer.key)
        moved = cluster.moves.seconds.get(key)
        if not self._grouped or moved is None or producer.written_seconds.get(value, 0.0) > moved:
            return False
        if key not in cluster.moves.to_added:
            moved = max(moved, cluster.away_seconds.get(cluster.moves.origin[key], moved))
        age_seconds = cluster.clock.seconds - moved
        if age_seconds < self.grace_seconds:
            return True
        late = moved + self.lifetime_seconds
        ever_since = any(self.since.get((number, named), late) <= moved + self.grace_seconds for number in numbers)
        return age_seconds < self.lifetime_seconds and ever_since
