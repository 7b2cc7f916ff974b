"""An outcome counts once for readers, wherever the exporter is killed between the program and Kafka."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.service.servers import wait_for
from tests.service.stack import Stack

from kernelcast.cli.hints.known import KnownHints
from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.reporting.connection import ExporterConnection
from kernelcast.probe.reporting.sender import ReportedProcess, ReportSender
from kernelcast.probe.tunables import TunableSet
from kernelcast.probe.tuned.reports import SearchOutcome
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import SEARCH_PREFIX, OutcomeState
from kernelcast.wire.frames import DeviceClaim, Hello
from kernelcast.wire.topics import OUTCOMES

pytestmark = pytest.mark.service
NEVER_SECONDS = 60.0
INTERVAL_SECONDS = 4.0
"""Longer than a test needs on a busy machine to find a message on Kafka: the confirmation comes one interval later."""
TRIAL = f"{SEARCH_PREFIX}1"


class Program:
    """The probe's thread in this process, with the queue of outcomes that it sends."""

    def __init__(self, path: Path) -> None:
        self.outcomes = OutcomeQueue("training", "", time.time_ns, self._wake)
        recorder, tunables = Recorder(), TunableSet()
        context = HintContext("training", "", "", lambda: "", time.time_ns)
        receiver = HintReceiver(tunables, recorder, self.outcomes, context)
        subject = ReportedProcess(recorder, tunables, self.outcomes, receiver)
        self.sender = ReportSender(subject, ExporterConnection(str(path), time.monotonic), 0.1, self._hello)
        recorder.observe("gemm", 1_000)

    def _wake(self) -> None:
        self.sender.wake()

    def _hello(self) -> Hello:
        return Hello("training", "n1", 1, 7, devices=(DeviceClaim("GPU-1"),))


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


def test_an_outcome_of_a_program_that_has_ended_reaches_kafka_though_the_exporter_is_killed_in_that_interval(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with exporter(tmp_path, servers, NEVER_SECONDS) as first, running(tmp_path / "probe.sock") as program:
            server = first.service("exporter")
            program.outcomes.add_trial(TRIAL, "block", OutcomeState.KEPT, "")
            wait_for("the exporter to have read the outcome", lambda: program.outcomes.unconfirmed == 1 or None)
            program.sender.stop(1.0)
            assert program.outcomes.unconfirmed == 0, "it is on the exporter's disk"
            server.kill()
        assert on_kafka(servers) == []
        with exporter(tmp_path, servers, INTERVAL_SECONDS) as second:
            second.service("exporter")
            (message,) = wait_for("the outcome on Kafka", lambda: on_kafka(servers) or None)
            wait_for(
                "the log to be empty", lambda: not list((tmp_path / "state" / "outcomes").glob("*.segment")) or None
            )
            assert counted(second) == 1
        assert decode_event(message.value())["data"]["tunable"] == "block"
        with exporter(tmp_path, servers, INTERVAL_SECONDS) as third:
            third.service("exporter")
            time.sleep(2 * INTERVAL_SECONDS)
            assert len(on_kafka(servers)) == 1


@pytest.mark.parametrize("ends", [False, True])
def test_an_outcome_that_an_exporter_never_read_reaches_kafka_though_that_exporter_was_killed(
    tmp_path: Path, *, ends: bool
) -> None:
    def program() -> Probe:
        devices = (DeviceClaim("GPU-1"),)
        state = str(tmp_path / "tuning")
        socket = str(tmp_path / "probe.sock")
        made = Probe(ProbeSettings("training", "0", socket, 0.1, devices=devices, state_directory=state))
        made.start()
        made.observe("gemm", 1_000)
        return made

    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with exporter(tmp_path, servers, NEVER_SECONDS) as first:
            server = first.service("exporter")
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)
            probe = program()
            wait_for("the connection", lambda: probe.connected or None)
            search = SearchOutcome(TRIAL, "block", OutcomeState.KEPT, "", {})
            probe.surroundings.report(search)
            time.sleep(0.5)
            if ends:
                probe.stop()
            server.kill()
        with exporter(tmp_path, servers, INTERVAL_SECONDS) as second:
            second.service("exporter")
            if ends:
                probe = program()
            (message,) = wait_for("the outcome on Kafka", lambda: on_kafka(servers) or None)
            # A sent outcome is left for the next run until it is confirmed.
            wait_for("the confirmation", lambda: not probe._outcomes.left() or None)
            probe.stop()
        assert decode_event(message.value())["data"]["hint_id"] == TRIAL
        assert [file.read_text() for file in (tmp_path / "tuning").glob("*.outcomes")] == [""] * ends


def confirmed(outcomes: OutcomeQueue) -> Callable[[], bool | None]:
    return lambda: (outcomes.first() is None and not outcomes.unconfirmed) or None


def counted(stack: Stack) -> float:
    return stack.own("exporter", "kernelcast_hint_outcomes_total", state="kept")
