"""A Kafka in memory that several bridges read: topics, leaders, one consumer group, and the bridges' clients of it."""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_END, TopicPartition
from tests.faults.model.moves import Moves
from tests.support.bridge.list_kafka import ListKafka, ManualClock
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.intake.consume import Intake
from kernelcast.wire.errors import BrokerError

Key = tuple[str, int]
SESSION_SECONDS = 10.0
"""As `GroupMembership` assumes; shorter than a service's 15 s, as all times here are."""
METADATA_SECONDS = 6.0
"""How often members learn of topics and partitions; shorter than the bridge's 10 s, as all other times are."""


@dataclass
class Cluster:
    """The brokers.

    Attributes:
        clock: The brokers' clock.
        logs: The records of each partition that exists.
        ids: By topic, a number that no other topic has had.
        commits: Offsets committed by each group; replicas that read everything have one, too.
        notes: Metadata committed with the offsets.
        leaderless: Partitions that can be neither read nor written.
        answers: Whether any broker can be reached.
        moves: How keys have moved between partitions.
        made_seconds: By topic, when it was made.
        grown_seconds: By topic, when partitions were last added.
        joined_seconds: When a bridge was last started.
        away_seconds: By partition, when it could last not be reached.
    """

    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000.0))
    logs: dict[Key, list[Record]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    commits: dict[str, dict[Key, int]] = field(default_factory=lambda: defaultdict(dict))
    leaderless: set[Key] = field(default_factory=set)
    answers: bool = True
    pending: list[tuple[Key, bytes | None, bytes]] = field(default_factory=list)
    notes: dict[str, dict[Key, str]] = field(default_factory=lambda: defaultdict(dict))
    moves: Moves = field(default_factory=Moves)
    made_seconds: dict[str, float] = field(default_factory=dict)
    grown_seconds: dict[str, float] = field(default_factory=dict)
    joined_seconds: float = 0.0
    away_seconds: dict[Key, float] = field(default_factory=dict)
    _made: int = 0

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or make it grow."""
        if topic not in self.ids:
            self._made += 1
            self.ids[topic] = self._made
            self.made_seconds[topic] = self.clock.seconds
        else:
            self.grown_seconds[topic] = self.clock.seconds
        for number in range(partitions):
            self.logs.setdefault((topic, number), [])

    def delete(self, topic: str) -> None:
        """Delete a topic and the offsets committed for it."""
        self.ids.pop(topic, None)
        for key in [key for key in self.logs if key[0] == topic]:
            del self.logs[key]
            for commits in self.commits.values():
                commits.pop(key, None)
            self.leaderless.discard(key)

    def partitions(self, topic: str) -> int:
        """Number of a topic's partitions; 0 where there is no such topic."""
        return sum(key[0] == topic for key in self.logs)

    def partition_of(self, topic: str, key: bytes, salt: int) -> int:
        """The partition that a producer's partitioner chooses; partitioners differ in `salt`."""
        return zlib.crc32(key, salt) % max(1, self.partitions(topic))

    def write(self, to: Key, body: bytes | None, key: bytes) -> bool:
        """Append a record, or keep it while the partition cannot be written, as producers do; False without a topic.

        An empty key is written as none.
        """
        if to not in self.logs:
            return False
        if not self.answers or to in self.leaderless or any(kept == to for kept, _, _ in self.pending):
            self.pending.append((to, body, key))
        else:
            self._append(to, body, key)
        return True

    def flush(self) -> None:
        """Append what producers have kept, and note what cannot be reached."""
        away = self.leaderless if self.answers else self.logs.keys()
        self.away_seconds |= dict.fromkeys(away, self.clock.seconds)
        kept, self.pending = self.pending, []
        for to, body, key in kept:
            if to not in self.logs:
                continue
            if self.answers and to not in self.leaderless:
                self._append(to, body, key)
            else:
                self.pending.append((to, body, key))

    def _append(self, to: Key, body: bytes | None, key: bytes) -> None:
        log, (topic, number), now_seconds = self.logs[to], to, self.clock.seconds
        if key and body is not None:
            self.moves.note((topic, key), number, partitions=self.partitions(topic), now_seconds=now_seconds)
        log.append(Record((*to, len(log)), body, round(now_seconds * 1000), keyed=key or None))


class Client(ListKafka):
    """A bridge's consumer; reads by itself, or as a member of a group.

    Attributes:
        heard_seconds: When the group's coordinator answered last.
        late: Whether the next `consume` returns the messages fetched before a suspension, as librdkafka's queue does.
        gates: By partition that is read, where it ended when it was assigned.
    """

    def __init__(self, cluster: Cluster, name: int, *, at_once: int, group: "Group | None", owner: str) -> None:
        super().__init__(
            logs=cluster.logs, commits=cluster.commits[owner], leaderless=cluster.leaderless, at_once=at_once
        )
        self.cluster, self.name, self.group = cluster, name, group
        self.notes: dict[Key, str] = cluster.notes[owner]
        self.intake: Intake | None = None
        self.late = False
        self.generation = -1
        self.heard_seconds = cluster.clock.monotonic()
        self.gates: dict[Key, tuple[int, int]] = {}
        self._told: dict[Key, tuple[int, int]] = {}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def consume(self, *_: object) -> tuple[list[Record], list[object]]:
        if not self.cluster.answers:
            if self.group is not None:
                self.group.note_silence(self)
            return [], []
        if self.late:
            self.late = False
        elif self.group is not None:
            self.group.visit(self)
        batch: list[Record] = []
        for key, wanted in self.reading.items():
            log = self.logs.get(key)
            if log is None or key in self.leaderless:
                continue
            offset = wanted if wanted <= len(log) else 0  # auto.offset.reset: earliest
            more = log[offset : offset + self.at_once]
            batch += more
            self.reading[key] = offset + len(more)
            end = (self.cluster.ids[key[0]], len(log))
            if self.reading[key] == len(log) and self._told.get(key) != end:
                self._told[key] = end
                self.end(*key, len(log))
        return batch, []

    def seek(self, partition: TopicPartition) -> None:
        """Read on elsewhere; a partition that has been read to its gate has passed it, wherever it is read next.

        A topic that was made again after the assignment had no messages then, so its partitions have no gate.
        """
        key = (partition.topic, partition.partition)
        gate, made = self.gates.get(key), self.cluster.ids.get(partition.topic)
        passed = gate is not None and (gate[0] != made or self.reading.get(key, 0) >= gate[1])
        super().seek(partition)
        if passed and gate is not None:
            self.gates[key] = gate

    def leaders(self) -> dict[Key, int]:
        self._ask()
        return super().leaders()

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        self._ask(partition)
        return super().watermarks(partition)

    def known_high(self, partition: TopicPartition) -> int:
        return len(self.logs.get((partition.topic, partition.partition), []))

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        self._ask(*partitions)
        return super().offsets_for_time(partitions, time_ns)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's ids of topics that exist."""
        self._ask()
        return {topic: f"id-{self.cluster.ids[topic]}" for topic in topics if topic in self.cluster.ids}

    def newest_timestamps_ms(self, partitions: Sequence[TopicPartition]) -> dict[Key, int]:
        """The newest append time of each partition that has a record."""
        self._ask(*partitions)
        keys = [(item.topic, item.partition) for item in partitions]
        return {key: max(record.append_ms for record in self.logs[key]) for key in keys if self.logs[key]}

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        self._ask()
        return super().committed(partitions)

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit offsets; a member that the group has removed commits nothing, and gets an error only if it waits."""
        accepted = self.cluster.answers and (self.group is None or self in self.group.members)
        if wait and not accepted:
            raise BrokerError("unknown member, or no answer")
        if accepted:
            super().commit([item for item in offsets if (item.topic, item.partition) in self.logs])

    def _read_from(self, start: TopicPartition) -> None:
        key = (start.topic, start.partition)
        log = self.logs.get(key, [])
        self.gates[key] = (self.cluster.ids.get(start.topic, 0), len(log))
        self._told.pop(key, None)
        self.reading[key] = len(log) if start.offset == OFFSET_END else max(start.offset, 0)

    def _ask(self, *partitions: TopicPartition) -> None:
        if not self.cluster.answers:
            raise BrokerError("no broker answers")
        for item in partitions:
            if (item.topic, item.partition) not in self.logs:
                raise BrokerError(f"there is no partition {item.topic}/{item.partition}")


class Group:
    """The coordinator of one consumer group, with cooperative rebalancing.

    Attributes:
        members: When each was heard of last.
        owner: The member that reads each partition, as far as the group knows.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self.cluster, self.topics = cluster, tuple(topics)
        self.members: dict[Client, float] = {}
        self.owner: dict[Key, Client] = {}
        self._target: dict[Key, Client] = {}
        self._known: set[Key] = set()
        self._generation = 0
        self._refresh_due = 0.0
        self._forgotten = False

    def tick(self) -> None:
        """Remove members whose session has timed out; learn of partitions."""
        now = self.cluster.clock.monotonic()
        if not self.cluster.answers:  # no heartbeat arrives; a coordinator that comes back waits for all
            self.members = dict.fromkeys(self.members, now)
            return
        if self._forgotten:  # its session times out, whether it joins again or not
            self._forgotten = False
            self._rebalance()
        for member in [one for one, heard in self.members.items() if now - heard > SESSION_SECONDS]:
            self.remove(member)
        if now >= self._refresh_due:
            self._refresh_due = now + METADATA_SECONDS
            known = {key for key in self.cluster.logs if key[0] in self.topics}
            if known != self._known:
                self._known = known
                self._rebalance()

    def join(self, member: Client) -> None:
        """Take a member in."""
        self.members[member] = self.cluster.clock.monotonic()
        self._rebalance()

    def remove(self, member: Client) -> None:
        """Remove a member; its partitions are free."""
        self.members.pop(member, None)
        self.owner = {key: owner for key, owner in self.owner.items() if owner is not member}
        self._rebalance()

    def visit(self, member: Client) -> None:
        """Serve a member's poll: its heartbeat, and the callbacks that are due."""
        intake = member.intake
        assert intake is not None
        if member not in self.members:
            if member.reading:
                self._give_up(member, intake, list(member.reading), lost=True)
            self.join(member)
        self.members[member] = member.heard_seconds = self.cluster.clock.monotonic()
        target = {key for key, owner in self._target.items() if owner is member}
        gone = [key for key in member.reading if key not in target]
        if gone:
            self._give_up(member, intake, gone, lost=False)
        gained = sorted(key for key in target if key not in self.owner)
        if gained or gone or member.generation != self._generation:
            member.generation = self._generation
            self.owner |= dict.fromkeys(gained, member)
            for start in intake.assigned([TopicPartition(*key) for key in gained]):
                member._read_from(start)

    def note_silence(self, member: Client) -> None:
        """Take a member's partitions away once no coordinator has answered it for a session, as librdkafka does.

        librdkafka forgets the member's id as well: the member joins again when a coordinator answers.
        """
        if member in self.members and self.cluster.clock.monotonic() - member.heard_seconds > SESSION_SECONDS:
            del self.members[member]
            self._forgotten = True
            if member.reading and member.intake is not None:
                self._give_up(member, member.intake, list(member.reading), lost=True)

    def leave(self, member: Client) -> None:
        """Have a member leave in good order."""
        if member.reading and member in self.members and member.intake is not None:
            self._give_up(member, member.intake, list(member.reading), lost=False)
        self.remove(member)

    def _give_up(self, member: Client, intake: Intake, keys: list[Key], *, lost: bool) -> None:
        for key in keys:
            del member.reading[key]
        intake.revoked([TopicPartition(*key) for key in keys], lost=lost)
        for key in keys:
            if self.owner.get(key) is member:
                del self.owner[key]

    def _rebalance(self) -> None:
        """Keep what can stay, and even out the rest."""
        self._generation += 1
        members = sorted(self.members, key=lambda member: member.name)
        held: dict[Client, list[Key]] = {member: [] for member in members}
        for key in sorted(self._known):
            before = self._target.get(key)
            if before in held:
                held[before].append(key)
        if members:
            spread = {key for keys in held.values() for key in keys}
            for key in sorted(self._known - spread):
                min(held.values(), key=len).append(key)
            while (most := max(held.values(), key=len)) and len(most) - len(least := min(held.values(), key=len)) > 1:
                least.append(most.pop(self._generation % len(most)))  # which one is the assignor's choice
        self._target = {key: member for member, keys in held.items() for key in keys}
