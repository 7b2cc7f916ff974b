"""Partitions that a consumer reads no further: what counts as standing still, and the steps that follow."""

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from kernelcast.runtime.kafka.queries import answered_ends
from kernelcast.runtime.kafka.stalls import (
    EXIT_PAUSE_SECONDS,
    FAILED_SECONDS,
    REPLACE_PAUSE_SECONDS,
    REPLACE_SECONDS,
    SEEK_SECONDS,
    UNCONFIRMED_SECONDS,
    StallDetector,
)

KEY, OTHER = ("samples", 0), ("samples", 1)


class Run:
    """A consumer that polls twice a second, and Kafka's answers every five seconds."""

    def __init__(self) -> None:
        self.detector = StallDetector(now_seconds=0.0)
        self.now_seconds = 0.0
        self.ends = {KEY: 50, OTHER: 50}
        self.answers = self.drained = True
        self.detector.assigned({KEY: 40, OTHER: 50}, now_seconds=0.0)

    def polls(self, seconds: float) -> Iterator[float]:
        """Poll for some seconds; yields the time after each poll."""
        until_seconds = self.now_seconds + seconds
        while self.now_seconds < until_seconds:
            if self.answers and self.now_seconds % 5 == 0:
                self.detector.answered(self.ends, asked_seconds=self.now_seconds - 0.1, now_seconds=self.now_seconds)
            self.detector.tick(self.now_seconds, drained=self.drained)
            yield self.now_seconds
            self.now_seconds += 0.5

    def wait(self, seconds: float) -> None:
        """Poll for some seconds."""
        for _ in self.polls(seconds):
            pass

    def steps(self, seconds: float) -> list[tuple[str, float]]:
        """Poll for some seconds; returns the steps and when they were due."""
        taken = list[tuple[str, float]]()
        for now_seconds in self.polls(seconds):
            taken += [("seek", now_seconds) for _ in self.detector.take_seeks()]
            taken += [("replace", now_seconds)] * self.detector.take_replacement(now_seconds)
            taken += [("failed", now_seconds) for _ in self.detector.take_failed()]
        return taken


def test_a_partition_that_stands_still_is_sought_then_the_client_is_replaced_then_it_has_failed() -> None:
    assert Run().steps(FAILED_SECONDS + 1) == [
        ("seek", SEEK_SECONDS),
        ("replace", REPLACE_SECONDS),
        ("failed", FAILED_SECONDS),
    ]


def test_the_client_is_replaced_again_after_a_pause_that_doubles_up_to_a_limit() -> None:
    replaced = [seconds for step, seconds in Run().steps(3600) if step == "replace"]
    assert replaced[0] == REPLACE_SECONDS
    assert [after - before for before, after in pairwise(replaced)][:7] == [20, 40, 80, 160, 320, 600, 600]
    assert replaced[1] - replaced[0] == REPLACE_PAUSE_SECONDS


def test_a_request_that_has_timed_out_is_no_answer() -> None:
    ends: dict[TopicPartition, Future[Any]] = {TopicPartition("samples", number): Future() for number in range(3)}
    told, timed_out, failed = ends.values()
    told.set_result(SimpleNamespace(offset=7))
    timed_out.set_result(SimpleNamespace(offset=-1001))
    failed.set_exception(KafkaException("no leader"))
    assert answered_ends(ends) == {("samples", 0): 7}


def test_in_an_outage_the_clock_stands_still() -> None:
    run = Run()
    run.wait(5)
    run.answers = False
    assert run.steps(600) == [("seek", SEEK_SECONDS)]  # the last answer is 10 s old at most
    run.answers = True
    assert run.steps(30)[0][0] == "replace"


def test_messages_ends_and_errors_are_progress() -> None:
    for position in (41, 40, None):
        run = Run()
        run.wait(SEEK_SECONDS - 1)
        run.detector.moved(KEY, position, now_seconds=run.now_seconds)
        assert run.steps(SEEK_SECONDS - 1) == []


def test_a_control_record_behind_the_last_message_is_no_lag_once_its_end_is_reported() -> None:
    run = Run()
    run.detector.moved(KEY, 49, now_seconds=run.now_seconds)
    run.detector.moved(KEY, 50, now_seconds=run.now_seconds)
    assert run.steps(120) == []


def test_paused_partitions_and_fetched_messages_that_wait_do_not_count() -> None:
    paused, busy = Run(), Run()
    paused.detector.pause([KEY], paused=True)
    busy.drained = False
    assert paused.steps(120) == busy.steps(120) == []
    paused.detector.pause([KEY], paused=False)
    assert paused.steps(SEEK_SECONDS + 1) != []


def test_time_in_which_the_process_was_suspended_counts_as_a_second() -> None:
    run = Run()
    run.wait(2)
    run.now_seconds += 3600
    assert run.steps(SEEK_SECONDS - 3.5) == []


def test_a_log_that_ends_before_the_position_is_another_one_and_is_read_from_its_beginning() -> None:
    run = Run()
    run.ends[KEY] = 7
    for _ in run.polls(SEEK_SECONDS + 1):
        if sought := run.detector.take_seeks():
            assert sought == {KEY: -2}
            return
    raise AssertionError("not sought")


def test_an_end_that_was_asked_before_the_last_message_shows_no_other_log() -> None:
    run = Run()
    run.detector.moved(KEY, 60, now_seconds=1.0)
    run.detector.answered({KEY: 50}, asked_seconds=0.5, now_seconds=1.5)
    run.answers = False
    assert run.steps(20) == []


def test_a_process_ends_only_if_nothing_moves_and_not_soon_after_its_start() -> None:
    run = Run()
    run.steps(EXIT_PAUSE_SECONDS - 1)
    assert not run.detector.take_end(run.now_seconds)
    run.steps(2)
    assert run.detector.take_end(run.now_seconds)
    run.steps(EXIT_PAUSE_SECONDS + 1)
    run.detector.moved(OTHER, 51, now_seconds=run.now_seconds)
    assert not run.detector.take_end(run.now_seconds)


def test_a_member_that_its_group_does_not_answer_gets_a_new_client_but_not_in_an_outage() -> None:
    run = Run()
    run.detector.removed([KEY, OTHER])
    run.detector.unconfirmed()
    run.answers = False
    assert run.steps(300) == []
    run.answers = True
    run.wait(5 - run.now_seconds % 5)
    (step, seconds) = run.steps(60)[0]
    assert (step, seconds - 300) == ("replace", UNCONFIRMED_SECONDS - 0.5)  # the first poll behind the answer counts


def test_a_member_that_its_group_has_answered_keeps_its_client() -> None:
    run = Run()
    run.detector.removed([KEY, OTHER])
    run.detector.unconfirmed()
    run.wait(UNCONFIRMED_SECONDS - 1)
    run.detector.confirmed()
    assert run.steps(300) == []
    assert run.detector.is_confirmed


def test_a_failed_partition_that_is_read_again_or_given_up_is_reported_once() -> None:
    run = Run()
    run.steps(FAILED_SECONDS + 1)
    assert run.detector.moved(KEY, 41, now_seconds=run.now_seconds)
    assert not run.detector.moved(KEY, 42, now_seconds=run.now_seconds)
    assert run.detector.removed([KEY, OTHER]) == []
