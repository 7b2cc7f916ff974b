"""The spool while Kafka is down: the messages that arrive are compared with the sent ones."""

import itertools
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kernelcast.exporter.delivery.spool.backlog import ENDLESS, WINDOW_MESSAGES, SpoolBacklog, SpoolLimits
from kernelcast.exporter.delivery.spool.counts import SpoolCounts
from kernelcast.exporter.delivery.spool.disk import REASONS, DiskSpool
from kernelcast.exporter.delivery.spool.pace import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, SendThrottle
from kernelcast.exporter.delivery.spool.pump import Pump
from kernelcast.runtime.kafka.producer import DeliveryListener, Undelivered
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import exporter as rows

TOPIC = "kernelcast.device"
OTHER = "kernelcast.kernels"
MEMORY_SECONDS = 30.0
BIG = 2**30


class FakeKafka:
    """A producer whose broker comes and goes.

    Attributes:
        log: What Kafka has, by topic.
        queue: What librdkafka holds.
    """

    def __init__(self) -> None:
        self.up = True
        self.log: dict[str, list[bytes]] = {TOPIC: [], OTHER: []}
        self.queue: list[tuple[str, bytes, DeliveryListener]] = []
        self.refused: set[bytes] = set()
        self.polled = 0

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: DeliveryListener | None = None
    ) -> None:
        assert key == b"node"
        assert value is not None
        assert on_delivery is not None
        self.queue.append((topic, value, on_delivery))

    def poll(self, _timeout_seconds: float) -> None:
        self.polled += 1
        if self.up:
            self.deliver(len(self.queue))

    def deliver(self, count: int) -> None:
        """Kafka accepts a number of messages, and confirms them."""
        for topic, value, answer in self._take(count):
            if value in self.refused:
                answer(Undelivered("too large", final=True))
            else:
                self.log[topic].append(value)
                answer(None)

    def give_back(self) -> None:
        """librdkafka gives up all that it holds, as when it is purged."""
        for _topic, _value, answer in self._take(len(self.queue)):
            answer(Undelivered("purged"))

    def close(self, _timeout_seconds: float) -> int:
        self.poll(0)
        left = len(self.queue)
        self.give_back()
        return left

    def _take(self, count: int) -> list[tuple[str, bytes, DeliveryListener]]:
        taken, self.queue = self.queue[:count], self.queue[count:]
        return taken


class Node:
    """An exporter's way to Kafka, on a clock that the test moves."""

    def __init__(self, directory: Path, *, max_bytes: int = BIG, memory_bytes: int = BIG, rate: float = BIG) -> None:
        self.directory, self.max_bytes, self.memory_bytes, self.rate = directory, max_bytes, memory_bytes, rate
        self.kafka, self.now, self.jitter = FakeKafka(), 1000.0, 0.0
        self.lost: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        self.registry = CollectorRegistry()
        counts = SpoolCounts(self.registry, self.max_bytes)
        disk = DiskSpool(self.directory, max_bytes=self.max_bytes, max_age_seconds=1e9, on_drop=counts.drop)
        disk.open([TOPIC, OTHER])
        self.disk = disk
        limits = SpoolLimits(self.memory_bytes, MEMORY_SECONDS, self.rate, lambda: self.jitter)
        self.backlog = SpoolBacklog(
            self.kafka, disk, limits, counts, clock=lambda: round(self.now * 1e9), monotonic=lambda: self.now
        )
        counts.show(self.backlog.on_disk)

    def crash(self) -> None:
        """`kill -9`: what librdkafka held is gone with the process."""
        self.kafka.queue.clear()
        self.disk.close()
        self.start()

    def send(self, *values: bytes, topic: str = TOPIC) -> None:
        for value in values:
            self.backlog.send(topic, key=b"node", value=value)

    def pass_seconds(self, seconds: float, *, step: float = 1.0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.backlog.poll(0)

    def metric(self, row: Metric, **labels: str) -> float:
        value = self.registry.get_sample_value(row.prometheus_name, labels)
        assert value is not None
        return value

    def dropped(self) -> dict[str, float]:
        counts = {reason: self.metric(rows.SPOOL_DROPPED, reason=reason) for reason in REASONS}
        return {reason: count for reason, count in counts.items() if count}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "spool")


def numbered(*numbers: int) -> list[bytes]:
    return [b"%06d" % number for number in numbers]


def test_while_kafka_confirms_nothing_touches_the_disk(node: Node) -> None:
    node.send(*numbered(1, 2))
    node.pass_seconds(2)
    node.send(*numbered(3))
    node.pass_seconds(2)
    assert node.kafka.log[TOPIC] == numbered(1, 2, 3)
    assert node.backlog.idle
    assert node.metric(rows.SPOOL_WRITTEN) == 0
    assert not list(node.directory.glob("*/*.segment"))


def test_what_kafka_leaves_unanswered_is_written_down_and_sent_once(node: Node) -> None:
    node.kafka.up = False
    node.send(*numbered(1, 2))
    node.pass_seconds(MEMORY_SECONDS - 5)
    assert node.metric(rows.SPOOL_MESSAGES) == 0
    node.pass_seconds(10)
    assert (node.metric(rows.SPOOL_MESSAGES), node.metric(rows.SPOOL_WRITTEN)) == (2, 2)
    node.send(*numbered(3))
    assert node.metric(rows.SPOOL_MESSAGES) == 3
    node.kafka.up = True
    node.pass_seconds(5)
    assert node.kafka.log[TOPIC] == numbered(1, 2, 3), "librdkafka had the first two all the time"
    assert (node.metric(rows.SPOOL_MESSAGES), node.metric(rows.SPOOL_REPLAYED)) == (0, 3)
    assert node.metric(rows.SPOOL_BYTES) == 0


def test_memory_that_is_full_goes_to_disk_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path, max_bytes=5_000_000, memory_bytes=1_000)
    node.kafka.up = False
    node.send(*[bytes(300)] * 10)
    assert node.metric(rows.SPOOL_MESSAGES) == 10
    assert 3000 < node.metric(rows.SPOOL_BYTES) < node.metric(rows.SPOOL_MAX_BYTES) == 5_000_000
    assert len(node.kafka.queue) <= 4


def test_what_librdkafka_holds_of_a_topic_is_bounded_even_where_the_disk_has_it_too(tmp_path: Path) -> None:
    node = Node(tmp_path, memory_bytes=1_000)
    node.kafka.up = False
    for number in range(40):
        node.send(b"d%02d" % number + b" " * 200, topic=TOPIC)
        node.send(b"d%02d" % (number + 40) + b" " * 200, topic=TOPIC)
        node.send(b"k%02d" % number + b" " * 200, topic=OTHER)
        node.pass_seconds(1)
    for topic in (TOPIC, OTHER):
        assert 0 < sum(len(value) for to, value, _ in node.kafka.queue if to == topic) <= 1_000 + 203
    node.kafka.up = True
    node.pass_seconds(60)
    assert [int(value[1:3]) for value in node.kafka.log[OTHER]] == list(range(40))
    assert len(node.kafka.log[TOPIC]) == 80


def test_new_messages_go_behind_those_that_wait(tmp_path: Path) -> None:
    node = Node(tmp_path, rate=1_000)
    node.kafka.up = False
    node.send(*numbered(*range(100)))
    node.pass_seconds(40)
    node.send(*numbered(*range(100, 200)))
    node.kafka.up = True
    for number in range(200, 260):
        node.send(*numbered(number))
        node.pass_seconds(1)
    assert node.backlog.idle
    assert node.kafka.log[TOPIC] == numbered(*range(260))


def test_a_topic_that_waits_holds_up_no_other(node: Node) -> None:
    node.send(*numbered(1))
    node.kafka.give_back()
    node.send(*numbered(2))
    node.send(*numbered(1), topic=OTHER)
    node.kafka.deliver(10)
    assert node.kafka.log == {TOPIC: [], OTHER: numbered(1)}


def test_messages_that_come_back_are_sent_again_in_order_and_ever_more_rarely(node: Node) -> None:
    node.kafka.up = False
    node.send(*numbered(1, 2, 3))
    attempts = []
    for _ in range(200):
        node.kafka.give_back()
        held = len(node.kafka.queue)
        node.pass_seconds(1)
        if node.kafka.queue and not held:
            attempts.append(node.now)
    gaps = [after - before for before, after in itertools.pairwise(attempts)]
    assert gaps[0] <= 4 * FIRST_RETRY_SECONDS
    assert LONGEST_RETRY_SECONDS <= max(gaps) <= LONGEST_RETRY_SECONDS + 3
    node.kafka.up = True
    node.pass_seconds(70)
    assert node.kafka.log[TOPIC] == numbered(1, 2, 3)
    assert node.dropped() == {}


def test_a_message_that_kafka_will_never_take_is_counted_and_holds_up_nothing(node: Node) -> None:
    node.kafka.refused = set(numbered(2))
    node.send(*numbered(1, 2, 3))
    node.pass_seconds(2)
    assert node.kafka.log[TOPIC] == numbered(1, 3)
    assert node.dropped() == {"refused": 1}
    assert node.backlog.idle


def test_a_message_on_disk_that_kafka_will_never_take_is_let_go(node: Node) -> None:
    node.kafka.up, node.kafka.refused = False, set(numbered(2))
    node.send(*numbered(1, 2, 3))
    node.pass_seconds(40)
    node.kafka.up = True
    node.pass_seconds(5)
    assert (node.kafka.log[TOPIC], node.dropped()) == (numbered(1, 3), {"refused": 1})
    assert node.backlog.idle


def test_over_the_bound_the_oldest_are_lost_and_counted_exactly(tmp_path: Path) -> None:
    node = Node(tmp_path, max_bytes=2**20)
    node.kafka.up = False
    sent = [b"%06d" % number + bytes(10_000) for number in range(400)]
    for value in sent:
        node.send(value)
        node.pass_seconds(1)
    node.kafka.up = True
    node.pass_seconds(60)
    arrived = node.kafka.log[TOPIC]
    missing = [index for index, value in enumerate(sent) if value not in set(arrived)]
    assert node.dropped() == {"bound": len(missing)}
    assert len(missing) > 250
    assert missing == list(range(missing[0], missing[0] + len(missing))), "one gap, behind what librdkafka held"
    assert arrived == [value for index, value in enumerate(sent) if index not in set(missing)]


def test_stopping_while_kafka_is_away_keeps_everything_for_the_next_start(node: Node) -> None:
    node.kafka.up = False
    node.send(*numbered(1, 2, 3))
    assert node.backlog.close(10) == 3
    node.start()
    node.send(*numbered(4))
    node.kafka.up = True
    node.pass_seconds(5)
    assert node.kafka.log[TOPIC] == numbered(1, 2, 3, 4)


def test_a_node_waits_before_it_replays_after_one_confirmed_message(node: Node) -> None:
    node.kafka.up = False
    node.send(*numbered(*range(10)))
    node.backlog.close(10)
    node.jitter = 20
    node.start()
    node.kafka.up = True
    node.pass_seconds(15)
    assert node.kafka.log[TOPIC] == numbered(0)
    node.pass_seconds(10)
    assert node.kafka.log[TOPIC] == numbered(*range(10))


def test_a_replay_keeps_to_its_rate(tmp_path: Path) -> None:
    node = Node(tmp_path, rate=10_000)
    node.kafka.up = False
    node.send(*[bytes(1_000)] * 100)
    node.backlog.close(10)
    node.start()
    node.kafka.up = True
    node.pass_seconds(5, step=0.1)
    assert 40 <= len(node.kafka.log[TOPIC]) <= 60
    node.pass_seconds(8, step=0.1)
    assert len(node.kafka.log[TOPIC]) == 100


def test_a_busy_node_catches_up_although_more_comes_in_than_the_rate() -> None:
    pace = SendThrottle(1_000, lambda: 0.0)
    pace.confirmed(0.0)
    waiting, now = 100_000, 0.0
    while waiting > 0:
        now += 1.0
        assert now < 200
        waiting += 5_000
        pace.granted(5_000)
        while waiting > 0 and pace.allows(now, in_flight=1):
            waiting -= 500
            pace.spent(500)


def test_no_more_than_a_window_of_the_disk_is_in_memory(node: Node) -> None:
    node.kafka.up = False
    node.send(*numbered(*range(3 * WINDOW_MESSAGES)))
    node.backlog.close(10)
    node.start()
    node.backlog.poll(0)
    assert len(node.kafka.queue) == 1, "one goes ahead"
    node.kafka.deliver(1)
    node.pass_seconds(5)
    assert len(node.kafka.queue) == WINDOW_MESSAGES


def test_the_pump_sleeps_while_there_is_nothing_to_do_and_wakes_for_a_message(node: Node) -> None:
    turn = threading.Event()  # not the backlog's: that is set until the pump has seen it
    with Pump(node.backlog):
        node.send(*numbered(1))
        for _ in range(10_000):
            if node.kafka.log[TOPIC]:
                break
            turn.wait(0.001)
    assert node.kafka.log[TOPIC] == numbered(1)
    assert node.kafka.polled < 10


def test_librdkafka_never_gives_up_by_itself() -> None:
    assert ENDLESS == {"message.timeout.ms": "0"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([TOPIC, OTHER]), st.integers(1, 30)),
        st.tuples(st.just("deliver"), st.just(""), st.integers(1, 40)),
        st.tuples(st.just("give_back"), st.just(""), st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 50)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
        st.tuples(st.just("crash"), st.just(""), st.just(0)),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([0, 500, BIG]))
def test_no_message_is_lost_in_any_schedule_and_firsts_arrive_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]], memory_bytes: int
) -> None:
    node = Node(tmp_path_factory.mktemp("spool"), memory_bytes=memory_bytes)
    sent: dict[str, list[bytes]] = {TOPIC: [], OTHER: []}
    at_risk: set[bytes] = set()
    for what, topic, count in steps:
        node.kafka.up = False
        if what == "send":
            values = numbered(*range(len(sent[topic]), len(sent[topic]) + count))
            sent[topic] += values
            node.send(*values, topic=topic)
        elif what == "deliver":
            node.kafka.deliver(count)
        elif what == "give_back":
            node.kafka.give_back()
        elif what == "wait":
            node.pass_seconds(count, step=5)
        elif what == "restart":
            node.backlog.close(1)
            node.start()
        else:
            in_memory = [f for way in node.backlog._queues.values() for f in way.flights.values() if f.number is None]
            at_risk |= {flight.record.value for flight in in_memory if flight.record.value is not None}
            node.crash()
    node.kafka.up = True
    node.pass_seconds(300, step=5)
    assert node.backlog.idle
    for topic, values in sent.items():
        firsts = list(dict.fromkeys(node.kafka.log[topic]))
        assert firsts == sorted(firsts)
        assert set(values) - set(firsts) <= (at_risk if memory_bytes else set())
    assert node.dropped() == {}
    node.disk.close()  # of each example: a thousand would need more files than a process may have open


def test_a_listener_hears_of_its_message_once_kafka_has_it_also_from_disk(node: Node) -> None:
    heard: list[tuple[bytes, Undelivered | None]] = []

    def send(value: bytes) -> None:
        node.backlog.send(TOPIC, key=b"node", value=value, on_delivery=lambda reason: heard.append((value, reason)))

    node.kafka.up = False
    send(b"early")
    node.pass_seconds(2 * MEMORY_SECONDS)
    send(b"on disk only")
    node.kafka.give_back()
    node.pass_seconds(1)
    assert heard == []
    node.kafka.up = True
    node.pass_seconds(10 * LONGEST_RETRY_SECONDS)
    assert node.kafka.log[TOPIC] == [b"early", b"on disk only"]
    assert heard == [(b"early", None), (b"on disk only", None)]


def test_a_listener_hears_of_a_message_that_is_refused_or_lost(tmp_path: Path) -> None:
    node = Node(tmp_path / "spool", max_bytes=4_000)
    heard: list[Undelivered | None] = []
    node.kafka.refused.add(b"bad")
    node.backlog.send(TOPIC, key=b"node", value=b"bad", on_delivery=heard.append)
    node.pass_seconds(1)
    assert [reason and reason.final for reason in heard] == [True]
    node.kafka.up = False
    node.send(b"first")
    node.pass_seconds(2 * MEMORY_SECONDS)
    node.backlog.send(TOPIC, key=b"node", value=b"x" * 100, on_delivery=heard.append)
    node.send(*(b"y" * 1_000 for _ in range(8)))
    node.pass_seconds(1)
    assert [reason and reason.final for reason in heard] == [True, False]
