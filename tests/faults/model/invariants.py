"""Invariants of the bridges: those of every scrape, and those after the last fault.

`Watcher` is a Prometheus that scrapes all replicas: their series are one, as with `honor_labels`, but in mode
`replica`, where each replica is a target of its own.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.faults.model.bridges import FLOOR_SECONDS, MISSED_INTERVALS, TTL_SECONDS, Replica
from tests.faults.model.producers import COUNTERS, CUMULATIVE, DELTAS, GAUGE, RUNS, TOTALS, Named, Producer

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
class Seen:
    """Prometheus's view of one series.

    Attributes:
        value: Its last sample.
        increase: Of a delta series, the result of `increase` over all time.
        missing: How much of the truth may be missing of it.
        excused: Whether samples since the last check were excused.
        changes: `Producer.changes` when the last sample came.
        topic_id: Of the topic of which the last sample was the total, `Producer.topic_id`.
    """

    value: float = 0.0
    increase: float = 0.0
    missing: float = 0.0
    excused: bool = False
    changes: int = 0
    topic_id: int = 0


@dataclass
class Watcher:
    """Scrapes, and compares with the truth.

    Attributes:
        grace_seconds: See `GRACE_SECONDS`.
        lifetime_seconds: How long the series of a partition that falls silent may be exposed at the most.
        lost: By replica and series, the points that are lost with a deleted topic, see `unsaved`. The total that the
            replica exposes after its restart may lack them.
    """

    replicas: list[Replica]
    producers: list[Producer]
    seen: dict[tuple[int, Named], Seen] = field(default_factory=dict)
    since: dict[tuple[int, Named], float] = field(default_factory=dict)
    grace_seconds: float = GRACE_SECONDS
    lifetime_seconds: float = TTL_SECONDS + MARGIN_SECONDS
    lost: dict[tuple[int, Named], int] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Whether the total of some series need not follow it yet: until then its increase is not compared."""
        return any(self._total_excused((name, one.number)) for one in self.producers for name in TOTALS)

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
            seen = self.seen.setdefault((target, named), Seen())
            self.since.setdefault((replica.number, named), now_seconds)
            if named[0] in COUNTERS:
                self._cumulative(replica, named, seen, value)
            elif named[0] in TOTALS:
                self._total(replica, named, seen, value)
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

    def interrupted(self, names: Collection[str] = TOTALS, producer: int | None = None) -> None:
        """Note that what Prometheus has not seen yet of some delta series may never be seen.

        So it is after a topic was deleted, and after a producer was restarted with other attributes: the total of the
        former ones ends, and its last value may have come between two scrapes.
        """
        for (_, named), seen in self.seen.items():
            if named[0] in names and producer in (None, named[1]):
                seen.missing = max(seen.missing, self.producers[named[1]].deltas - seen.increase)

    def topic_deleted(self) -> None:
        """Note the points that are lost with the topic of delta series; to be called before it is deleted.

        Those that were lost with a former topic stay noted while their replica does not run.
        """
        for replica in self.replicas:
            for producer in self.producers:
                if lost := replica.lost(producer):
                    self.lost |= dict.fromkeys(((replica.number, (name, producer.number)) for name in TOTALS), lost)

    def settled(self, pages: dict[int, dict[Named, float]]) -> str:
        """The first difference between the exposed values and the truth; empty when there is none."""
        holders = [one.number for one in self.replicas] if self.replicas[0].mode == "replica" else [-1]
        whole = {-1: {named: value for shown in pages.values() for named, value in shown.items()}, **pages}
        for holder in holders:
            for producer in self.producers:
                reason = self._differs(holder, whole[holder], producer)
                if reason:
                    return f"producer {producer.number}: {reason}"
        return ""

    def _differs(self, holder: int, shown: dict[Named, float], producer: Producer) -> str:
        run = producer.alive[0]
        for name in COUNTERS:
            truth, value = RUNS * run.written + run.number, shown.get((name, producer.number))
            if value != truth:
                return f"{name} is {value}, the truth {truth}"
        gauge = shown.get((GAUGE, producer.number))
        if gauge is None or gauge < producer.gauges[-2:][0]:
            return f"the gauge is {gauge}, written were {producer.gauges[-3:]}"
        for name in TOTALS:
            seen = self.seen.get((holder, (name, producer.number)))
            if seen is None or (name, producer.number) not in shown:
                return f"{name} is not exposed"
            lacking = producer.deltas - seen.increase
            excused = self._has_lost_its_total(producer) or self._is_read_in_any_order(producer)
            if producer.shared or lacking == 0 or excused:
                continue
            drops = sum(one.drops for one in self.replicas)
            most = seen.missing + drops + self.replicas[0].overtaken(producer)
            if not -producer.ahead_again <= lacking <= most:
                counted = f"counted as dropped {drops:.0f}, excused {most - drops:.0f}"
                return f"{name} has risen by {seen.increase:.0f}, the truth is {producer.deltas}; {counted}"
        return ""

    def _has_lost_its_total(self, producer: Producer) -> bool:
        """Whether a total may have begun again on another replica, because its producer's clock was set back."""
        moved = (DELTAS, producer.key) in producer.cluster.moves.seconds
        return producer.set_back and moved and self._grouped and len(self.replicas) > 1

    def _cumulative(self, replica: Replica, named: Named, seen: Seen, value: float) -> None:
        producer = self.producers[named[1]]
        before, now = producer.runs[int(seen.value) % RUNS - 1], producer.runs[int(value) % RUNS - 1]
        if value >= seen.value and now.number >= before.number:
            seen.value = value
        elif now.number > before.number or (before.first_seconds <= now.last_seconds and now is not before):
            seen.value = value  # a restart, or two that share a name
        elif not self._excused(named, replica.number, value=value):
            kind = "a counter falls" if now is before else "a counter shows a former run"
            raise Violation(kind, f"{named} {seen.value:.0f} -> {value:.0f} on replica {replica.number}")

    def _total(self, replica: Replica, named: Named, seen: Seen, value: float) -> None:
        producer, lost = self.producers[named[1]], self.lost.pop((replica.number, named), 0)
        if self._total_excused(named) or (seen.excused and not replica.has_read_all(producer)):
            seen.excused, seen.value = True, value
            return
        if producer.changes != seen.changes:
            seen.changes = producer.changes
            if value >= seen.value:  # the new series may already be above the former: Prometheus sees no reset
                seen.missing += seen.value
        elif producer.topic_id != seen.topic_id and value <= producer.deltas - producer.deltas_before_topic:
            seen.topic_id = producer.topic_id  # the total has begun at 0 with the topic that was made again
            if value >= seen.value:
                seen.missing += seen.value
        elif lost:
            self._continue_without(replica, producer, seen, value, lost)
        if seen.excused:  # the points received in between are unknown; those of new attributes may be hidden
            of_new, unread = producer.deltas - producer.deltas_before_change, replica.unread(producer)
            seen.excused, seen.missing = False, seen.missing + unread
            seen.increase = float(producer.deltas - unread - (of_new if value > of_new else 0))
        else:
            seen.increase += value - seen.value if value >= seen.value else value
        most = producer.deltas + producer.ahead_again
        if seen.increase > most and not producer.shared and not self._is_read_in_any_order(producer):
            detail = (
                f"{named} {seen.value:.0f} -> {value:.0f} on replica {replica.number}, risen by {seen.increase:.0f}"
            )
            raise Violation("more is counted than was written", f"{detail}, the truth is {producer.deltas}")
        seen.value = value

    @staticmethod
    def _continue_without(replica: Replica, producer: Producer, seen: Seen, value: float, lost: int) -> None:
        """Judge the first total after a restart, which may lack points that are lost: these, and not one more.

        `increase()` takes a fall for a restart, as docs/bridge.md says. Here it counts as a total that goes on lower.
        """
        lacking = seen.value - (value - replica.new_points(producer))
        if 0 < lacking <= lost and value < seen.value:
            seen.value -= lacking
        elif 0 < lacking <= lost:
            seen.missing += lacking

    def _is_read_in_any_order(self, producer: Producer) -> bool:
        """Whether points of two live processes with the same attributes lie in several partitions.

        A bridge that reads them again, in another order, cannot tell a late point of one process from one that the
        other has covered, and counts it as not added.
        """
        return producer.doubled and (DELTAS, producer.key) in producer.cluster.moves.seconds

    def _total_excused(self, named: Named) -> bool:
        """Whether the total of a series need not follow it: its key has just gone to an old partition.

        With one replica all totals follow, and with several where the partition was added: a replica can know that a
        topic has grown. But a series whose last two intervals before it moved were longer than usual may be exposed by
        its former owner for longer than its new one waits. A bridge that joins cannot see that a young topic has grown.
        """
        cluster, key = self.producers[named[1]].cluster, (DELTAS, self.producers[named[1]].key)
        moves, joined = cluster.moves, cluster.joined_seconds
        young = joined - cluster.made_seconds.get(DELTAS, joined) < self.lifetime_seconds
        seen = not young or joined < cluster.grown_seconds.get(DELTAS, joined)
        if len(self.replicas) == 1 or (seen and key in moves.to_added - moves.uneven):
            return False
        return self._excused(named, *(one.number for one in self.replicas))

    def _excused(self, named: Named, *numbers: int, value: float = -1.0) -> bool:
        """Whether a series' key has just gone to another partition, which another bridge of the group may read.

        A bridge that has exposed it ever since may wait for a time-to-live; one that begins to, later, knows better.
        Only values from before the move are excused. Time in which the former partition could not be reached does not
        count, unless the topic has grown: then its owner knows that the series may have moved.

        Args:
            named: The series.
            numbers: The replicas that expose it.
            value: The older one of the exposed values; negative for delta series.
        """
        producer, topic = self.producers[named[1]], DELTAS if named[0] in TOTALS else CUMULATIVE
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
