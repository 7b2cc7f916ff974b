"""Hints and outcomes are read from Kafka before anything is hinted."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicPartition
from tests.support.predictor.tunables import BUSY, tunable
from tests.support.runtime.kafka_record import Record

from kernelcast.predictor.settings import HintSettings
from kernelcast.predictor.tuning.hint_log import HintLog
from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.runtime.kafka.follow import QUIET_SECONDS, RETRY_SECONDS
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import Hint, Outcome, OutcomeState, to_event
from kernelcast.wire.topics import HINTS, OUTCOMES

HOUR_SECONDS = 3600
NOW_SECONDS = 1_800_000_000
NOW_NS = NOW_SECONDS * 1_000_000_000


def message(topic: str, offset: int, value: bytes | None, *, written_seconds: float = 0.0) -> Record:
    return Record((topic, 0, offset), value, round(written_seconds * 1_000))


class FakeReader:
    def __init__(self, *, exists: bool = True) -> None:
        self.exists = exists
        self.waiting: list[Record] = []
        self.compacted = 0
        self.reached: list[TopicPartition] = []

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, 0)] if self.exists else []

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, self.compacted + sum(message.topic() == partition.topic for message in self.waiting)

    def assign(self, partitions: Sequence[Any]) -> None:
        pass

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:  # noqa: ARG002  as a consumer
        taken, self.waiting = self.waiting[:1], self.waiting[1:]
        return taken, []

    def ends(self) -> list[TopicPartition]:
        reached, self.reached = self.reached, []
        return reached

    def close(self, timeout_seconds: float = 0.0) -> None:
        pass


class RejectedMessages:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def send(self, message: Any, error: Exception) -> None:  # noqa: ARG002  the signature of `DeadLetters.send`
        self.errors.append(error)


def hint_log(reader: FakeReader, rejected: RejectedMessages, now: list[float], book: HintBook | None = None) -> HintLog:
    book = book if book is not None else HintBook(HintSettings())
    orders = FakeReader(exists=False)
    return HintLog(reader, book, rejected, orders, clock_ns=lambda: NOW_NS, monotonic=lambda: now[0])


def hint_bytes() -> bytes:
    hint = Hint(hint_id="1", program="train", tunable="block", value="128", expires_at_ns=1)
    return encode_event(to_event(hint, source="/test", time_ns=0))


def test_the_log_has_caught_up_once_it_has_read_to_the_ends_seen_at_its_start() -> None:
    reader, rejected = FakeReader(), RejectedMessages()
    reader.waiting = [message(HINTS.name, 0, hint_bytes()), message(HINTS.name, 1, None)]
    read = hint_log(reader, rejected, [0.0])
    caught_up = []
    for _ in range(2):
        read.poll(0.0)
        caught_up.append(read.caught_up)
    assert caught_up == [False, True]
    assert not rejected.errors


def test_a_message_that_is_no_event_is_rejected_and_reading_goes_on() -> None:
    reader, rejected = FakeReader(), RejectedMessages()
    reader.waiting = [message(HINTS.name, 0, b"no event"), message(HINTS.name, 1, hint_bytes())]
    read = hint_log(reader, rejected, [0.0])
    read.poll(0.0)
    read.poll(0.0)
    assert read.caught_up
    assert len(rejected.errors) == 1


def test_missing_topics_are_looked_up_again_after_the_retry_time() -> None:
    reader, now = FakeReader(exists=False), [0.0]
    read = hint_log(reader, RejectedMessages(), now)
    read.poll(0.0)
    reader.exists = True
    caught_up = [read.caught_up]
    now[0] = RETRY_SECONDS
    read.poll(0.0)
    caught_up.append(read.caught_up)
    assert caught_up == [False, True]


def test_an_end_removed_by_compaction_counts_as_reached_after_the_quiet_time() -> None:
    reader, now = FakeReader(), [0.0]
    reader.compacted = 1
    read = hint_log(reader, RejectedMessages(), now)
    for _ in range(1000):
        read.poll(0.0)
    caught_up = [read.caught_up]
    now[0] = QUIET_SECONDS
    read.poll(0.0)
    caught_up.append(read.caught_up)
    assert caught_up == [False, True]


def test_messages_are_still_unread_while_kafka_replaces_a_broker() -> None:
    reader, now = FakeReader(), [0.0]
    reader.compacted = 1
    read = hint_log(reader, RejectedMessages(), now)
    read.poll(0.0)
    now[0] = 15.0  # 9 s until Kafka has replaced it, and librdkafka's next attempts
    read.poll(0.0)
    assert not read.caught_up


def test_an_end_that_kafka_reports_counts_at_once_and_is_not_kept() -> None:
    reader = FakeReader()
    reader.compacted = 1
    read = hint_log(reader, RejectedMessages(), [0.0])
    reader.reached = [TopicPartition(topic, 0, 1) for topic in (HINTS.name, OUTCOMES.name)]
    read.poll(0.0)
    assert read.caught_up
    assert not reader.ends(), "a consumer keeps its reports until they are asked for"


def test_a_restart_does_not_renew_the_cooldown_of_a_hint() -> None:
    hint = Hint(hint_id="1", program="train", tunable="block", value="128", device_model="A100", expires_at_ns=1)
    rolled_back = Outcome("1", "train", "block", OutcomeState.ROLLED_BACK)
    bodies = [encode_event(to_event(data, source="/test", time_ns=0)) for data in (hint, rolled_back)]
    reader = FakeReader()
    reader.waiting = [
        message(HINTS.name, 0, bodies[0], written_seconds=NOW_SECONDS - 25 * HOUR_SECONDS),
        message(OUTCOMES.name, 0, bodies[1], written_seconds=NOW_SECONDS - 25 * HOUR_SECONDS),
    ]
    book = HintBook(HintSettings(cooldown_seconds=24 * HOUR_SECONDS))
    read = hint_log(reader, RejectedMessages(), [0.0], book)
    while not read.caught_up:
        read.poll(0.0)
    assert [one.hint.value for one in book.propose([tunable("33")], BUSY, now_ns=NOW_NS)] == ["128"]


class CountingBook(HintBook):
    def __init__(self) -> None:
        super().__init__(HintSettings())
        self.learnt: list[str] = []

    def learn_outcome(self, outcome: Outcome, *, time_ns: int) -> None:
        self.learnt.append(outcome.hint_id)
        super().learn_outcome(outcome, time_ns=time_ns)


def test_an_outcome_that_was_written_twice_is_learnt_once() -> None:
    reader, book = FakeReader(), CountingBook()
    kept = Outcome("1", "train", "block", OutcomeState.KEPT)
    sent = [("/a", "e1"), ("/a", "e1"), ("/a", "e2"), ("/b", "e1")]
    values = [encode_event(to_event(kept, source=source, time_ns=0, event_id=one)) for source, one in sent]
    reader.waiting = [message(OUTCOMES.name, offset, value) for offset, value in enumerate(values)]
    read = hint_log(reader, RejectedMessages(), [0.0], book)
    for _ in sent:
        read.poll(0.0)
    assert book.learnt == ["1", "1", "1"], "another event is one with another id or another source"


class Lock:
    """A lock of the engine that says whether it is held."""

    held = False

    def __enter__(self) -> None:
        self.held = True

    def __exit__(self, *_error: object) -> None:
        self.held = False


class GuardedBook(HintBook):
    """A hint book that another thread reads while the lock is held."""

    def __init__(self, lock: Lock) -> None:
        super().__init__(HintSettings())
        self.lock = lock
        self.changed_without: list[str] = []

    def learn_hint(self, hint: Hint, *, time_ns: int = 0) -> None:
        if not self.lock.held:
            self.changed_without.append("hint")
        super().learn_hint(hint, time_ns=time_ns)

    def learn_outcome(self, outcome: Outcome, *, time_ns: int) -> None:
        if not self.lock.held:
            self.changed_without.append("outcome")
        super().learn_outcome(outcome, time_ns=time_ns)


def test_a_message_changes_the_book_only_while_the_cycle_cannot_read_it() -> None:
    lock = Lock()
    book, reader = GuardedBook(lock), FakeReader()
    outcome = Outcome(hint_id="1", program="train", tunable="block", state=OutcomeState.KEPT)
    reader.waiting = [
        message(HINTS.name, 0, hint_bytes()),
        message(OUTCOMES.name, 0, encode_event(to_event(outcome, source="/test", time_ns=0))),
    ]
    one = HintLog(reader, book, RejectedMessages(), FakeReader(exists=False), clock_ns=lambda: NOW_NS, lock=lock)
    one.poll(0.0)
    one.poll(0.0)

    assert book.changed_without == []
    assert not lock.held
