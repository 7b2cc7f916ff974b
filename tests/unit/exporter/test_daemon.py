from collections.abc import Callable, Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kernelcast.exporter.daemon import STUCK_SECONDS, Daemon, DaemonParts
from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.exposition import IntervalExposition
from kernelcast.exporter.hints.outcomes import OutcomeRelay
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.schedule import Deadlines, Lateness, phase_of
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals import snapshot
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.energy import GpuEnergy, GpuKey
from kernelcast.exporter.totals.report import ProcessReport, SourceBatch
from kernelcast.runtime.kafka.producer import DeliveryListener, Undelivered
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import SourceError
from kernelcast.wire.events import Outcome, OutcomeState, outcome_from
from kernelcast.wire.frames import KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process

DEVICE = Device("node1", "GPU-1")


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Node:
    """A source, a producer and a source of outcomes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None]] = []
        self.waiting: list[ReceivedOutcome] = []
        self.listeners: list[DeliveryListener] = []
        self.confirmed: list[str] = []
        self.fails = False
        self.launches = 0

    def poll(self, _now_ns: int) -> SourceBatch:
        if self.fails:
            raise SourceError("the socket is gone")
        totals = DurationTotals()
        totals.observe(1_000, self.launches)
        row = KernelRow(1, self.launches, totals)
        return SourceBatch((ProcessReport(Process("train", "n", 1), DEVICE, (KernelName(1, "gemm"),), (row,)),))

    def close(self) -> None:
        """Nothing is held."""

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: DeliveryListener | None = None
    ) -> None:
        self.sent.append((topic, key, value))
        if on_delivery is not None:
            self.listeners.append(on_delivery)

    def confirm(self, outcomes: Iterable[ReceivedOutcome]) -> None:
        self.confirmed += [one.event_id for one in outcomes]

    def outcomes(self) -> list[ReceivedOutcome]:
        found, self.waiting = self.waiting, []
        return found


def received(outcome: Outcome, event_id: str = "e1") -> ReceivedOutcome:
    return ReceivedOutcome(outcome, event_id, "n")


class Assembled:
    """A daemon on doubles."""

    def __init__(self, *, state: StateFile | None = None, interval_seconds: float = 10.0) -> None:
        self.node, self.clock, self.registry = Node(), Clock(), CollectorRegistry()
        self.node.launches = 1
        self.kafka: tuple[bool, str] = (True, "")
        aggregator = Aggregator()
        counts = Instruments(self.registry)
        outcomes = OutcomeRelay(self.node, aggregator, self.node, hostname="node1", count=counts.outcome)
        self.parts = DaemonParts(
            pipeline=Pipeline(
                [self.node],
                aggregator,
                SamplePublisher(self.node),
                save_state=state.save if state is not None else None,
                relay_outcomes=outcomes.relay,
            ),
            aggregator=aggregator,
            exposition=IntervalExposition(self.registry),
            counts=counts,
            state=state,
            kafka_ready=lambda: self.kafka,
        )
        self.daemon = Daemon(
            self.parts,
            interval_seconds=interval_seconds,
            clock=lambda: round(self.clock.seconds * 1e9),
            monotonic=self.clock,
        )

    def metric(self, row: Any, **labels: str) -> float | None:
        return self.registry.get_sample_value(row.prometheus_name, labels)


class Ending(Shutdown):
    """Advances the clock instead of waiting, and ends after a number of intervals."""

    def __init__(self, clock: Clock, intervals: int, at_each: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.clock, self.left, self.at_each = clock, intervals, at_each
        self.waits: list[float] = []

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self.waits.append(timeout_seconds or 0.0)
        self.clock.seconds += timeout_seconds or 0.0
        self.at_each()
        self.left -= 1
        if self.left < 0:
            self.request()
        return self.requested


def test_deadlines_do_not_move_however_long_an_interval_takes() -> None:
    clock = Clock()
    schedule = Deadlines(10, clock=clock)
    assert schedule.wait_seconds() == 0
    assert schedule.begin() == Lateness(0, 0)
    clock.seconds += 3
    assert schedule.wait_seconds() == 7
    clock.seconds += 7.5
    assert schedule.begin() == Lateness(0.5, 0)
    assert schedule.wait_seconds() == 9.5


def test_deadlines_that_passed_are_left_out_and_counted() -> None:
    clock = Clock()
    schedule = Deadlines(10, clock=clock)
    schedule.begin()
    clock.seconds += 35
    assert schedule.begin() == Lateness(25, 2)
    assert schedule.wait_seconds() == 5


@pytest.mark.parametrize("started", [1_000.0, 1_003.0, 1_004.5, 1_009.9])
def test_a_host_samples_at_its_own_moment_of_every_interval(started: float) -> None:
    clock = Clock()
    schedule = Deadlines(10, clock=clock, phase=0.25, unix=lambda: started + clock.seconds - 100)
    schedule.begin()
    first = schedule.wait_seconds()
    assert 5 <= first <= 15, "the first gap is never short, as rates are made of it"
    assert (started + first) % 10 == pytest.approx(2.5)
    clock.seconds += first
    assert schedule.begin() == Lateness(0, 0)
    assert schedule.wait_seconds() == pytest.approx(10)
    schedule.change(4)
    clock.seconds += schedule.wait_seconds()
    schedule.begin()
    clock.seconds += schedule.wait_seconds()
    assert (started + clock.seconds - 100) % 4 == pytest.approx(1)


def test_hosts_have_moments_of_their_own_that_stay() -> None:
    moments = sorted(phase_of(f"node-{number}") for number in range(1_000))
    assert phase_of("node-7") == phase_of("node-7")
    assert all(0 <= moment < 1 for moment in moments)
    by_tenth = [sum(tenth / 10 <= moment < (tenth + 1) / 10 for moment in moments) for tenth in range(10)]
    assert min(by_tenth) > 50


def test_a_new_interval_counts_from_the_last_deadline() -> None:
    clock = Clock()
    schedule = Deadlines(10, clock=clock)
    schedule.begin()
    schedule.change(2)
    assert schedule.wait_seconds() == 2


def test_the_daemon_samples_at_each_deadline_and_once_more_at_the_end() -> None:
    made = Assembled()
    shutdown = Ending(made.clock, 3)
    made.daemon.run(shutdown)
    assert shutdown.waits[:3] == [0, 10, 10]
    assert made.metric(rows.TICKS) == 4
    assert made.metric(rows.TICK_LATENESS) is not None
    assert len(made.node.sent) == 4


def test_reports_after_the_last_deadline_are_published_before_the_end() -> None:
    made = Assembled()
    made.daemon.run(Ending(made.clock, 1, lambda: setattr(made.node, "launches", made.node.launches + 1)))
    assert made.parts.aggregator.counts.launches == made.node.launches


def test_the_end_is_the_time_to_keep_what_grows_all_the_time(tmp_path: Any) -> None:
    made = Assembled(state=StateFile(tmp_path))
    key = GpuKey("node1", "GPU-1", "")
    made.parts.aggregator.energy.gpus[key] = GpuEnergy("0", 1, 2, 3)
    made.daemon.run(Ending(made.clock, 1))
    again = Aggregator()
    assert StateFile(tmp_path).load(again)
    assert again.energy.gpus == {key: GpuEnergy("0", 1, 2, 3)}


def test_a_shorter_interval_skips_and_misses_no_deadline_of_the_time_before_it() -> None:
    clock = Clock()
    schedule = Deadlines(600, clock=clock)
    schedule.begin()
    clock.seconds += 500
    schedule.change(10)
    assert schedule.wait_seconds() == 0
    assert schedule.begin() == Lateness(0, 0)
    assert schedule.wait_seconds() == 10


def test_a_source_that_fails_costs_an_interval_and_is_logged() -> None:
    made = Assembled()
    made.node.fails = True
    made.daemon.interval()
    assert made.daemon.ready() == (False, "the socket is gone")
    assert made.metric(rows.TICK_ERRORS) == 1
    made.node.fails = False
    made.daemon.interval()
    assert made.daemon.ready() == (True, "")


def test_it_is_not_ready_before_its_first_interval_nor_while_kafka_is_away() -> None:
    made = Assembled()
    assert made.daemon.ready()[0] is False
    made.daemon.interval()
    made.kafka = (False, "no broker of kafka:9092 answers")
    assert made.daemon.ready() == (False, "no broker of kafka:9092 answers")
    assert made.daemon.healthy()[0]


def test_a_loop_that_has_stopped_is_not_healthy() -> None:
    made = Assembled(interval_seconds=1)
    made.daemon.interval()
    made.clock.seconds += STUCK_SECONDS
    assert made.daemon.healthy()[0]
    made.clock.seconds += 1
    healthy, reason = made.daemon.healthy()
    assert not healthy
    assert "31 s; the limit is 30 s" in reason


def test_its_own_metrics_show_its_contents_and_start_at_zero(tmp_path: Any) -> None:
    made = Assembled(state=StateFile(tmp_path))
    assert made.metric(rows.TICKS) == 0
    for outcome in ("delivered", "elsewhere", "expired", "superseded", "withdrawn", "invalid"):
        assert made.metric(rows.HINTS, outcome=outcome) == 0
    assert made.metric(rows.NVML_ERRORS, call="nvmlDeviceGetPowerUsage") == 0
    made.daemon.interval()
    made.daemon.interval()
    assert made.metric(rows.KERNELS, state="admitted") == 1
    assert made.metric(rows.PROGRAMS) == 1
    assert made.metric(rows.STATE_SAVES) == 1
    assert made.metric(rows.TOTALS_IGNORED, reason="fallen") == 0
    assert (made.metric(rows.POINTS) or 0) > 0


def test_outcomes_reach_kafka_and_the_programs_series() -> None:
    made = Assembled()
    made.daemon.interval()
    outcome = Outcome("hint-1", "train", "block", OutcomeState.KEPT, measured_ratio=0.9, hostname="node1", uuid="GPU-1")
    other = Outcome("hint-2", "unknown", "block", OutcomeState.EXPIRED)
    made.node.waiting = [received(outcome), received(other, "e2")]
    made.daemon.interval()
    events = [(key, value) for topic, key, value in made.node.sent if topic == "kernelcast.outcomes"]
    assert [key for key, _ in events] == [b"hint-1", b"hint-2"]
    event = decode_event(events[0][1] or b"")
    assert event["source"] == "/kernelcast/exporter/node1"
    assert outcome_from(event) == outcome
    assert event["id"] == "e1", "readers recognise a repeat by it"
    assert made.metric(rows.OUTCOMES, outcome="published") == 1
    assert made.metric(rows.OUTCOMES, outcome="unmatched") == 1


def test_an_outcome_that_comes_with_a_programs_first_report_counts_in_its_series() -> None:
    made = Assembled()
    made.node.waiting = [received(Outcome("hint-1", "train", "block", OutcomeState.REJECTED))]
    made.daemon.interval()
    (member,) = made.parts.aggregator.members.values()
    assert member.series.outcomes == {("block", "rejected"): 1}
    assert made.metric(rows.OUTCOMES, outcome="unmatched") == 0


def test_a_repeated_outcome_counts_once_also_after_a_restart_from_the_saved_state() -> None:
    made = Assembled()
    outcome = Outcome("hint-1", "train", "block", OutcomeState.KEPT)
    made.node.waiting = [received(outcome), received(outcome), received(outcome, "e2")]
    made.daemon.interval()
    stored = snapshot.take(made.parts.aggregator)
    later = Aggregator()
    snapshot.restore(later, stored)
    later.outcome(outcome, "e1")
    (member,) = later.members.values()
    assert member.series.outcomes == {("block", "kept"): 2}


def test_an_outcome_is_confirmed_after_kafka_has_acknowledged_it_and_at_once_if_it_comes_again() -> None:
    made = Assembled()
    made.node.waiting = [received(Outcome("hint-1", "train", "block", OutcomeState.KEPT))]
    again = list(made.node.waiting)
    made.daemon.interval()
    made.node.waiting = list(again)
    made.daemon.interval()
    assert (made.node.confirmed, len(made.node.listeners)) == ([], 1), "Kafka has not answered; one message is enough"
    made.node.listeners.pop()(None)
    assert made.node.confirmed == [], "the counts on disk may not include it"
    made.daemon.interval()
    assert made.node.confirmed == ["e1"]
    made.node.waiting = list(again)
    made.daemon.interval()
    assert (made.node.confirmed, made.node.listeners) == (["e1", "e1"], [])


def test_an_outcome_that_kafka_did_not_take_is_written_again_and_one_refused_for_good_is_confirmed() -> None:
    made = Assembled()
    made.node.waiting = [received(Outcome("hint-1", "train", "block", OutcomeState.KEPT))]
    made.daemon.interval()
    made.node.listeners.pop()(Undelivered("timed out"))
    made.daemon.interval()
    assert (made.node.confirmed, len(made.node.listeners)) == ([], 1)
    made.node.listeners.pop()(Undelivered("too large", final=True))
    made.daemon.interval()
    assert (made.node.confirmed, made.node.listeners) == (["e1"], [])
    (member,) = made.parts.aggregator.members.values()
    assert member.series.outcomes == {("block", "kept"): 1}


def test_an_outcome_too_long_for_an_event_is_dropped_and_counted() -> None:
    made = Assembled()
    too_long = Outcome("hint-1", "train", "block", OutcomeState.REJECTED, reason="x" * 100_000)
    made.node.waiting = [received(too_long)]
    made.daemon.interval()
    assert made.metric(rows.OUTCOMES, outcome="dropped") == 1
    assert not [topic for topic, _, _ in made.node.sent if topic == "kernelcast.outcomes"]
    made.daemon.interval()
    assert made.node.confirmed == ["e1"], "sending it again would change nothing"


class Notified:
    """A daemon with a watchdog of 40 s and an interval of 2 s, and its notifications to systemd."""

    def __init__(self, interval_seconds: float = 2.0) -> None:
        self.assembled = Assembled()
        self.sent: list[str] = []
        clock = self.assembled.clock
        self.daemon = Daemon(
            self.assembled.parts,
            interval_seconds=interval_seconds,
            monotonic=clock,
            manager=ServiceManager(
                lambda datagram: self.sent.append(datagram.decode()), watchdog_seconds=40.0, clock=clock
            ),
        )

    def run(self, waits: int, at_each: Callable[[], None] = lambda: None) -> list[str]:
        self.daemon.run(Ending(self.assembled.clock, waits, at_each))
        return self.sent


def test_systemd_hears_that_the_daemon_is_ready_after_its_first_complete_interval() -> None:
    notified = Notified()
    notified.assembled.node.fails = True

    def mend() -> None:
        if notified.assembled.clock.seconds >= 110:
            notified.assembled.node.fails = False

    sent = notified.run(8, mend)
    assert notified.assembled.metric(rows.TICK_ERRORS) == 5
    assert sent[0] == "READY=1\nWATCHDOG=1"
    assert [note for note in sent if "READY" in note] == sent[:1]


def test_the_watchdog_is_fed_while_intervals_complete_and_while_a_long_one_is_awaited() -> None:
    for interval_seconds, waits in ((2.0, 50), (100.0, 10)):
        notified = Notified(interval_seconds)
        began = notified.assembled.clock.seconds
        sent = notified.run(waits)
        fed = sum("WATCHDOG=1" in note for note in sent)
        assert fed >= (notified.assembled.clock.seconds - began) / 20, "at least twice a period"


def test_an_interval_that_hangs_ends_the_notes() -> None:
    notified = Notified()
    notified.run(3)
    notified.sent.clear()
    poll = notified.assembled.node.poll

    def hang(_now_ns: int) -> SourceBatch:
        notified.assembled.clock.seconds += 3600
        assert notified.sent == [], "nothing was sent while it hung"
        return poll(_now_ns)

    notified.assembled.node.poll = hang  # type: ignore[method-assign]
    notified.daemon.interval()
    assert notified.sent == []


def test_systemd_hears_why_kafka_is_not_ready_and_that_the_daemon_stops() -> None:
    notified = Notified()
    notified.assembled.kafka = (False, "no broker answers")
    sent = notified.run(3)
    assert "STATUS=not ready: no broker answers" in sent
    assert sent[-1] == "STOPPING=1"


def test_deadlines_that_passed_before_an_interval_that_fails_are_counted() -> None:
    made = Assembled()
    made.daemon.interval()
    made.clock.seconds += 35
    made.node.fails = True
    made.daemon.interval()
    assert made.metric(rows.TICKS_MISSED) == 2
    made.node.fails = False
    made.clock.seconds += 10
    made.daemon.interval()
    assert made.metric(rows.TICKS_MISSED) == 2
