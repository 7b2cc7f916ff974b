"""Registry of all processes that report to this node, and of the hints that wait for them.

Not thread-safe; `ProbeServer` calls it under its lock. Methods that return numbers return the file descriptors of
connections that now have packets to send.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from kernelcast.exporter.hints.approvals import deliverable
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.hints.receivers import HintReceivers
from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.limits import ProbeLimits, check_hello
from kernelcast.exporter.programs.outcomes import ReceivedOutcomes, by_process
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer, has_ended
from kernelcast.exporter.programs.standing import JudgedProcess, StandingJudge
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.errors import DeviceError
from kernelcast.wire.events import Hint
from kernelcast.wire.frames import DeviceClaim, Frame, Hello
from kernelcast.wire.identity import Device
from kernelcast.wire.tuning.approvals import Approval, ApprovalState
from kernelcast.wire.tuning.experience import Experience
from kernelcast.wire.tuning.orders import ANY

MAX_HINTS: Final = 1024
"""Hints that are kept for processes that connect later; beyond it the oldest is dropped and counted."""
MAX_EXPERIENCES: Final = 1024
"""Results of searches that are kept likewise."""
UNNAMED: Final = DeviceClaim(uuid="")
"""Claim of a process that names no device: the resolver finds the node's only one."""

_log = get_logger(__name__)

Resolver = Callable[[DeviceClaim], Device]


@dataclass(frozen=True, slots=True)
class RejectedProcess:
    """Rejection of a process: the reason as in the counter's label, and a sentence for people."""

    reason: str
    message: str


@dataclass(slots=True)
class RegisteredProcess:
    """A process and its connection.

    Attributes:
        session: Its session.
        peer: Its credentials from the kernel.
        connection: The number of its connection; None while it is disconnected.
        away_since_ns: When it was disconnected, Unix nanoseconds.
        image: Of its container, as the orchestrator knows it; empty while that is not known.
    """

    session: ProbeSession
    peer: Peer
    connection: int | None
    away_since_ns: int = 0
    image: str = ""


def _no_image(_pid: int) -> str:
    """No image is known."""
    return ""


class ProbeRegistry:
    """Processes by nonce.

    Args:
        devices: Completes a process's claim of its GPU.
        limits: Bounds.
        counts: Self metrics.
        ended: Returns whether a pid has ended; passed in for tests.
        judge: Judges whether programs stand still; None does not.

    Attributes:
        image_of: Returns the image of the container in which a pid runs, without waiting; empty while it is not known.
        receivers: The users whose processes got each hint.
        keep_unsaved: Whether new sessions keep the reports of a poll until `saved` is called.
        asked: Connections that have packets to send since the last `reports`.
    """

    def __init__(
        self,
        devices: Resolver,
        limits: ProbeLimits,
        counts: ProbeCounts,
        ended: Callable[[int], bool] = has_ended,
        judge: StandingJudge | None = None,
    ) -> None:
        self._devices = devices
        self._limits = limits
        self._counts = counts
        self._ended = ended
        self._judge = judge
        self.image_of: Callable[[int], str] = _no_image
        self.receivers = HintReceivers()
        self.keep_unsaved = False
        self.asked: set[int] = set()
        self._entries: dict[str, RegisteredProcess] = {}
        self._hints: OrderedDict[str, Hint] = OrderedDict()
        self._approvals: dict[str, Approval] = {}
        self._experiences: OrderedDict[str, Experience] = OrderedDict()
        self._stopped: frozenset[str] = frozenset()
        self._outcomes = ReceivedOutcomes(limits.outcomes)
        self._departed: list[ProbeSession] = []

    def join(self, hello: Hello, peer: Peer, connection: int | None) -> ProbeSession | RejectedProcess:
        """Register a process, or reconnect it to its session.

        Args:
            hello: Its Hello.
            peer: Its credentials. Without a pid only the user must be that of an earlier connection.
            connection: The number of its connection; None for a report that it has left.

        Returns:
            Its registration, or the reason for rejection: wrong credentials, no room, unknown GPU.

        Raises:
            FrameError: Its Hello breaks the contract.
        """
        process = check_hello(hello, self._limits, peer.pid)
        known = self._entries.get(hello.nonce)
        if known and not known.session.ended:
            if known.peer.uid != peer.uid or (known.peer.pid != peer.pid and known.peer.pid and peer.pid):
                return RejectedProcess("foreign", f"process {peer.pid} gave the nonce of process {known.peer.pid}")
            if not known.peer.pid:
                known.peer, known.session.process = peer, process
            known.connection = connection
            known.session.rejoin(hello)
            self._tell_all(known.session)
            return known.session
        if len(self._entries) >= self._limits.processes and not self._make_room(peer.uid):
            return RejectedProcess("limit", f"{len(self._entries)} processes are known; raise the limit of processes")
        try:
            devices = tuple(self._devices(claim) for claim in hello.devices or (UNNAMED,))
        except DeviceError as error:
            return RejectedProcess("device", str(error))
        session = ProbeSession(process, hello, devices, self._limits, keep_unsaved=self.keep_unsaved)
        session.uid = peer.uid
        self._entries[hello.nonce] = RegisteredProcess(session, peer, connection)
        self._counts.processes.set(len(self._entries))
        self._tell_all(session)
        return session

    def recall(self, hello: Hello, uid: int, now_ns: int) -> ProbeSession | RejectedProcess | None:
        """Register a process that has left a report, without a connection; None if the report has to wait.

        It waits while the process is connected, so that it reports all totals itself, and until its end was reported.

        Raises:
            FrameError: Likewise.
        """
        known = self._entries.get(hello.nonce)
        if known and (known.connection is not None or known.session.ended):
            return None
        joined = self.join(hello, Peer(0, uid), None)
        if isinstance(joined, RejectedProcess):
            return None if joined.reason == "limit" else joined
        self._entries[hello.nonce].away_since_ns = now_ns
        return joined

    def take(self, session: ProbeSession, frame: Frame, now_ns: int) -> None:
        """Process a frame of a process.

        Raises:
            FrameError: It breaks the contract.
        """
        before = session.tunables
        outcome = session.take(frame)
        if outcome is not None:
            self._note(outcome, session, now_ns)
        if session.tunables is not before:
            for hint in self._valid_hints(now_ns):
                self._hand(hint, session, now_ns)

    def leave(self, connection: int, now_ns: int) -> None:
        """Note that a connection has ended; its process may reconnect."""
        for entry in self._entries.values():
            if entry.connection == connection:
                entry.connection, entry.away_since_ns = None, now_ns

    def deliver(self, hint: Hint, now_ns: int) -> list[int]:
        """Queue a hint for every matching process, and keep it for those that connect before it expires.

        Returns:
            The connections that now have packets to send.
        """
        self._hints[hint.key] = hint
        self._hints.move_to_end(hint.key)
        if len(self._hints) > MAX_HINTS:
            self._hints.popitem(last=False)
            self._counts.hints_dropped.inc()
        if hint.expires_at_ns <= now_ns:
            del self._hints[hint.key]
            return []
        return [
            entry.connection
            for entry in self._entries.values()
            if entry.connection is not None and self._hand(hint, entry.session, now_ns)
        ]

    def withdraw(self, key: str, now_ns: int) -> list[int]:
        """Drop the hint with this key, and withdraw it from the processes that have it.

        Returns:
            The connections that now have packets to send.
        """
        self._hints.pop(key, None)
        return [
            entry.connection
            for entry in self._entries.values()
            if entry.session.outbox.withdraw(key, now_ns) and entry.connection is not None
        ]

    def stop(self, programs: Collection[str], now_ns: int) -> list[int]:
        """Withdraw every hint from processes of these programs, and queue none for them; other programs may go on.

        Hints that come while their program is stopped are kept, and queued when it is stopped no more.

        Args:
            programs: All programs that are stopped from now on; `*` is every program.
            now_ns: Unix nanoseconds.

        Returns:
            The connections that now have packets to send.
        """
        before, self._stopped = self._stopped, frozenset(programs)
        numbers = set[int]()
        for entry in self._entries.values():
            session = entry.session
            was = _names(before, session)
            if self._is_stopped(session) and not was:
                for key in session.outbox.delivered:
                    self._hints.pop(key, None)
                    if session.outbox.withdraw(key, now_ns) and entry.connection is not None:
                        numbers.add(entry.connection)
            elif was and not self._is_stopped(session) and entry.connection is not None:
                handed = [self._hand(hint, session, now_ns) for hint in self._valid_hints(now_ns)]
                numbers.update([entry.connection] if any(handed) else [])
        return sorted(numbers)

    def approve(self, approvals: Iterable[Approval], now_ns: int) -> list[int]:
        """Deliver the hints that are approved from now on, and withdraw those that are no longer.

        Args:
            approvals: All answers of people that are known.
            now_ns: Unix nanoseconds.

        Returns:
            The connections that now have packets to send.
        """
        before, self._approvals = self._approvals, {one.hint_id: one for one in approvals}
        ended = [one for one in before.values() if not _approves(self._approvals.get(one.hint_id))]
        answers = [*(replace(one, state=ApprovalState.WITHDRAWN) for one in ended), *self._approvals.values()]
        numbers = set[int]()
        for entry in self._entries.values():
            withdrawn = [entry.session.outbox.withdraw_hint(one.hint_id, now_ns) for one in ended]
            if entry.connection is None:
                continue  # it gets withdrawals, hints and answers when it reconnects
            handed = [self._hand(hint, entry.session, now_ns) for hint in self._valid_hints(now_ns)]
            searches = [_answer(entry.session, one) for one in answers]
            if any((*withdrawn, *handed, *searches)):
                numbers.add(entry.connection)
        return sorted(numbers)

    def teach(self, experience: Experience, now_ns: int) -> list[int]:
        """Keep results of searches, and queue them for the processes that they concern.

        Returns:
            The connections that now have packets to send.
        """
        self._experiences[experience.key] = experience
        self._experiences.move_to_end(experience.key)
        if len(self._experiences) > MAX_EXPERIENCES:
            self._experiences.popitem(last=False)
        return [
            entry.connection
            for entry in self._entries.values()
            if entry.connection is not None and self._teach(entry.session, experience, now_ns)
        ]

    def reports(self, now_ns: int) -> tuple[ProcessReport, ...]:
        """Return new reports of every process; ended processes report for the last time."""
        found = [report for session in self._departed for report in session.reports()]
        self._departed = []
        if self._judge is not None:
            self._judge.begin(time.monotonic())
        for nonce, entry in list(self._entries.items()):
            session = entry.session
            if entry.connection is None and not session.ended:
                absent_ns = now_ns - entry.away_since_ns
                away_too_long = absent_ns >= self._limits.absence_seconds * NANOSECONDS
                session.lost = self._ended(entry.peer.pid)
                session.ended = away_too_long or session.lost
                if session.lost:
                    process = session.process
                    _log.warning("process has ended without a word", program=process.program, rank=process.rank)
            if self._judge is not None and not session.ended:
                self._stand(entry, self._judge)
            found.extend(self._with_image(report, entry) for report in session.reports())
            if session.ended:
                del self._entries[nonce]
        self._counts.processes.set(len(self._entries))
        return tuple(found)

    def _stand(self, entry: RegisteredProcess, judge: StandingJudge) -> None:
        session, process = entry.session, entry.session.process
        judged = JudgedProcess(
            process.program,
            process.rank,
            process.nonce,
            session.devices[0].hostname,
            entry.peer.pid,
            is_connected=entry.connection is not None,
        )

        def ask() -> None:
            session.outbox.stacks()
            if entry.connection is not None:
                self.asked.add(entry.connection)

        session.judged(judge.judge(judged, session.progress, ask))

    def _with_image(self, report: ProcessReport, entry: RegisteredProcess) -> ProcessReport:
        """Add the image of the process's container, unless the program has named one; it never changes in its life."""
        if report.versions.image or not entry.peer.pid:
            return report
        entry.image = entry.image or self.image_of(entry.peer.pid)
        return replace(report, versions=replace(report.versions, image=entry.image)) if entry.image else report

    def saved(self) -> None:
        """Note that the state on disk holds the last `reports`."""
        for entry in self._entries.values():
            entry.session.saved()

    def has_ended(self, session: ProbeSession, peer: Peer) -> bool:
        """Whether a process has sent `Bye`, or its pid no longer exists."""
        return session.ended or self._ended(peer.pid)

    def outcomes(self) -> list[ReceivedOutcome]:
        """Return the outcomes since the last call."""
        return self._outcomes.take()

    def confirm(self, outcomes: Iterable[ReceivedOutcome]) -> set[int]:
        """Queue confirmations for the connected processes; returns the connections that now have packets to send."""
        outcomes = list(outcomes)
        self._outcomes.settled(outcomes)
        batches = [(self._entries.get(nonce), ids) for nonce, ids in by_process(outcomes)]
        return {
            entry.connection
            for entry, ids in batches
            if entry is not None and entry.connection is not None and entry.session.confirm(ids)
        }

    def restore(self, outcomes: Iterable[ReceivedOutcome]) -> None:
        """Queue outcomes that an earlier run of this exporter got from processes that have ended since."""
        for one in outcomes:
            self._outcomes.add(one)

    def open_outcomes(self, session: ProbeSession) -> list[ReceivedOutcome]:
        """Return the outcomes of a process that Kafka has not acknowledged."""
        return self._outcomes.open_of(session.process.nonce)

    def entries(self) -> list[RegisteredProcess]:
        """Return every process, connected or not."""
        return list(self._entries.values())

    def _tell_all(self, session: ProbeSession) -> None:
        for experience in self._experiences.values():
            self._teach(session, experience, 0)
        for approval in self._approvals.values():
            _answer(session, approval)

    def _teach(self, session: ProbeSession, experience: Experience, now_ns: int) -> bool:
        if not session.concerns(experience):
            return False
        kept = tuple(one for one in experience.kept if one.is_for(session.devices[0].hostname))
        if session.outbox.findings(replace(experience, kept=kept), now_ns):
            return True
        self._counts.hints_dropped.inc()
        return False

    def _make_room(self, uid: int) -> bool:
        """End a long-disconnected process of the user with the most processes; False if there is none."""
        if len(self._departed) >= self._limits.processes:
            return False
        held = Counter(entry.peer.uid for entry in self._entries.values())
        heaviest = max(held, key=lambda user: held[user])
        owner = heaviest if held[heaviest] > held[uid] + 1 else uid
        away = [
            (entry.away_since_ns, nonce)
            for nonce, entry in self._entries.items()
            if entry.connection is None and entry.peer.uid == owner
        ]
        if not away:
            return False
        session = self._entries.pop(min(away)[1]).session
        session.ended = True
        self._departed.append(session)
        return True

    def _hand(self, hint: Hint, session: ProbeSession, now_ns: int) -> bool:
        claim = session.fits(hint)
        if self._is_stopped(session) or claim is None:
            return False
        ready = deliverable(hint, claim, self._approvals)
        if ready is None:
            return False
        if session.outbox.hint(ready, now_ns):
            self.receivers.add(hint.hint_id, session.uid)
            self._counts.hints_delivered.inc()
            return True
        self._counts.hints_dropped.inc()
        return False

    def _is_stopped(self, session: ProbeSession) -> bool:
        return _names(self._stopped, session)

    def _note(self, received: ReceivedOutcome, session: ProbeSession, now_ns: int) -> None:
        """Queue an outcome for the daemon, if a process of this user got the hint, or searched by itself."""
        outcome = received.outcome
        if not outcome.is_search and not self.receivers.includes(outcome.hint_id, session.uid, now_ns):
            self._counts.outcomes_refused.inc()
            session.confirm((received.event_id,))
            _log.warning("outcome refused: no process of this user got the hint", uid=session.uid)
            return
        if not self._outcomes.add(received):
            self._counts.outcomes_dropped.inc()

    def _valid_hints(self, now_ns: int) -> list[Hint]:
        for key in [key for key, hint in self._hints.items() if hint.expires_at_ns <= now_ns]:
            del self._hints[key]
        return list(self._hints.values())


def _approves(approval: Approval | None) -> bool:
    return approval is not None and approval.state is ApprovalState.APPROVED


def _answer(session: ProbeSession, approval: Approval) -> bool:
    """Queue an answer about a search of the session's program; False if it is not queued."""
    return session.searches(approval) and session.outbox.answer(approval)


def _names(programs: Collection[str], session: ProbeSession) -> bool:
    """Whether a set of programs includes that of a session."""
    return ANY in programs or session.process.program in programs
