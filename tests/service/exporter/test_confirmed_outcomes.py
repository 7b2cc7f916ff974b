"""An outcome counts once for readers, wherever the exporter is killed between the program and Kafka."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.service.servers import wait_for
from tests.service.stack import Stack

from kernelcast.cli.hints.known import KnownHints
from kernelcast.probe.hints import HintReceiver, RejectionReason
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.reporting.connection import Link
from kernelcast.probe.reporting.sender import ReportedProcess, ReportSender
from kernelcast.probe.tunables import TunableSet
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import SEARCH_PREFIX, OutcomeState
from kernelcast.wire.frames import DeviceClaim, Hello
from kernelcast.wire.topics import OUTCOMES

pytestmark = pytest.mark.service
NEVER_SECONDS = 60.0
INTERVAL_SECONDS = 1.5
TRIAL = f"{SEARCH_PREFIX}1"


class Program:
    """The probe's thread in this process, with the queue of outcomes that it sends."""

    def __init__(self, path: Path) -> None:
        self.outcomes = OutcomeQueue("training", "", time.time_ns, self._wake)
        recorder, tunables = Recorder(), TunableSet()
        ground = RejectionReason("training", "", "", lambda: "", {}, time.time_ns)
        desk = HintReceiver(tunables, recorder, self.outcomes, ground)
        subject = ReportedProcess(recorder, tunables, self.outcomes, desk)
        self.sender = ReportSender(subject, Link(str(path), time.monotonic), 0.1, self._hello, warns=False)
        recorder.observe("gemm", 1_000)

    def _wake(self) -> None:
        self.sender.wake()

    def _hello(self) -> Hello:
        return Hello("training", "n1", 1, 7, devices=(DeviceClaim("GPU-1"),), wants_confirmations=True)


@contextmanager
def running(path: Path) -> Iterator[Program]:
    program = Program(path)
    program.sender.start()
    try:
        yield program
    finally:
        program.sender.stop(1.0)


def on_kafka(bootstrap_servers: str) -> list[Any]:
    """The messages of the topic of outcomes."""
    reader = Consumer(KafkaSettings(bootstrap_servers=bootstrap_servers), group_id="test")
    try:
        partitions = reader.partitions(OUTCOMES.name)
        marks = [reader.watermarks(partition) for partition in partitions]
        for partition, (begin, _) in zip(partitions, marks, strict=True):
            partition.offset = begin
        reader.assign(partitions)
        found: list[Any] = []
        deadline = time.monotonic() + 10
        while len(found) < sum(end - begin for begin, end in marks) and time.monotonic() < deadline:
            found += reader.consume(100, 0.2)[0]
        return found
    finally:
        reader.close()


def exporter(directory: Path, bootstrap_servers: str, interval_seconds: float) -> Stack:
    return Stack(directory, bootstrap_servers, {"exporter": {"interval_seconds": interval_seconds}})


def test_an_outcome_counts_once_though_the_exporter_is_killed_before_and_after_kafka_has_it(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker, running(tmp_path / "probe.sock") as program:
        servers = broker.bootstrap_servers
        outcomes = program.outcomes
        with exporter(tmp_path, servers, NEVER_SECONDS) as first:
            server = first.service("exporter")
            outcomes.add_trial(TRIAL, "block", OutcomeState.KEPT, "")
            wait_for("the exporter to have read the outcome", lambda: outcomes.unconfirmed == 1 or None)
            server.kill()
        assert on_kafka(servers) == []
        with exporter(tmp_path, servers, INTERVAL_SECONDS) as second:
            server = second.service("exporter")
            wait_for("the outcome on Kafka", lambda: on_kafka(servers) or None)
            assert outcomes.unconfirmed == 1, "the confirmation comes an interval later"
            server.kill()
            second.start(server)
            wait_for("the confirmation", confirmed(outcomes))
            wait_for("the count", lambda: counted(second) or None)
            assert counted(second) == 1
        messages = on_kafka(servers)
    assert len(messages) == 2, "it is written again, because the program cannot know that Kafka has it"
    assert len({decode_event(message.value())["id"] for message in messages}) == 1
    known = KnownHints()
    for message in messages:
        known.add(message)
    assert [one.outcome.state for one in known.records[TRIAL].answers] == [OutcomeState.KEPT]
    assert outcomes.dropped == 0


def confirmed(outcomes: OutcomeQueue) -> Callable[[], bool | None]:
    return lambda: (outcomes.first() is None and not outcomes.unconfirmed) or None


def counted(stack: Stack) -> float:
    return stack.own("exporter", "kernelcast_hint_outcomes_total", state="kept")
