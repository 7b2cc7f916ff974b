from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition
from tests.support.runtime.kafka_record import Record

from kernelcast.exporter.hints.inbox import READ_SECONDS, HintInbox, HintReader
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.events import Hint, to_event
from kernelcast.wire.topics import HINTS

NOW_NS = 1_000_000_000_000


def message(
    hint: Hint | None = None, *, raw: bytes | None = None, number: int = 0, at: int = 0, name: str = ""
) -> Record:
    if hint is not None:
        raw, name = encode_event(to_event(hint, source="/kernelcast/predictor/p", time_ns=NOW_NS)), hint.key
    return Record((HINTS.name, number, at), raw, keyed=name.encode())


def hint(hint_id: str, *, tunable: str = "block", expires_at_ns: int = NOW_NS + 1) -> Hint:
    return Hint(hint_id, "train", tunable, "256", expires_at_ns)


@dataclass
class Node:
    """A node that receives hints: processes with tunables, dead letters, counters."""

    wanted: str = "block"
    delivered: list[str] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def deliver(self, hint: Hint) -> int:
        self.delivered.append(hint.hint_id)
        return int(hint.tunable == self.wanted)

    def withdraw(self, key: str) -> None:
        self.withdrawn.append(key)

    def send(self, message: Any, error: Exception) -> None:  # noqa: ARG002  the protocol's
        self.dead_letters.append(type(error).__name__)

    def count(self, outcome: str) -> None:
        self.counted[outcome] += 1

    def inbox(self) -> HintInbox:
        return HintInbox(self, self, count=self.count, clock=lambda: NOW_NS)


def test_of_hints_written_before_the_start_only_the_newest_of_each_key_is_delivered() -> None:
    node = Node()
    inbox = node.inbox()
    for one in (message(hint("old")), message(hint("other", tunable="tile")), message(hint("new"))):
        inbox.receive(one)
    assert not node.delivered
    inbox.caught_up()
    assert sorted(node.delivered) == ["new", "other"]
    assert node.counted == {"superseded": 1, "delivered": 1, "elsewhere": 1}


def test_once_open_hints_are_delivered_as_they_come() -> None:
    node = Node()
    inbox = node.inbox()
    inbox.caught_up()
    inbox.receive(message(hint("a")))
    inbox.receive(message(hint("b")))
    assert node.delivered == ["a", "b"]


def test_an_expired_hint_is_dropped_and_counted() -> None:
    node = Node()
    inbox = node.inbox()
    inbox.caught_up()
    inbox.receive(message(hint("late", expires_at_ns=NOW_NS)))
    assert (node.delivered, node.counted) == ([], {"expired": 1})


def test_an_invalid_hint_goes_to_the_dead_letters() -> None:
    node = Node()
    inbox = node.inbox()
    for raw in (b"\xff\x00", b"{}", b'{"specversion":"1.0","id":"1","source":"x","type":"other"}'):
        inbox.receive(message(raw=raw))
    assert node.dead_letters == ["EventError"] * 3
    assert node.counted == {"invalid": 3}


def test_a_withdrawn_hint_is_not_delivered() -> None:
    node = Node()
    inbox = node.inbox()
    waiting = message(hint("a"))
    inbox.receive(waiting)
    inbox.receive(message(raw=None, name=hint("a").key))
    inbox.caught_up()
    assert not node.delivered
    assert node.counted["withdrawn"] == 1


def test_a_hint_withdrawn_after_its_delivery_is_kept_for_no_later_process() -> None:
    node = Node()
    inbox = node.inbox()
    inbox.caught_up()
    inbox.receive(message(hint("a")))
    inbox.receive(message(raw=None, name=hint("a").key))
    assert node.withdrawn == [hint("a").key]


class Broker:
    """Two partitions of hints; the reader is stopped after the last batch."""

    def __init__(self, shutdown: Shutdown, batches: list[list[Record]], highs: tuple[int, int] = (0, 0)) -> None:
        self.shutdown = shutdown
        self.batches = batches
        self.highs = highs
        self.closed = 0
        self.after: list[Any] = []

    def partitions(self, topic: str) -> list[Any]:
        return [TopicPartition(topic, number) for number in range(2)]

    def watermarks(self, partition: Any) -> tuple[int, int]:
        return 0, self.highs[partition.partition]

    def assign(self, partitions: Any) -> None:
        self.assigned = list(partitions)

    def consume(self, _max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        assert timeout_seconds == READ_SECONDS
        if len(self.batches) <= 1:
            self.shutdown.request()
        return (self.batches.pop(0) if self.batches else []), []

    def ends(self) -> list[Any]:
        return []

    def close(self, timeout_seconds: float = 0.0) -> None:  # noqa: ARG002  the protocol's
        self.closed += 1


def test_the_reader_delivers_after_reading_the_messages_present_at_its_start() -> None:
    node, shutdown = Node(), Shutdown()
    first, second = message(hint("a"), at=3), message(hint("b", tunable="tile"), number=1, at=0)
    seen: list[list[str]] = []

    class Watched(Broker):
        def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
            seen.append(list(node.delivered))
            return super().consume(max_messages, timeout_seconds)

    broker = Watched(shutdown, [[first], [second], []], highs=(4, 1))
    HintReader(lambda: broker, node.inbox, shutdown).run()
    assert seen == [[], [], ["a", "b"]]
    assert [partition.offset for partition in broker.assigned] == [0, 0]
    assert broker.closed == 1


def test_a_last_message_that_compaction_removed_does_not_hold_hints_back() -> None:
    node, shutdown = Node(), Shutdown()

    class Compacted(Broker):
        def ends(self) -> list[Any]:
            return [] if self.batches else [TopicPartition(HINTS.name, 0, 9)]

    broker = Compacted(shutdown, [[message(hint("a"), at=3)], []], highs=(9, 0))
    HintReader(lambda: broker, node.inbox, shutdown).run()
    assert node.delivered == ["a"]


class Orders:
    """An inbox that lists what the reader does."""

    def __init__(self) -> None:
        self.applied: list[str] = []

    def receive(self, message: Any) -> None:
        self.applied.append(f"read {message.offset()}")

    def caught_up(self) -> None:
        self.applied.append("caught up")


def test_an_end_before_the_one_at_the_start_does_not_count_as_read_to_the_end() -> None:
    """After a change of leader, the new high watermark may be below the one that the old leader gave."""
    orders, shutdown = Orders(), Shutdown()

    class NewLeader(Broker):
        def ends(self) -> list[Any]:
            return [TopicPartition(HINTS.name, 0, 4)] if len(self.batches) == 3 else []

    broker = NewLeader(shutdown, [[message(hint("a"), at=3)], [], [message(hint("b"), at=8)], []], highs=(9, 0))
    HintReader(lambda: broker, lambda: orders, shutdown).run()
    assert orders.applied == ["read 3", "read 8", "caught up"]


def test_a_kafka_that_falls_silent_is_not_taken_for_the_end_of_the_orders() -> None:
    orders, shutdown = Orders(), Shutdown()
    broker = Broker(shutdown, [[message(hint("a"), at=3)], *([[]] * 30)], highs=(9, 0))
    HintReader(lambda: broker, lambda: orders, shutdown).run()
    assert orders.applied == ["read 3"]


def test_an_unreachable_broker_is_tried_again() -> None:
    attempts: list[int] = []
    waits: list[float | None] = []

    class Patient(Shutdown):
        def wait(self, timeout_seconds: float | None = None) -> bool:
            waits.append(timeout_seconds)
            return self.requested

    node, shutdown = Node(), Patient()

    class Away(Broker):
        def partitions(self, topic: str) -> list[Any]:
            raise BrokerError(f"asking for {topic} failed")

    def connect() -> Broker:
        if attempts:
            assert reader.ready() == (False, "asking for kernelcast.hints failed")
        attempts.append(len(attempts))
        return Away(shutdown, []) if len(attempts) < 4 else Broker(shutdown, [[message(hint("a"))]])

    reader = HintReader(connect, node.inbox, shutdown)
    assert reader.ready() == (False, "Kafka has not answered yet")
    reader.run()
    assert reader.ready() == (True, "")
    assert node.delivered == ["a"]
    assert waits[:3] == [1.0, 2.0, 4.0]


class Impatient(Shutdown):
    """Waits for nothing, and notes how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self.waits.append(timeout_seconds)
        return self.requested


def test_a_broker_that_answered_is_tried_again_soon_when_it_goes_away() -> None:
    node, shutdown = Node(), Impatient()

    class Breaking(Broker):
        def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
            if len(self.batches) <= 1:
                raise BrokerError("reading failed")
            return super().consume(max_messages, timeout_seconds)

    brokers: list[Broker] = [Breaking(shutdown, [[], []]) for _ in range(3)]
    brokers.append(Broker(shutdown, [[message(hint("a"))]]))
    HintReader(lambda: brokers.pop(0), node.inbox, shutdown).run()
    assert shutdown.waits[:3] == [1.0, 1.0, 1.0]
    assert node.delivered == ["a"]


def test_hints_of_a_topic_that_was_made_again_during_the_start_are_delivered() -> None:
    """The end of the start does not come again: the topic is deleted and made again, or its new leader lost some."""
    node, shutdown, seconds = Node(), Impatient(), iter(range(0, 1000, 20))

    class Shorter(Broker):
        def ends(self) -> list[Any]:
            return [TopicPartition(HINTS.name, 0, 1)]

    remade = [message(hint("a"), at=0)]
    brokers = [Shorter(shutdown, [remade, [], [], []], highs=(9, 0)), Shorter(shutdown, [remade, []], highs=(1, 0))]
    HintReader(lambda: brokers.pop(0), node.inbox, shutdown, monotonic=lambda: float(next(seconds))).run()
    assert node.delivered == ["a"]


def test_an_unexpected_error_does_not_end_the_reading() -> None:
    node, shutdown = Node(), Impatient()

    class Odd(Broker):
        def partitions(self, topic: str) -> list[Any]:
            raise RuntimeError(topic)

    brokers = [Odd(shutdown, []), Broker(shutdown, [[message(hint("a"))]])]
    HintReader(lambda: brokers.pop(0), node.inbox, shutdown).run()
    assert node.delivered == ["a"]


def test_a_consumer_that_cannot_be_made_is_tried_again() -> None:
    node, shutdown = Node(), Impatient()
    attempts: list[tuple[bool, str]] = []

    def connect() -> Broker:
        attempts.append(reader.ready())
        if len(attempts) == 1:
            raise OSError("the certificate is being replaced")
        return Broker(shutdown, [[message(hint("a"))], []])

    reader = HintReader(connect, node.inbox, shutdown)
    reader.run()
    assert node.delivered == ["a"]
    assert not attempts[1][0]
    assert "the certificate is being replaced" in attempts[1][1]
