"""Server of the probe socket: receives reports of programs and sends them hints.

One thread reads and writes all connections without blocking. The daemon's own thread calls `poll` and `outcomes` for
the reports, and `deliver` for hints. A lock separates both; it is held for microseconds, or for milliseconds while last
reports are appended to their log. The disk is synced without the lock.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.exporter.hints.outcome_log import OutcomeLog
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.hints.receivers import HintReceivers
from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.last.final_reports import FinalReports
from kernelcast.exporter.programs.last.leaving import Leaving
from kernelcast.exporter.programs.last.left_reports import LeftFile, LeftReports
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.places import ConnectionPlaces, ProgramConnection
from kernelcast.exporter.programs.process import ProbeProcess
from kernelcast.exporter.programs.refusal_log import RefusalLog
from kernelcast.exporter.programs.registry import ProbeRegistry, RejectedProcess, Resolver
from kernelcast.exporter.programs.socket import ProbeSocket, peer_of
from kernelcast.exporter.programs.standing import StackFiles, StandingJudge
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.threads import Worker
from kernelcast.wire.errors import ConfigurationError, FrameError
from kernelcast.wire.events import Hint
from kernelcast.wire.frames import MAX_FRAME_BYTES, Frame, Hello, Reception, decode, encode
from kernelcast.wire.frames.left import split_packets
from kernelcast.wire.tuning.approvals import Approval
from kernelcast.wire.tuning.experience import Experience

PACKETS_AT_ONCE: Final = 64
"""Packets read from one connection before the next one; also connections accepted before others are served."""
STOP_SECONDS: Final = 2.0
"""Longest wait of `close` for the thread."""
ERROR_PAUSE_SECONDS: Final = 0.1
"""Pause after an error, so that an error that stays does not use a whole core."""

_log = get_logger(__name__)


class ProbeServer:
    """A source of process reports: `poll` returns the new ones since the last call.

    A connection that ends with `Bye`, or whose process has ended, makes its last report final. A process whose
    connection broke otherwise may reconnect: its totals continue, they are not added again.

    Reports since the last saved state are written to `final_reports` when their connection ends, and the connection is
    closed after that: its totals then survive a crash, unless the disk failed or is full, which is counted. Outcomes
    that Kafka has not acknowledged by then are written to `outcome_log`, and confirmed before it is closed.

    Reports that programs have left while there was no exporter (`LeftReports`) are read at the start, and later ones
    every few seconds, between the packets of connections.

    Args:
        path: The socket.
        clock: Unix nanoseconds.
        registry: For the self metrics.
        devices: Completes a process's data about its GPU.
        allowed_uids: Users who may report; None for every user of the node.
        limits: Bounds of connections, memory and queues.

    Attributes:
        page: URL of the daemon's page, which programs show to their users; empty until it is served.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Callable[[], int],
        registry: CollectorRegistry,
        devices: Resolver,
        allowed_uids: Collection[int] | None = None,
        limits: ProbeLimits | None = None,
    ) -> None:
        self.page = ""
        self._path = Path(path)
        self._clock = clock
        self._allowed_uids = allowed_uids
        self._limits = limits or ProbeLimits()
        self._counts = ProbeCounts(registry)
        self._stacks = StackFiles(self._path)
        judge = StandingJudge(self._limits.standing, self._stacks)
        self._registry = ProbeRegistry(devices, self._limits, self._counts, judge=judge)
        self._lock = threading.Lock()
        self._leaving = Leaving(self._registry, self._lock, clock)
        self._places = ConnectionPlaces(self._limits.connections, self._limits.hello_seconds)
        self._refusals = RefusalLog()
        self._left = LeftReports(self._path, allowed_uids, self._counts, self._refusals)
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._to_send: set[int] = set()
        self._socket: ProbeSocket | None = None
        self._thread = Worker("probe-server", self._run)
        self._stopping = self._thread.stopping

    def keep(self, final_reports: FinalReports, receivers: HintReceivers, outcome_log: OutcomeLog) -> None:
        """Add last reports, the receivers of hints and the outcomes of ended programs to the stored state.

        Call it before `start`. The owner of the state file opens and closes it, and calls `saved` after each save.
        """
        self._leaving.final_reports = final_reports
        self._leaving.outcome_log = outcome_log
        self._registry.receivers = receivers
        self._registry.restore(outcome_log.restore())
        self._registry.keep_unsaved = True

    def name_images(self, image_of: Callable[[int], str]) -> None:
        """Add the images of containers to reports. Call it before `start`.

        Args:
            image_of: Returns the image of the container in which a pid runs; called under the lock, so it may not wait.
        """
        self._registry.image_of = image_of

    def start(self) -> None:
        """Open the socket, read the reports that programs have left, and start the thread.

        Raises:
            ConfigurationError: The socket belongs to a living daemon, or its path cannot be used.
        """
        try:
            self._socket = ProbeSocket(self._path)
        except ConfigurationError:
            self.close()
            raise
        self._selector.register(self._socket.listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._left.open()
        self._stacks.open()
        while self._read_left():  # before the first poll, whose totals later readers compare with the last run's
            pass
        self._thread.start()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return new reports of every process since the last call."""
        with self._lock:
            if self._leaving.final_reports is not None:
                self._leaving.final_reports.mark()
            reports = self._registry.reports(now_ns)
            self._left.mark()
            if self._leaving.final_reports is None:
                self._left.release()
            asked, self._registry.asked = self._registry.asked, set()
            self._to_send.update(asked)
        if asked:
            self._wake()
        return SourceBatch(reports=reports)

    def saved(self) -> None:
        """Note that the state on disk includes the reports of the last poll."""
        with self._lock:
            self._registry.saved()
            self._left.release()
            if self._leaving.final_reports is not None:
                self._leaving.final_reports.release()

    def deliver(self, hint: Hint) -> int:
        """Queue a hint for every process that it fits, now or before it expires; returns for how many now."""
        with self._lock:
            numbers = self._registry.deliver(hint, self._clock())
            self._to_send.update(numbers)
        self._wake()
        return len(numbers)

    def withdraw(self, key: str) -> None:
        """Drop the hint with this key: processes that have it end its trial, later ones do not get it."""
        with self._lock:
            self._to_send.update(self._registry.withdraw(key, self._clock()))
        self._wake()

    def stop(self, programs: Collection[str]) -> None:
        """Withdraw the hints of these programs, and queue none for them; other programs may go on."""
        with self._lock:
            self._to_send.update(self._registry.stop(programs, self._clock()))
        self._wake()

    def approve(self, approvals: Iterable[Approval]) -> None:
        """Deliver the hints that people have approved, and withdraw those whose approval has ended."""
        with self._lock:
            self._to_send.update(self._registry.approve(approvals, self._clock()))
        self._wake()

    def teach(self, experience: Experience) -> None:
        """Pass results of searches on to the processes that they concern, now and later."""
        with self._lock:
            self._to_send.update(self._registry.teach(experience, self._clock()))
        self._wake()

    def outcomes(self) -> list[ReceivedOutcome]:
        """Return outcomes of hints since the last call, with host name and UUID."""
        with self._lock:
            return self._registry.outcomes()

    def confirm(self, outcomes: Iterable[ReceivedOutcome]) -> None:
        """Tell the programs that these outcomes need not be sent again, and remove them from the log."""
        outcomes = list(outcomes)
        with self._lock:
            self._to_send.update(self._registry.confirm(outcomes))
            if self._leaving.outcome_log is not None:
                self._leaving.outcome_log.settle(one.event_id for one in outcomes)
        self._wake()

    def processes(self) -> list[ProbeProcess]:
        """Return the reporting processes."""
        with self._lock:
            return [ProbeProcess.of(entry) for entry in self._registry.entries()]

    def close(self) -> None:
        """End all connections and remove the socket; programs notice and keep trying. Safe to call twice."""
        self._stopping.set()
        self._wake()
        self._thread.stop(STOP_SECONDS)
        with contextlib.ExitStack() as stack:
            stack.callback(self._selector.close)
            stack.callback(self._wake_read.close)
            stack.callback(self._wake_write.close)
            stack.callback(self._left.close)
            if self._socket:
                stack.callback(self._socket.close)
            stack.callback(self._leaving.write)
            for number in self._places.numbers:
                self._drop(number)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  an error must not end the thread
                self._had_error(error)
                self._stopping.wait(ERROR_PAUSE_SECONDS)

    def _had_error(self, error: Exception) -> None:
        self._counts.errors.inc()
        _log.warning("probe socket had an error", error=repr(error))

    def _turn(self) -> None:
        for key, events in self._selector.select(self._patience_seconds()):
            if key.fileobj is self._wake_read:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)
            elif self._socket and key.fileobj is self._socket.listener:
                self._accept_waiting()
            else:
                self._serve(key.fd, events)
        with self._lock:
            ready, self._to_send = self._to_send, set()
        for number in ready:
            self._write(number)
        for number in self._places.overdue():
            self._part(number, "hello", f"no Hello came in {self._limits.hello_seconds:g} s")
        self._leaving.write_if_due()
        self._read_left()

    def _patience_seconds(self) -> float | None:
        """Return how long the selector may wait; None for no limit."""
        waits = (self._places.wait_seconds(), self._leaving.wait_seconds(), self._left.wait_seconds())
        return min((wait for wait in waits if wait is not None), default=None)

    def _accept_waiting(self) -> None:
        for _ in range(PACKETS_AT_ONCE):
            if not self._accept():
                break

    def _accept(self) -> bool:
        """Accept a connection; False when none waits."""
        if self._socket is None:
            return False
        try:
            accepted, _ = self._socket.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:
            # For example, no file descriptors are left: the program still waits, so the selector would return at once,
            # for ever.
            self._counts.errors.inc()
            _log.warning("a program cannot be let in", error=str(error))
            self._stopping.wait(ERROR_PAUSE_SECONDS)
            return False
        accepted.setblocking(False)
        connection = ProgramConnection(accepted, peer_of(accepted))
        if self._has_place(connection):
            self._places.add(connection)
            self._selector.register(accepted, selectors.EVENT_READ)
            self._counts.connections.set(len(self._places))
        else:
            accepted.close()
        return True

    def _has_place(self, connection: ProgramConnection) -> bool:
        """Whether a program may connect; another connection is closed for it if needed."""
        uid = connection.peer.uid
        if self._allowed_uids is not None and uid not in self._allowed_uids:
            self._refused(connection, "user", f"user {uid} may not report here")
            return False
        if not self._places.is_full:
            return True
        displaced = self._places.to_displace(uid)
        if displaced is None:
            self._refused(connection, "limit", f"{len(self._places)} programs are connected")
            return False
        self._part(displaced, "displaced", f"all {len(self._places)} places are taken; user {uid} needs one")
        return True

    def _refused(self, connection: ProgramConnection, reason: str, message: str) -> None:
        with contextlib.suppress(OSError):  # a program that does not read
            for packet in encode(Reception(refusal=message)):
                connection.socket.send(packet)
        self._counts.refused[reason].inc()
        self._refusals.write(reason, message, uid=connection.peer.uid, pid=connection.peer.pid)

    def _serve(self, number: int, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write(number)
        if events & selectors.EVENT_READ:
            for _ in range(PACKETS_AT_ONCE):
                if not self._read(number):
                    break

    def _read(self, number: int) -> bool:
        """Process one packet; False if there is none left."""
        connection = self._places.get(number)
        if connection is None:
            return False
        try:
            packet = connection.socket.recv(MAX_FRAME_BYTES + 1)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True  # the program left packets unread: the kernel says so once, before what the program has sent
        except OSError:
            packet = b""
        if not packet:
            self._drop(number)
            return False
        try:
            refusal = self._take(number, connection, decode(packet))
        except Exception as error:  # noqa: BLE001  an error that one program causes must not delay the others
            if not isinstance(error, FrameError):
                self._had_error(error)
            return self._bad_frame(number, connection, error)
        if refusal:
            self._part(number, refusal.reason, refusal.message)
            return False
        self._counts.frames_used.inc()
        ended = connection.session is not None and connection.session.ended
        if ended:
            self._drop(number)
        return not ended

    def _take(self, number: int, connection: ProgramConnection, frame: Frame) -> RejectedProcess | None:
        with self._lock:
            if isinstance(frame, Hello):
                if connection.session is not None and frame.nonce != connection.session.process.nonce:
                    raise FrameError("Hello names another process; open a connection for each process")
                joined = self._registry.join(frame, connection.peer, number)
                if isinstance(joined, RejectedProcess):
                    return joined
                connection.session = joined
                joined.outbox.reception(self.page)
                self._places.greeted(number)
                self._to_send.add(number)
            elif connection.session is None:
                raise FrameError(f"{type(frame).__name__} frame came before Hello; it is ignored")
            else:
                self._registry.take(connection.session, frame, self._clock())
                if connection.session.outbox.next_packet is not None:
                    self._to_send.add(number)
        return None

    def _read_left(self) -> bool:
        """Process one report that a program has left; False if there is none for now."""
        file = self._left.next()
        if file is None:
            return False
        try:
            content = self._left.content(file)
            refusal = self._take_left(file, content) if content is not None else None
        except Exception as error:  # noqa: BLE001  an error that one program causes must not delay the others
            if not isinstance(error, FrameError):
                self._had_error(error)
            refusal = RejectedProcess("frames", str(error))
        if refusal:
            self._left.refuse(file, refusal.reason, refusal.message)
        return True

    def _take_left(self, file: LeftFile, content: bytes) -> RejectedProcess | None:
        """Process the frames of a left report, as those of a connection."""
        packets, bad_frames = split_packets(content), 0
        hello = decode(next(packets, b""))
        if not isinstance(hello, Hello) or hello.nonce != file.name:
            raise FrameError("it does not begin with the Hello of its process")
        with self._lock:
            session = self._registry.recall(hello, file.uid, self._clock())
        if session is None or isinstance(session, RejectedProcess):
            return session
        for packet in packets:
            try:
                frame = decode(packet)
                with self._lock:
                    self._registry.take(session, frame, self._clock())
                self._counts.frames_used.inc()
            except FrameError:
                self._counts.frames_bad.inc()
                bad_frames += 1
                if bad_frames >= self._limits.bad_frames:
                    raise
        with self._lock:
            self._left.used(file)
        return None

    def _bad_frame(self, number: int, connection: ProgramConnection, error: Exception) -> bool:
        self._counts.frames_bad.inc()
        connection.bad_frames += 1
        if connection.bad_frames < self._limits.bad_frames:
            return True
        self._part(number, "frames", f"{connection.bad_frames} bad frames, the last: {error}")
        return False

    def _part(self, number: int, reason: str, message: str) -> None:
        """Close a connection for a reason of `REFUSALS`, which is counted and logged."""
        connection = self._places.get(number)
        if connection is not None:
            self._refused(connection, reason, message)
            self._drop(number)

    def _write(self, number: int) -> None:
        """Send waiting packets of a connection, as far as its socket accepts them."""
        connection = self._places.get(number)
        if connection is None or connection.session is None:
            return
        full = False
        with self._lock:
            while (packet := connection.session.outbox.next_packet) is not None and not full:
                try:
                    connection.socket.send(packet)
                    connection.session.outbox.packet_sent()
                except BlockingIOError:
                    full = True
                except OSError:
                    break
        if full != connection.writing:
            connection.writing = full
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if full else 0)
            self._selector.modify(connection.socket, events)

    def _drop(self, number: int) -> None:
        """Stop serving a connection; it is closed after its last report is on disk."""
        connection = self._places.remove(number)
        self._selector.unregister(connection.socket)
        with self._lock:
            self._registry.leave(number, self._clock())
            if connection.session is not None and connection.session.ended:
                self._left.ended(connection.session.process.nonce, connection.peer.uid)
        self._leaving.add(connection)
        self._counts.connections.set(len(self._places))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")
