"""Producers whose clocks are wrong: no point is dropped, and one beyond the tolerance is shown at its append time."""

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from tests.support.bridge.fleet import LAUNCHES, Site, values

from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel

P0, P1 = ("kernels", 0), ("kernels", 1)
DAY_SECONDS = 86_400
CLAMPED = "kernelcast_producer_clamped_points_total"
US = {"job": "kernelcast-exporter", "instance": "host-1"}


class Producer:
    """A process with a counter and a gauge, one point every 10 s."""

    def __init__(self, ahead_seconds: float = 0.0, *, stamped: bool = True) -> None:
        self.site = Site()
        self.site.clock.seconds = 10 * DAY_SECONDS
        self.ahead_seconds, self.count, self._stamped = ahead_seconds, 0, stamped
        self.began_ns = self._now_ns()
        self.site.kafka.assign(self.site.intake, P0, P1)
        self.site.intake.step()

    def write(self, *, times: int = 1, partition: int = 0) -> None:
        """Write points, and let time pass."""
        for _ in range(times):
            self.count += 1
            now_ns = self._now_ns()
            further: dict[str, Any] = {} if self._stamped else {"kind": TIMESTAMP_CREATE_TIME}
            samples = [
                Sample(kernel.LAUNCHES, (), now_ns, self.count, self.began_ns),
                Sample(kernel.PROBE_COVERAGE, (), now_ns, float(self.count)),
            ]
            append_ms = None if self._stamped else now_ns // 1_000_000
            self.site.export(partition, *samples, append_ms=append_ms, **further)
            self.site.read_all()
            self.site.run(10)

    def write_again(self, back: int) -> None:
        """Send an earlier message of partition 0 once more."""
        record = self.site.kafka.logs[P0][-back]
        now_ms = self.site.clock.now_ns() // 1_000_000
        self.site.kafka.write(*P0, record.body, now_ms)
        self.site.read_all()

    def restart(self) -> None:
        """Begin again at 0."""
        self.count, self.began_ns = 0, self._now_ns()

    def shown(self) -> tuple[list[float], list[float]]:
        """Values of the counter and of the gauge."""
        store = self.site.store
        return values(store, LAUNCHES), values(store, kernel.PROBE_COVERAGE.prometheus_name)

    def truth(self) -> tuple[list[float], list[float]]:
        return [self.count], [self.count]

    def _now_ns(self) -> int:
        return round((self.site.clock.seconds + self.ahead_seconds) * 1e9)


@pytest.mark.parametrize("ahead_seconds", [DAY_SECONDS, 11, 5, 0, -5, -DAY_SECONDS])
def test_the_newest_point_is_shown_whatever_the_clock_is(ahead_seconds: float) -> None:
    producer = Producer(ahead_seconds)
    for _ in range(40):
        producer.write()
        assert producer.shown() == producer.truth()
    producer.restart()
    producer.write()
    assert producer.shown() == producer.truth()


@pytest.mark.parametrize(("ahead_seconds", "count"), [(DAY_SECONDS, 6), (11, 6), (9, 0), (-DAY_SECONDS, 0)])
def test_points_beyond_the_tolerance_are_counted_by_producer(ahead_seconds: float, count: int) -> None:
    producer = Producer(ahead_seconds)
    producer.write(times=3)
    producer.site.run(2)
    assert (producer.site.own(CLAMPED, **US) or 0) == count
    assert producer.site.own(CLAMPED, job="other", instance="") == 0
    assert producer.site.own("kernelcast_bridge_discarded_points_total", cause="older") == 0


@pytest.mark.parametrize("ahead_seconds", [DAY_SECONDS, 11])
def test_a_clock_that_was_ahead_and_is_corrected_goes_on_with_the_next_point(ahead_seconds: float) -> None:
    producer = Producer(ahead_seconds)
    producer.write(times=3)
    producer.ahead_seconds = 0
    for _ in range(3):
        producer.write()
        assert producer.shown() == producer.truth()


def test_a_clock_that_was_behind_and_is_corrected_goes_on_with_the_next_point() -> None:
    producer = Producer(-DAY_SECONDS)
    producer.write(times=3)
    producer.ahead_seconds = 0
    producer.write()
    assert producer.shown() == producer.truth()


@pytest.mark.parametrize("ahead_seconds", [DAY_SECONDS, 0])
def test_a_message_that_is_sent_again_changes_nothing(ahead_seconds: float) -> None:
    producer = Producer(ahead_seconds)
    producer.write(times=5)
    producer.write_again(3)
    assert producer.shown() == producer.truth()


def test_a_message_from_before_a_clock_ran_ahead_changes_nothing_when_it_is_sent_again() -> None:
    producer = Producer()
    producer.write(times=3)
    producer.ahead_seconds = DAY_SECONDS
    producer.write()
    producer.write_again(2)
    assert producer.shown() == producer.truth()


@pytest.mark.parametrize("ahead_seconds", [DAY_SECONDS, 0])
def test_a_series_that_moves_to_another_partition_goes_on(ahead_seconds: float) -> None:
    producer = Producer(ahead_seconds)
    producer.write(times=3)
    producer.write(partition=1)
    assert producer.shown() == producer.truth()


@pytest.mark.parametrize("ahead_seconds", [DAY_SECONDS, 0, -DAY_SECONDS])
def test_in_a_topic_without_append_times_the_clock_of_the_bridge_counts(ahead_seconds: float) -> None:
    producer = Producer(ahead_seconds, stamped=False)
    for number in range(40):
        sample = Sample(kernel.PROBE_DROPPED, (), producer.site.clock.now_ns(), number + 1, 1)
        producer.site.export(1, sample, kind=TIMESTAMP_CREATE_TIME, instance="host-2")
        producer.write()
        assert producer.shown() == producer.truth()
        assert values(producer.site.store, kernel.PROBE_DROPPED.prometheus_name) == [number + 1]
    assert (producer.site.own(CLAMPED, **US) or 0) == (80 if ahead_seconds > 0 else 0)


def test_a_topic_without_append_times_is_read_again_at_the_times_of_its_messages() -> None:
    """Else a series that has ended would be back after each restart."""
    producer = Producer(stamped=False)
    producer.write(times=5)
    silent = producer.site
    silent.run(400)
    assert producer.shown() == ([], [])
    again = Site(kafka=silent.kafka, clock=silent.clock)
    again.kafka.reading.clear()
    again.kafka.assign(again.intake, P0, P1)
    again.read_all()
    again.run(2)
    assert values(again.store, LAUNCHES) == []
