from dataclasses import dataclass, field
from itertools import pairwise

from kernelcast.runtime.kafka.receiving import SMALL_BATCH_MESSAGES, PromptReceiver

AT_ONCE, POLL_SECONDS = 200, 0.05


@dataclass
class Queue:
    """Messages that are there already; a call for more waits until its time is up."""

    messages: list[int] = field(default_factory=list)
    now_seconds: float = 1_000.0
    waited_seconds: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_seconds

    def consume(self, num_messages: int, timeout: float) -> list[int]:
        taken, self.messages = self.messages[:num_messages], self.messages[num_messages:]
        waited = timeout if len(taken) < num_messages else 0.0
        self.now_seconds += waited
        self.waited_seconds.append(waited)
        return taken


def receiver() -> tuple[PromptReceiver, Queue]:
    queue = Queue()
    return PromptReceiver(queue.consume, queue.monotonic), queue


def test_what_is_there_after_a_pause_is_taken_without_waiting_for_a_full_batch() -> None:
    reading, queue = receiver()
    queue.messages = list(range(42))
    assert reading.consume(AT_ONCE, POLL_SECONDS) == list(range(42))
    assert queue.waited_seconds == [0.0] * 3


def test_messages_that_come_one_by_one_make_batches_at_least_a_time_out_apart() -> None:
    reading, queue = receiver()
    ended = []
    for number in range(3):
        queue.messages = [number]
        assert reading.consume(AT_ONCE, POLL_SECONDS) == [number]
        ended.append(queue.now_seconds)
    assert [round(later - earlier, 6) for earlier, later in pairwise(ended)] == [POLL_SECONDS] * 2


def test_a_backlog_is_read_in_full_batches_without_a_wait() -> None:
    reading, queue = receiver()
    queue.messages = list(range(AT_ONCE + SMALL_BATCH_MESSAGES))
    assert [len(reading.consume(AT_ONCE, POLL_SECONDS)) for _ in range(2)] == [AT_ONCE, SMALL_BATCH_MESSAGES]
    assert queue.waited_seconds == [0.0] * 6
    assert reading.consume(AT_ONCE, POLL_SECONDS) == []
    assert queue.waited_seconds[-1] == POLL_SECONDS


def test_a_backlog_whose_first_messages_made_a_small_batch_is_read_without_a_wait() -> None:
    reading, queue = receiver()
    queue.messages = [0]
    assert reading.consume(AT_ONCE, POLL_SECONDS) == [0]
    queue.messages = list(range(1, 43))
    assert reading.consume(AT_ONCE, POLL_SECONDS) == list(range(1, 43))
    assert queue.waited_seconds == [0.0] * 5


def test_a_batch_that_stays_small_grows_for_the_time_that_is_left_and_no_longer() -> None:
    reading, queue = receiver()
    queue.messages = [0]
    assert reading.consume(AT_ONCE, POLL_SECONDS) == [0]
    queue.now_seconds += 0.02
    queue.messages = list(range(1, SMALL_BATCH_MESSAGES))
    assert len(reading.consume(AT_ONCE, POLL_SECONDS)) == SMALL_BATCH_MESSAGES - 1
    assert round(queue.waited_seconds[-1], 6) == round(POLL_SECONDS - 0.02, 6)


def test_never_more_messages_come_than_were_asked_for() -> None:
    reading, queue = receiver()
    queue.messages = [1, 2]
    assert reading.consume(1, POLL_SECONDS) == [1]
