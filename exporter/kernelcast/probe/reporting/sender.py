"""The probe's own thread: sends cumulative frames once an interval, and receives hints as they arrive.

A round connects if necessary, then sends what changed since the last one: `Hello` once, status, tunables, kernels and
counters, outcomes. Totals are cumulative, so a lost frame costs nothing but time. While there is no exporter, and at
the program's end, all totals are written to a file (`LeftReport`); the exporter removes it once it has them.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from logging import getLogger
from math import inf
from time import monotonic, sleep, thread_time_ns
from typing import Final, Protocol

from kernelcast.probe.hints import HintReceiver
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.process.descriptors import OwnDescriptor
from kernelcast.probe.process.threads import start_without_signals
from kernelcast.probe.recording.recorder import Cell, Recorder
from kernelcast.probe.reporting.connection import FIRST_PAUSE_SECONDS, ExporterConnection, Sent
from kernelcast.probe.reporting.left_report import LeftReport
from kernelcast.probe.reporting.stacks import write_stacks
from kernelcast.probe.tunables import TunableSet
from kernelcast.wire.errors import FrameError
from kernelcast.wire.frames import (
    Bye,
    Counters,
    DeviceClaim,
    Frame,
    Hello,
    HintFrame,
    KernelName,
    KernelRows,
    Names,
    OutcomeFrame,
    OutcomesConfirmed,
    Reception,
    StacksRequest,
    Status,
    TunableClaim,
    Tunables,
    VariantRows,
    decode,
    encode,
)

# Kernels of one frame; if it is lost, all of them are sent again.
ROWS_AT_ONCE: Final = 256
# Time limit of the last frames; together with the join after it, a program's end is delayed by less than 200 ms.
LAST_FRAMES_SECONDS: Final = 0.15
# Time for the answer to `Hello` at the program's end, as part of its limit.
LAST_ANSWER_SECONDS: Final = 0.05
# Pause before the last frames are tried again while the socket's buffer is full.
RETRY_SECONDS: Final = 0.005

_log = getLogger("kernelcast.probe")


class Measuring(Protocol):
    """Measures the program on the sender's thread."""

    def poll(self) -> None:
        """Add new measurements to the recorder."""
        ...

    def switch(self) -> float:
        """Do what cannot wait for the next poll; returns the seconds until it is to be called again."""
        ...

    def finish(self) -> None:
        """Add the last measurements, and stop."""
        ...


class Unmeasured:
    """Measuring for a program that measures itself: does nothing."""

    def poll(self) -> None:
        """Do nothing."""

    def switch(self) -> float:
        """Do nothing, ever."""
        return inf

    def finish(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class ReportedProcess:
    """The parts of a process that the sender reports, and the receiver of its hints."""

    recorder: Recorder
    tunables: TunableSet
    outcomes: OutcomeQueue
    receiver: HintReceiver
    measuring: Measuring = field(default_factory=Unmeasured)


class ReportSender:
    """Owns the probe's thread and its connection. `Probe` calls `start`, `stop`, `abandon`; any thread may call `wake`.

    Args:
        subject: The parts that are reported, and the receiver of hints.
        link: The connection.
        interval_seconds: Time between two rounds of frames.
        hello: Makes the first frame, once there is something to report.
        moved: Whether the first frame names other devices than the process uses now: it joins again, with all totals.
        speak: Writes for the program's user what is due, at the end of the thread the rest; returns the seconds until
            it is to be called again.
    """

    def __init__(
        self,
        subject: ReportedProcess,
        link: ExporterConnection,
        interval_seconds: float,
        hello: Callable[[], Hello],
        *,
        moved: Callable[[], bool] = lambda: False,
        speak: Callable[..., float] = lambda **_ends: inf,
    ) -> None:
        self._subject = subject
        self.link = link
        self._interval_seconds = interval_seconds
        self._make_hello = hello
        self._moved = moved
        self._speak = speak
        self._hello: Hello | None = None
        self._left = LeftReport(link.path, subject.recorder)
        self._may_leave = True
        """Whether an interval has passed since the last left report."""
        self._named: dict[int, KernelName] = {}
        self._tunables_sent: tuple[TunableClaim, ...] | None = None
        self._status_sent: Status | None = None
        self._hello_sent = False
        self._hello_sent_at = 0.0
        self._has_seen_refusal = False
        self._stopping = threading.Event()
        self._wake_read: OwnDescriptor | None = None
        self._wake_write: OwnDescriptor | None = None
        self._thread = threading.Thread(target=self._run, name="kernelcast-probe", daemon=True)
        self.reception = Reception()
        """The exporter's last answer; empty before the first."""
        self.dropped_frames = 0
        self.failures = 0
        """Rounds that ended in an unexpected error; the first one is logged."""

    @property
    def devices(self) -> tuple[DeviceClaim, ...]:
        """The claimed devices; empty before the first frame."""
        return self._hello.devices if self._hello else ()

    @property
    def connected(self) -> bool:
        """Whether `Hello` was sent on a connection that is not known to have ended."""
        return self._hello_sent and self.link.connected

    def start(self) -> None:
        """Start the thread; if that fails, nothing is sent and the program continues."""
        try:
            self._open_wake_pair()
            start_without_signals(self._thread)
        except (OSError, RuntimeError) as error:  # such as a program that has no file descriptor or thread left
            self.abandon()
            with contextlib.suppress(Exception):
                _log.warning("kernelcast probe sends nothing: %s; the program runs on", error)

    def wake(self) -> None:
        """Start the next round now."""
        if self._wake_write is not None:
            with contextlib.suppress(OSError):
                self._wake_write.write(b"\0")

    def stop(self, timeout_seconds: float) -> None:
        """Send the last totals and `Bye`, within the time given; safe to call twice."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def abandon(self) -> None:
        """Close all sockets without a message to the exporter: at the end, or in a forked child."""
        self._stopping.set()
        self.link.abandon()
        for end in (self._wake_read, self._wake_write):
            if end is not None:
                end.close()

    def round(self) -> None:
        """Connect if necessary, receive hints, and send new totals."""
        recorder = self._subject.recorder
        if recorder.refused and not self._has_seen_refusal:
            self._has_seen_refusal = True
            _log.warning(
                "kernelcast probe refuses a report, and counts it as a dropped record: its duration, another number or "
                "its device cannot be, or a signal handler has made it"
            )
        if not recorder.touched:
            return
        if self._hello_sent and self._moved():
            self._rejoin()
        lasting = self.link.connected
        if not lasting:
            self._connect()
        self._receive()
        if self.link.connected and self._send_new():
            self._left.remove()
            if lasting:
                self.link.proven()
        elif not self.link.connected and self._may_leave:
            self._may_leave = False
            self._leave()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._guarded(self._renew_wake_pair)
            self._guarded(self._subject.measuring.poll)
            self._guarded(self.round)
            self._guarded(self._wait)
        self._guarded(self._subject.measuring.finish)
        self._guarded(self._send_last_frames)
        self._guarded(lambda: self._speak(ends=True))
        self.abandon()

    def _guarded(self, work: Callable[[], object]) -> None:
        began_ns = thread_time_ns()
        try:
            work()
        except Exception as error:  # noqa: BLE001  nothing here may reach the program
            self.add_failure(error)
            self._stopping.wait(self._interval_seconds)
        self._subject.recorder.charge(thread_time_ns() - began_ns)

    def add_failure(self, error: Exception) -> None:
        """Count an error of the probe that the program does not see; the first one is logged. For any thread."""
        self.failures += 1
        if self.failures > 1:
            return
        with contextlib.suppress(Exception):  # the program's own logging may fail
            _log.warning("kernelcast probe had an error and goes on: %r", error)

    def _wait(self) -> None:
        deadline, wake_read = monotonic() + self._interval_seconds, self._wake_read
        while not self._stopping.is_set() and (left := deadline - monotonic()) > 0:
            left = min(left, self._subject.measuring.switch(), self._speak(ends=False))
            number, wake_number = self.link.fileno(), wake_read.fileno() if wake_read else None
            poller = select.poll()  # unlike select(), at ease with a program that has thousands of files open
            for polled in (number, wake_number):
                if polled is not None:
                    poller.register(polled, select.POLLIN)
            ready = [ready_number for ready_number, _event in poller.poll(left * 1000)]
            if number in ready:
                self._receive()
            if wake_read is not None and wake_number in ready:
                try:
                    woken = wake_read.read(4096)
                except OSError:
                    woken = b""
                if not woken:  # the program has closed an end, and perhaps all of its descriptors: let it finish first
                    self._stopping.wait(min(left, FIRST_PAUSE_SECONDS))
                return
        self._may_leave = True

    def _open_wake_pair(self) -> None:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        self._wake_read, self._wake_write = (OwnDescriptor(end.detach()) for end in ends)

    def _renew_wake_pair(self) -> None:
        """Open a new pair if the program has closed an end; without one, rounds start at the interval only."""
        ends = (self._wake_read, self._wake_write)
        if all(end is not None and end.fileno() is not None for end in ends):
            return
        self._wake_read = self._wake_write = None
        for end in ends:
            if end is not None:
                end.close()
        with contextlib.suppress(OSError):  # no descriptor is left
            self._open_wake_pair()

    def _connect(self) -> None:
        if not self.link.connect():
            return
        self._hello_sent = False
        self._left.forget()
        self._named.clear()
        self._tunables_sent = None
        self._status_sent = None
        self._subject.outcomes.reconnected()
        recorder = self._subject.recorder
        for device in recorder.devices():
            recorder.mark_unsent(recorder.cells(device))

    def _rejoin(self) -> None:
        """End the process for the exporter; the next frames are those of another one."""
        self._send(Bye("moved"))
        self.link.close()
        self.link.hurry()
        self._hello, self._hello_sent = None, False

    def _receive(self) -> None:
        for packet in self.link.receive():
            try:
                frame = decode(packet)
            except FrameError:
                self._subject.receiver.malformed += 1
                continue
            if isinstance(frame, HintFrame):
                self._subject.receiver.receive(frame.event)
            elif isinstance(frame, OutcomesConfirmed):
                self._subject.outcomes.confirmed(frame.event_ids)
            elif isinstance(frame, Reception):
                self.reception = frame
            elif isinstance(frame, StacksRequest) and self._hello is not None:
                hello = self._hello
                heading = f"{hello.program}, rank {hello.rank or '-'}, process {hello.pid}"
                write_stacks(self.link.path, hello.nonce, heading)

    def _send_new(self) -> bool:
        if not self._hello_sent:
            self._hello_sent, self._hello_sent_at = self._send(self._present_hello()), monotonic()
        return (
            self._hello_sent
            and self._send_status()
            and self._send_tunables()
            and all(self._send_totals(device) for device in self._subject.recorder.devices())
            and self._send_outcomes()
        )

    def _present_hello(self) -> Hello:
        if self._hello is None or not all(claim.uuid for claim in self._hello.devices):
            # The program may have started to use its GPUs since the exporter refused it.
            self._hello = self._make_hello()
        return self._hello

    def _send_status(self) -> bool:
        status = self._subject.recorder.current
        if status is None or status == self._status_sent:
            return True
        if self._send(status):
            self._status_sent = status
            return True
        return False

    def _send_tunables(self) -> bool:
        model = self.devices[0].model_name if self.devices else ""
        version = self._hello.code_version if self._hello else ""
        claims = tuple(tunable.claim(model, version) for tunable in self._subject.tunables.all())
        if claims == (self._tunables_sent or ()):
            return True
        if self._send(Tunables(claims)):
            self._tunables_sent = claims
            return True
        return False

    def _send_totals(self, device: int) -> bool:
        if not all(self._send_rows(device, cells) for cells in _changed(self._subject.recorder.cells(device))):
            return False
        return self._send(self._counters(device))

    def _counters(self, device: int) -> Counters:
        return self._subject.recorder.counters(
            device,
            dropped_frames=self.dropped_frames,
            dropped_outcomes=self._subject.outcomes.dropped,
            malformed_hints=self._subject.receiver.malformed,
        )

    def _send_rows(self, device: int, cells: list[Cell]) -> bool:
        recorder = self._subject.recorder
        names = tuple(name for name in (cell.name() for cell in cells) if self._named.get(name.kernel) != name)
        if names:
            if not self._send(Names(names)):
                return False
            self._named.update((name.kernel, name) for name in names)
        rows = KernelRows(device, tuple(recorder.take(cell) for cell in cells))
        if self._send(rows) and self._send(VariantRows(device, recorder.take_variants(cells))):
            return True
        recorder.mark_unsent(cells)
        return False

    def _send_outcomes(self) -> bool:
        outcomes = self._subject.outcomes
        while event := outcomes.first():
            if not self._send(OutcomeFrame(event)):
                return False
            outcomes.sent(event)
        return True

    def _send(self, frame: Frame) -> bool:
        for packet in encode(frame):
            sent = self.link.send(packet)
            if sent is not Sent.HANDED_OVER:
                self.dropped_frames += 1
                return False
        return True

    def _send_last_frames(self) -> None:
        """Send the last totals, outcomes and `Bye`, and wait for confirmations, within the time limits above."""
        deadline = monotonic() + LAST_FRAMES_SECONDS
        if not self._subject.recorder.touched:
            return
        if not self.link.connected:
            self.link.hurry()
            self._connect()
        sent = self.link.connected and self._send_new()
        self._leave(final=True)  # an exporter may be killed before it has stored the frames
        if sent or self._retry(self._send_new, deadline):
            self._retry(self._has_reception, self._hello_sent_at + LAST_ANSWER_SECONDS)
            self._retry(lambda: self._send(Bye()), deadline)
            # The exporter writes what Kafka does not have yet to its disk, and confirms it then.
            self._retry(self._all_confirmed, deadline)

    def _leave(self, *, final: bool = False) -> None:
        """Write all totals to the file of this process."""
        if not self._left.possible:
            return
        recorder = self._subject.recorder
        further: list[Frame] = [self._counters(device) for device in recorder.devices()]
        if recorder.current is not None:
            further.append(recorder.current)
        hello, connected = self._present_hello(), self.link.connected
        if not self._left.write(hello, further, connected=connected, final=final):
            self.dropped_frames += 1

    def _retry(self, work: Callable[[], bool], deadline: float) -> bool:
        """Repeat work until it is done, the connection is lost or the time is over; whether it is done."""
        done = False
        while self.link.connected and not (done := work()) and monotonic() < deadline:
            sleep(RETRY_SECONDS)
        return done

    def _has_reception(self) -> bool:
        self._receive()
        return self.reception != Reception()

    def _all_confirmed(self) -> bool:
        self._receive()
        return not self._subject.outcomes.unconfirmed


def _changed(cells: list[Cell]) -> Iterator[list[Cell]]:
    wanted = [cell for cell in cells if cell.changed]
    for start in range(0, len(wanted), ROWS_AT_ONCE):
        yield wanted[start : start + ROWS_AT_ONCE]
