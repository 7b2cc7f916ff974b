"""State on its topic: written, and read by the next predictor."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.support.runtime.kafka_record import Record

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.measures import KafkaMeasures
from kernelcast.predictor.series.saved.parts import VERSION
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.state.own_state import PART_BYTES, OwnState
from kernelcast.predictor.state.partitions import Partitions
from kernelcast.predictor.state.state_topic import SnapshotStore
from kernelcast.wire.errors import BrokerError, WireError

SECOND_NS = 1_000_000_000
NOW = 1_800_000_000
PARTITION = ("kernelcast.device", 3)
FIRST_PART = b"predictor|group|kernelcast.device|3|0"
REWOUND = 70
SUBJECT = Subject("DCGM_FI_DEV_GPU_TEMP", Form.LEVEL, (("Hostname", "n1"), ("gpu", "0")))


class Topic:
    """The state's topic with one partition; a producer and a reader of it at once."""

    rewound = REWOUND

    def __init__(self) -> None:
        self.messages: list[Record] = []
        self.refused: set[str] = set()

    def send(self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: Any = None) -> None:
        assert topic == "kernelcast.state"
        assert key is not None
        failed = key.decode().split("|", 4)[-1] in self.refused
        if not failed:
            self.messages.append(Record((topic, 0, len(self.messages)), value, keyed=key))
        if on_delivery is not None:
            on_delivery("queue is full" if failed else None)

    def partitions(self, topic: str) -> list[Any]:
        return [TopicPartition(topic, 0)]

    def watermarks(self, partition: Any) -> tuple[int, int]:
        return (0, len(self.messages)) if partition.topic == "kernelcast.state" else (0, 500)

    def assign(self, partitions: Sequence[Any]) -> None:
        assert len(partitions) <= 1
        self.unread = list(self.messages)

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        assert timeout_seconds < 1
        read, self.unread = self.unread[:max_messages], self.unread[max_messages:]
        return read, []

    def ends(self) -> list[Any]:
        return []

    def close(self, timeout_seconds: float = 0) -> None: ...

    def offsets_for_time(self, partitions: Sequence[Any], time_ns: int) -> list[Any]:
        assert time_ns < NOW * SECOND_NS
        return [TopicPartition(one.topic, one.partition, self.rewound) for one in partitions]

    def seek(self, partition: Any) -> None:
        raise AssertionError(partition)

    def settled(self) -> bool:
        return True

    @property
    def newest(self) -> dict[bytes, bytes | None]:
        return {message.key() or b"": message.value() for message in self.messages}


class Predictor:
    """An engine with its partitions on a topic."""

    def __init__(self, topic: Topic, *, interval_seconds: float = 10.0) -> None:
        settings = PredictorSettings(interval_seconds=interval_seconds)
        self.measures = KafkaMeasures(CollectorRegistry())
        self.engine = Engine(settings, clock_ns=lambda: NOW * SECOND_NS)
        store = SnapshotStore("group", topic, lambda: topic)
        self.partitions = Partitions(
            settings, self.engine, store, self.measures, clock_ns=lambda: NOW * SECOND_NS, pause=lambda _: None
        )
        self.partitions.use(topic)

    def start(self) -> int:
        """The offset at which reading begins."""
        return int(self.partitions.assigned([TopicPartition(*PARTITION)])[0].offset)

    def read(self, offset: int, value: float, *, series: int = 1) -> None:
        """Write a value to some series, as if a message up to this offset had been read."""
        windows = self.engine.windows
        for number in range(series):
            subject = Subject(SUBJECT.metric, SUBJECT.form, (("Hostname", "n1"), ("gpu", str(number))))
            row = np.array([windows.admit(subject, owner=0)])
            time_ns = np.array([(NOW + offset) * SECOND_NS])
            windows.put_levels(row, time_ns, np.array([value]), now_seconds=0.0)
        self.engine.offsets[PARTITION] = offset

    @property
    def value(self) -> float:
        row = self.engine.windows.row(SUBJECT)
        assert row is not None
        return float(self.engine.windows.latest(np.array([row]))[0])


def test_the_next_predictor_has_the_series_and_reads_on_from_them() -> None:
    topic = Topic()
    before, after = Predictor(topic), Predictor(topic)
    assert before.start() == REWOUND
    before.read(100, 71.0)
    before.partitions.save(PARTITION)
    before.read(200, 72.0)
    before.partitions.save(PARTITION)
    assert after.start() == 200
    assert after.value == 72.0
    assert after.measures.restored._value.get() == 1


def test_the_past_is_read_again_where_series_may_be_missing() -> None:
    topic = Topic()
    before, after = Predictor(topic), Predictor(topic)
    before.start()
    before.read(100, 71.0, series=900)
    before.partitions.save(PARTITION)
    assert after.start() == REWOUND
    assert 48 <= after.measures.restored._value.get() < 900


def test_a_message_that_kafka_refused_is_sent_again() -> None:
    topic = Topic()
    before, after = Predictor(topic), Predictor(topic)
    before.start()
    before.read(100, 71.0)
    before.partitions.save(PARTITION)
    topic.refused = {"added|0|2"}
    before.read(200, 72.0)
    before.partitions.save(PARTITION)
    topic.refused = set()
    before.read(300, 73.0)
    before.partitions.save(PARTITION)
    assert after.start() == 300
    assert after.value == 73.0


def test_state_of_another_version_is_refused_in_one_line_and_the_past_is_read_again() -> None:
    topic = Topic()
    before, after = Predictor(topic), Predictor(topic)
    before.start()
    before.read(100, 71.0)
    before.partitions.save(PARTITION)
    topic.messages = [
        Record(("kernelcast.state", 0, number), value[:4] + struct.pack("<H", VERSION + 1) + value[6:], keyed=key)
        for number, (key, value) in enumerate(topic.newest.items())
        if value is not None
    ]
    with capture_logs() as lines:
        assert after.start() == REWOUND
    (line,) = (line for line in lines if line["log_level"] == "warning")
    assert line["reason"] == (
        f"state part is b'KCPW' version {VERSION + 1}; expected b'KCPW' version {VERSION}; "
        "its series are read again from Kafka"
    )
    assert after.measures.snapshot_failures.labels("unusable")._value.get() == 1
    after.read(200, 72.0)
    after.partitions.save(PARTITION)
    assert Predictor(topic).start() == 200


def test_state_on_another_grid_is_counted_and_the_past_is_read_again() -> None:
    topic = Topic()
    before, after = Predictor(topic), Predictor(topic, interval_seconds=15.0)
    before.start()
    before.read(100, 71.0)
    before.partitions.save(PARTITION)
    assert after.start() == REWOUND
    assert after.measures.snapshot_failures.labels("other_grid")._value.get() == 1


def test_without_a_rewound_offset_reading_begins_at_the_beginning() -> None:
    topic = Topic()
    topic.rewound = OFFSET_BEGINNING
    assert Predictor(topic).start() == OFFSET_BEGINNING


def test_a_saved_state_is_restored_although_kafka_does_not_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    before, after = Predictor(topic), Predictor(topic)
    before.start()
    before.read(100, 71.0)
    before.partitions.save(PARTITION)
    answers = iter([BrokerError("no leader"), BrokerError("no leader")])

    def watermarks(partition: Any) -> tuple[int, int]:
        for error in answers:
            raise error
        return Topic.watermarks(topic, partition)

    monkeypatch.setattr(topic, "watermarks", watermarks)
    assert after.start() == 100
    assert after.value == 71.0


def test_a_member_that_has_given_its_partitions_back_has_no_lag() -> None:
    topic = Topic()
    predictor = Predictor(topic)
    lag = predictor.measures.lag.labels(PARTITION[0])
    predictor.start()
    predictor.partitions.watch_lag()
    assert lag._value.get() == 500 - REWOUND
    predictor.partitions.revoked([TopicPartition(*PARTITION)], lost=True)
    predictor.partitions.watch_lag()
    assert lag._value.get() == 0


def scores_of(topic: Topic, client: str = "a") -> OwnState:
    return OwnState("scores", "group", client, topic, lambda: topic)


def test_the_scores_of_a_predictor_come_back_whole_and_alone() -> None:
    topic, state = Topic(), bytes(range(256)) * 4096
    assert scores_of(topic).read() is None
    assert scores_of(topic).write(state) == -(-len(state) // PART_BYTES) > 1
    scores_of(topic, "b").write(b"other")

    assert scores_of(topic).read() == state
    scores_of(topic).write(b"shorter now")
    assert scores_of(topic).read() == b"shorter now"


def test_scores_of_which_a_part_is_of_another_state_are_not_used() -> None:
    topic, state = Topic(), bytes(range(256)) * 4096
    scores_of(topic).write(state)
    key = b"predictor-scores|group|a|1"
    value = topic.newest[key]
    assert value is not None
    topic.send("kernelcast.state", key=key, value=value[:-1] + b"x")

    with pytest.raises(WireError, match="3 parts that do not belong together"):
        scores_of(topic).read()
