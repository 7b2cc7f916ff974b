"""A cycle with a message or a finding that cannot be used still writes everything else."""

from threading import Event
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.support.predictor.finding_candidates import START_NS, candidate
from tests.support.predictor.finding_log import Sent, log
from tests.unit.predictor.test_engine import Clock, engine, feed, kernel_and_variant

from kernelcast.columnar import Sample
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.cycle_loop import CycleLoop
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.kafka_outputs import KafkaOutputs
from kernelcast.predictor.measures import KafkaMeasures
from kernelcast.predictor.publish import ForecastPublisher
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.topic_logs import TopicLogs
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.events import Hint, hint_from
from kernelcast.wire.identity import labels
from kernelcast.wire.topics import FINDINGS, HINTS


class Loop:
    """A loop of cycles over an engine whose every cycle finds one candidate; collects what it would send."""

    def __init__(self, settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.sent, self.registry = Clock(), Sent(), CollectorRegistry()
        self.engine = engine(settings, self.clock)
        found = CycleReport(time_ns=START_NS, watched=1, candidates=[candidate()])
        monkeypatch.setattr(self.engine, "run_cycle", lambda _accepted: found)
        rest: Any = Quiet()
        self.saved = SavedScores(self.engine)
        measures = KafkaMeasures(self.registry)
        self.publisher = ForecastPublisher(settings, self.sent, clock_ns=self.clock)
        logs = TopicLogs(log(self.sent, CollectorRegistry()), rest, rest, cast("Any", self.saved), rest)
        outputs = KafkaOutputs(self.engine, self.publisher, logs, rest, measures)
        self.loop = CycleLoop(settings, self.engine, outputs, measures=measures)
        for _ in range(2):
            feed(self.engine, kernel_and_variant(self.clock))
            self.clock.second += 1

    def report(self, program: str, value: str, **more: str) -> None:
        words = {"program": program, "tunable": "block", "kind": "block_size", "value": value, "allowed": "128,256"}
        feed(self.engine, [Sample(kernel.TUNABLE_INFO, labels(**{**words, **more}), self.clock(), 1)])

    def hints(self) -> list[Hint]:
        return [hint_from(decode_event(value or b"")) for topic, _, value in self.sent.messages if topic == HINTS.name]

    def findings(self) -> int:
        return sum(topic == FINDINGS.name for topic, _, _ in self.sent.messages)


class Quiet:
    """Logs, states and partitions in which nothing happens."""

    caught_up = True
    held = ()

    def ready(self) -> tuple[bool, str]:
        return True, ""

    def write(self, _state: bytes = b"") -> int:
        return 0

    def read(self) -> None:
        return None


class SavedScores:
    """Scores of 7 abstentions on Kafka, which answers after some attempts only."""

    def __init__(self, engine: Engine) -> None:
        scoring = engine.cycle.row_scores.scoring
        scoring.abstain(0, "no_baseline", 7)
        self.state, self.silent = scoring.dump(), 0
        scoring.abstentions.clear()

    def read(self) -> bytes:
        if self.silent:
            self.silent -= 1
            raise BrokerError("no broker answers")
        return self.state

    def write(self, state: bytes) -> None:
        self.state = state


class Part:
    """The part of a service manager for a loop; it waits for no time, and ends the loop after some waits."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def progressed(self) -> None: ...

    def wait(self, _wait: object, _seconds: float) -> bool:
        self.waits -= 1
        return self.waits < 0


@pytest.fixture
def running(fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(fast_settings, monkeypatch)


@pytest.mark.parametrize("bad", [{"value": "9" * 5000}, {"value": "33", "allowed": f"{'1' * 5000},128"}])
def test_a_number_with_thousands_of_digits_stops_neither_findings_nor_hints_of_other_programs(
    running: Loop, bad: dict[str, str]
) -> None:
    """Python converts no text of more than 4,300 digits to an integer."""
    running.report("train", "33")
    running.report("foreign", **bad)
    running.loop.run_cycle()
    assert [one.program for one in running.hints()] == ["train"]
    assert running.findings() == 1


def test_a_hint_that_is_too_long_for_an_event_stops_neither_findings_nor_other_hints(running: Loop) -> None:
    running.report("train", "33", kernel="x" * 50_000 + ";gemm")
    running.report("train", "33", device_model="H100")
    running.loop.run_cycle()
    assert [one.device_model for one in running.hints()] == ["H100"]
    assert running.findings() == 1
    written = running.registry.get_sample_value(
        "kernelcast_predictor_hints_total", {"rule": "block_size_not_warp_multiple"}
    )
    assert written == 1
    assert [one.hint.device_model for one in running.engine.open_hints()] == ["H100"]
    assert sum(running.engine.hints.issued.values()) == 1


def test_a_hint_that_is_too_long_is_proposed_again_only_after_the_time_for_which_it_would_be_open(
    running: Loop,
) -> None:
    running.report("train", "33", kernel="x" * 50_000 + ";gemm")

    def dropped() -> int:
        with capture_logs() as lines:
            running.loop.run_cycle()
        return sum(line["event"] == "event dropped" for line in lines)

    found = [dropped()]
    for seconds in (30, 500, 100):
        running.clock.second += seconds
        running.report("train", "33", kernel="x" * 50_000 + ";gemm")
        feed(running.engine, kernel_and_variant(running.clock))
        found.append(dropped())
    assert found == [1, 0, 0, 1]


def test_a_step_of_a_cycle_that_fails_is_reported_after_the_others_are_done(
    running: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object, **_named: object) -> None:
        raise RuntimeError("a defect")

    running.report("train", "33")
    monkeypatch.setattr(running.publisher, "forecasts", broken)
    with pytest.raises(ExceptionGroup, match="cycle") as failed:
        running.loop.run_cycle()
    assert failed.group_contains(RuntimeError, match="a defect")
    assert (len(running.hints()), running.findings()) == (1, 1)
    assert running.loop.completed_at is None


@pytest.mark.parametrize(("silent", "waits"), [(0, 1), (3, 4), (3, 1)])
def test_saved_scores_are_kept_although_kafka_does_not_answer_at_the_start(
    running: Loop, silent: int, waits: int
) -> None:
    running.saved.silent = silent
    running.loop.run(Event(), cast("Any", Part(waits)))
    running.loop.save()
    running.saved.silent = 0
    scoring = running.engine.cycle.row_scores.scoring
    scoring.load(running.saved.read())
    assert scoring.abstentions == {(0, "no_baseline"): 7}


def test_state_is_saved_although_each_cycle_fails(
    fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_accepted: object) -> CycleReport:
        raise RuntimeError("a defect")

    failing = Loop(fast_settings.model_copy(update={"snapshot_every_seconds": 0.0}), monkeypatch)
    monkeypatch.setattr(failing.engine, "run_cycle", broken)
    failing.saved.state = b""
    monkeypatch.setattr(failing.saved, "read", lambda: None)
    failing.loop.run(Event(), cast("Any", Part(2)))
    assert failing.saved.state
    assert failing.registry.get_sample_value("kernelcast_predictor_sweep_failures_total") == 2
