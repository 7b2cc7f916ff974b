"""The probe's frames, round by round, without a thread: the test acts as the exporter."""

import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.waiting import Stopwatch

from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.outcomes import MAX_KEPT, OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.reporting.connection import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, ExporterConnection, Sent
from kernelcast.probe.reporting.sender import (
    LAST_FRAMES_SECONDS,
    ReportedProcess,
    ReportSender,
)
from kernelcast.probe.tunables import Terms, Tunable, TunableSet
from kernelcast.wire.events import Hint, HintMode, OutcomeState, outcome_from, to_event
from kernelcast.wire.frames import (
    MAX_FRAME_BYTES,
    Bye,
    Counters,
    DeviceClaim,
    Frame,
    Hello,
    HintFrame,
    KernelRows,
    Names,
    OutcomeFrame,
    OutcomesConfirmed,
    Reception,
    Status,
    Tunables,
    VariantRows,
    decode,
    encode,
)


class Exporter:
    """The other end: accepts when asked to, and shows the frames that came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener: socket.socket | None = None
        self.connection: socket.socket | None = None

    def listen(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.path))
        self.listener.listen(1)

    def accept(self) -> None:
        assert self.listener
        self.connection, _ = self.listener.accept()
        self.connection.setblocking(False)

    def frames(self) -> list[Frame]:
        assert self.connection
        found: list[Frame] = []
        while True:
            try:
                packet = self.connection.recv(MAX_FRAME_BYTES)
            except BlockingIOError:
                return found
            if not packet:
                return found
            found.append(decode(packet))

    def close(self) -> None:
        for end in (self.connection, self.listener):
            if end:
                end.close()
        self.connection = self.listener = None
        self.path.unlink(missing_ok=True)


class Program:
    """A probe whose rounds a test calls, with a clock that the test advances."""

    def __init__(self, path: Path) -> None:
        self.seconds = 100.0
        self.recorder = Recorder()
        self.tunables = TunableSet()
        self.outcomes = OutcomeQueue("training", "", lambda: 1, lambda: None)
        context = HintContext("training", "", "", lambda: "", lambda: 1)
        self.receiver = HintReceiver(self.tunables, self.recorder, self.outcomes, context)
        self.link = ExporterConnection(str(path), lambda: self.seconds)
        subject = ReportedProcess(self.recorder, self.tunables, self.outcomes, self.receiver)
        self.devices: tuple[DeviceClaim, ...] = (DeviceClaim("GPU-1"),)
        self.sender = ReportSender(subject, self.link, 1.0, lambda: Hello("training", "n1", 1, 7, devices=self.devices))


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    exporter = Exporter(tmp_path / "probe.sock")
    yield exporter
    exporter.close()


@pytest.fixture
def program(exporter: Exporter) -> Iterator[Program]:
    program = Program(exporter.path)
    yield program
    program.sender.abandon()


def launches(frames: list[Frame]) -> list[int]:
    return [row.launches for frame in frames if isinstance(frame, KernelRows) for row in frame.rows]


def test_a_program_that_has_done_nothing_says_nothing(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.sender.round()
    assert not program.link.connected


def test_who_speaks_and_what_things_are_called_come_before_totals(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.tunables.add(Tunable("block", [32, 64], 32, Terms()))
    program.recorder.observe("a", 5)
    program.sender.round()
    exporter.accept()
    assert [type(frame) for frame in exporter.frames()] == [Hello, Tunables, Names, KernelRows, Counters]


def test_only_what_changed_is_sent_again_and_always_as_a_total(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("a", 5)
    program.recorder.observe("b", 5)
    program.sender.round()
    exporter.accept()
    exporter.frames()
    program.recorder.observe("b", 5)
    program.sender.round()
    frames = exporter.frames()
    assert launches(frames) == [2]
    assert not any(isinstance(frame, Names | Hello | Tunables) for frame in frames)


def test_a_status_is_sent_when_it_changes_and_to_a_new_exporter(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.touch()
    program.recorder.status("event", "active", sample_ratio=0.5)
    program.sender.round()
    exporter.accept()
    assert [type(frame) for frame in exporter.frames()] == [Hello, Status]
    program.sender.round()
    program.recorder.status("event", "backed_off", "1.2 % of wall time", 0.25)
    program.sender.round()
    backed_off = Status("event", "backed_off", "1.2 % of wall time", 0.25)
    assert [frame for frame in exporter.frames() if isinstance(frame, Status)] == [backed_off]
    exporter.close()
    program.recorder.observe("a", 5)
    program.sender.round()
    exporter.listen()
    program.seconds += LONGEST_PAUSE_SECONDS
    program.sender.round()
    exporter.accept()
    assert [frame for frame in exporter.frames() if isinstance(frame, Status)] == [backed_off]


def test_variants_that_changed_follow_their_kernels_rows(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("a", 5, variant="1x1x1|32x1x1")
    program.recorder.observe("a", 7, variant="2x1x1|32x1x1")
    program.sender.round()
    exporter.accept()
    assert [type(frame) for frame in exporter.frames()] == [Hello, Names, KernelRows, VariantRows, Counters]
    program.recorder.observe("a", 7, variant="2x1x1|32x1x1")
    program.sender.round()
    (variants,) = [frame for frame in exporter.frames() if isinstance(frame, VariantRows)]
    assert [(row.variant, row.launches, row.sum_ns) for row in variants.rows] == [("2x1x1|32x1x1", 2, 14)]


def test_variants_that_did_not_arrive_are_sent_again(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("a", 5)
    program.sender.round()
    exporter.accept()
    for number in range(20_000):
        program.recorder.observe(f"{'long' * 20} {number % 1000}x", 5, variant=f"{'wide' * 20} {number % 7}")
        if number % 50 == 0:
            program.sender.round()
    assert program.sender.dropped_frames > 0
    seen: dict[tuple[int, str], int] = {}
    for _ in range(50):
        for frame in exporter.frames():
            if isinstance(frame, VariantRows):
                seen.update(((row.kernel, row.variant), row.launches) for row in frame.rows)
        program.sender.round()
    assert sum(seen.values()) == 20_000


def test_a_new_configuration_is_sent_with_its_name(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("a", 5, block="48x1x1")
    program.sender.round()
    exporter.accept()
    exporter.frames()
    program.recorder.observe("a", 5, block="64x1x1")
    program.sender.round()
    (names,) = [frame for frame in exporter.frames() if isinstance(frame, Names)]
    assert names.names[0].block == "64x1x1"


def test_after_a_restart_of_the_exporter_everything_is_sent_again(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.tunables.add(Tunable("block", [32, 64], 32, Terms()))
    program.recorder.observe("a", 5)
    program.recorder.observe("b", 5)
    program.sender.round()
    exporter.accept()
    exporter.close()
    program.recorder.observe("b", 5)
    program.sender.round()
    assert not program.link.connected
    exporter.listen()
    program.seconds += LONGEST_PAUSE_SECONDS
    program.sender.round()
    exporter.accept()
    frames = exporter.frames()
    assert [type(frame) for frame in frames] == [Hello, Tunables, Names, KernelRows, Counters]
    assert sorted(launches(frames)) == [1, 2]


def test_an_exporter_that_does_not_read_costs_frames_but_no_totals(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("a", 5)
    program.sender.round()
    exporter.accept()
    for number in range(20_000):
        program.recorder.observe(f"{'long' * 20} {number % 1000}x", 5)
        if number % 50 == 0:
            program.sender.round()
    assert program.sender.dropped_frames > 0
    seen: dict[int, int] = {}
    for _ in range(50):
        for frame in exporter.frames():
            if isinstance(frame, KernelRows):
                seen.update((row.kernel, row.launches) for row in frame.rows)
        program.sender.round()
    assert sum(seen.values()) == 20_001


def test_pauses_between_attempts_grow_to_a_limit(program: Program) -> None:
    program.recorder.observe("a", 5)
    attempts: list[float] = []
    while len(attempts) < 8:
        program.link.failure = ""
        program.sender.round()
        if program.link.failure:
            attempts.append(program.seconds)
        program.seconds += FIRST_PAUSE_SECONDS
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0]


def test_an_exporter_that_turns_the_program_away_is_not_pestered(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("a", 5)
    attempts: list[float] = []
    while len(attempts) < 4:
        before = program.link.connected
        program.sender.round()
        if program.link.connected and not before:
            attempts.append(program.seconds)
            exporter.accept()
            assert exporter.connection
            exporter.connection.close()
        program.seconds += FIRST_PAUSE_SECONDS
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 4 * FIRST_PAUSE_SECONDS


def test_a_program_turned_away_before_it_used_its_gpus_names_them_when_it_does(
    program: Program, exporter: Exporter
) -> None:
    exporter.listen()
    program.recorder.touch()
    program.devices = (DeviceClaim(""),)
    program.sender.round()
    exporter.accept()
    assert exporter.connection
    exporter.connection.close()
    program.sender.round()
    program.devices = (DeviceClaim("GPU-1"), DeviceClaim("GPU-2"))
    program.seconds += LONGEST_PAUSE_SECONDS
    program.sender.round()
    exporter.accept()
    (hello,) = [frame for frame in exporter.frames() if isinstance(frame, Hello)]
    assert hello.devices == program.devices


def test_reports_that_the_probe_refuses_are_counted_and_mentioned_once(
    program: Program, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """They were in no metric: a program whose durations are all negative looked like one without launches."""
    exporter.listen()
    program.recorder.observe("k", -1)
    program.recorder.sync("stream", -5)
    program.recorder.count("k", -3)
    program.recorder.copy("h2d", -1, 5)
    program.recorder.lost_records(2)
    program.sender.round()
    exporter.accept()
    program.recorder.observe("k", 1, device=10**6)
    program.sender.round()
    (before, after) = [frame.dropped_records for frame in exporter.frames() if isinstance(frame, Counters)]
    assert (before, after) == (6, 7)
    assert caplog.text.count("refuses a report") == 1


@pytest.mark.parametrize("device", [-1, 64])
def test_a_program_whose_reports_are_all_refused_for_their_device_is_told_so(
    program: Program, caplog: pytest.LogCaptureFixture, device: int
) -> None:
    program.sender.round()
    assert not caplog.text
    program.recorder.observe("k", 1, device=device)
    program.sender.round()
    assert "refuses a report" in caplog.text


def test_a_hint_is_received_and_its_outcome_sent(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.tunables.add(Tunable("block", [32, 64], 32, Terms()))
    program.recorder.touch()
    program.sender.round()
    exporter.accept()
    assert exporter.connection
    hint = Hint("h1", "training", "block", "64", 10, mode=HintMode.APPLY)
    for packet in encode(HintFrame(to_event(hint, source="/test", time_ns=1))):
        exporter.connection.send(packet)
    exporter.connection.send(b"garbage")
    program.sender.round()
    program.receiver.at_boundary(epoch=False)
    program.sender.round()
    frames = exporter.frames()
    states = [outcome_from(frame.event).state for frame in frames if isinstance(frame, OutcomeFrame)]
    assert states == [OutcomeState.RECEIVED, OutcomeState.APPLIED]
    assert program.receiver.malformed == 1
    tunables = [frame.tunables[0].value for frame in frames if isinstance(frame, Tunables)]
    assert tunables == ["32", "64"]


def test_lost_outcomes_and_unreadable_hints_are_reported_for_the_device_that_was_used_first(
    program: Program, exporter: Exporter
) -> None:
    """No metric counted them: an outcome that a full queue had dropped looked like a hint without an answer."""
    exporter.listen()
    program.recorder.observe("k", 1, device=1)
    program.recorder.observe("k", 1, device=0)
    program.sender.round()
    exporter.accept()
    assert exporter.connection
    exporter.connection.send(b"garbage")
    program.receiver.receive({"specversion": "1.0"})
    for number in range(MAX_KEPT + 3):
        program.outcomes.add(Hint(f"h{number}", "training", "block", "64", 10), OutcomeState.RECEIVED, "")
    program.sender.round()
    program.recorder.touch()
    program.sender.round()
    last = {frame.device: frame for frame in exporter.frames() if isinstance(frame, Counters)}
    assert {device: (one.dropped_outcomes, one.malformed_hints) for device, one in last.items()} == {
        1: (3, 2),
        0: (0, 0),
    }


def outcome_ids(exporter: Exporter) -> list[str]:
    return [frame.event["id"] for frame in exporter.frames() if isinstance(frame, OutcomeFrame)]


def confirm(exporter: Exporter, *event_ids: str) -> None:
    assert exporter.connection
    for packet in encode(OutcomesConfirmed(event_ids)):
        exporter.connection.send(packet)


def test_outcomes_that_the_exporter_did_not_confirm_go_to_the_next_one_once(
    program: Program, exporter: Exporter
) -> None:
    exporter.listen()
    program.recorder.touch()
    for number in range(2):
        program.outcomes.add_trial(f"h{number}", "block", OutcomeState.KEPT, "")
    program.sender.round()
    exporter.accept()
    first, second = outcome_ids(exporter)
    confirm(exporter, first)
    program.sender.round()
    assert outcome_ids(exporter) == []
    exporter.close()
    program.sender.round()
    exporter.listen()
    program.seconds += LONGEST_PAUSE_SECONDS
    program.sender.round()
    exporter.accept()
    assert outcome_ids(exporter) == [second]
    confirm(exporter, second)
    program.sender.round()
    assert program.outcomes.unconfirmed == 0


def test_the_end_waits_for_confirmations_and_not_long(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.touch()
    program.outcomes.add_trial("h", "block", OutcomeState.KEPT, "")
    program.sender.round()
    exporter.accept()
    began = time.monotonic()
    with Stopwatch() as took:
        program.sender.start()
        program.sender.stop(1.0)
    assert time.monotonic() - began >= LAST_FRAMES_SECONDS
    assert took.seconds < 2 * LAST_FRAMES_SECONDS
    *others, last = exporter.frames()
    assert isinstance(last, Bye)
    assert sum(isinstance(frame, OutcomeFrame) for frame in others) == 1
    assert len(program.outcomes.left()) == 1, "the next run of the program sends it again"


@pytest.mark.parametrize("frames_sent", [1, 5])
def test_a_refusal_is_read_although_the_exporter_closes_with_packets_unread(
    program: Program, exporter: Exporter, frames_sent: int
) -> None:
    """The kernel answers a read or a write after that with an error first, and keeps what the exporter has sent."""
    exporter.listen()
    for number in range(frames_sent):
        program.recorder.observe(f"kernel{number}", 5)
    program.sender.round()
    exporter.accept()
    assert exporter.connection
    exporter.connection.recv(MAX_FRAME_BYTES)
    exporter.connection.send(next(encode(Reception(refusal="8 processes are known"))))
    exporter.connection.close()
    program.recorder.observe("kernel", 5)
    program.sender.round()
    program.sender.round()
    assert program.sender.reception.refusal == "8 processes are known"
    assert not program.link.connected
    assert not program.receiver.malformed


def test_a_refusal_is_read_where_the_next_packet_cannot_be_sent(program: Program, exporter: Exporter) -> None:
    exporter.listen()
    program.recorder.observe("kernel", 5)
    program.sender.round()
    exporter.accept()
    assert exporter.connection
    exporter.connection.send(next(encode(Reception(refusal="8 processes are known"))))
    exporter.connection.close()
    assert program.link.send(b"packet") is Sent.LOST
    program.sender.round()
    assert program.sender.reception.refusal == "8 processes are known"
