"""Ended connections, which are closed once the last report and the outcomes of their process are on disk.

The totals of a program then survive a crash of the exporter, unless the disk failed or is full, which is counted, or
the exporter has no state directory.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kernelcast.exporter.programs.last.final_reports import Departure, FinalReports, sync
from kernelcast.exporter.programs.outcomes import IDS_AT_ONCE
from kernelcast.exporter.programs.places import ProgramConnection
from kernelcast.exporter.programs.registry import ProbeRegistry
from kernelcast.wire.frames import OutcomesConfirmed, encode

if TYPE_CHECKING:
    from kernelcast.exporter.hints.outcome_log import OutcomeLog

WRITE_INTERVAL_SECONDS: Final = 0.1
"""Interval between two writes of last reports; programs that end in between share the next write."""


class Leaving:
    """Ended connections that are not closed yet. Only the probe server's thread uses it.

    A process that has said `Bye` may still read, so outcomes that are on disk are confirmed to it.

    Args:
        registry: The registry of processes.
        lock: The server's lock, which protects the registry and the reports.
        now_ns: Unix nanoseconds.
        clock: Monotonic seconds.

    Attributes:
        final_reports: The log of reports on disk; None without a state, and connections are closed at once.
        outcome_log: The log of outcomes on disk; None likewise.
    """

    def __init__(
        self,
        registry: ProbeRegistry,
        lock: threading.Lock,
        now_ns: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._lock = lock
        self._now_ns = now_ns
        self._clock = clock
        self._connections: list[ProgramConnection] = []
        self._next_write = 0.0
        self.final_reports: FinalReports | None = None
        self.outcome_log: OutcomeLog | None = None

    def add(self, connection: ProgramConnection) -> None:
        """Add an ended connection; it is closed at once if all that its process has sent is on disk or on Kafka."""
        session = connection.session
        with self._lock:
            complete = session is None or not (session.has_unsaved or self._registry.open_outcomes(session))
        if self.final_reports is None or complete:
            connection.socket.close()
        else:
            self._connections.append(connection)

    def wait_seconds(self) -> float | None:
        """Return the seconds until `write` is due; None if no connection waits."""
        return max(0.0, self._next_write - self._clock()) if self._connections else None

    def write_if_due(self) -> None:
        """Write waiting reports if the write interval has passed."""
        if self.wait_seconds() == 0.0:
            self.write()

    def write(self) -> None:
        """Write last reports and outcomes of the waiting programs, with one sync for all, and close the connections.

        The connections are closed even if writing fails.
        """
        leaving, self._connections = self._connections, []
        with contextlib.ExitStack() as stack:
            for left in leaving:
                stack.callback(left.socket.close)
            if self.final_reports is not None and leaving:
                self._next_write = self._clock() + WRITE_INTERVAL_SECONDS
                for left, ids in zip(leaving, self._stored(self.final_reports, leaving), strict=True):
                    _confirm(left, ids)

    def _stored(self, final_reports: FinalReports, leaving: list[ProgramConnection]) -> list[list[str]]:
        """Write and sync reports and outcomes; returns the ids of each program's outcomes that are on disk."""
        with contextlib.ExitStack() as stack, self._lock:
            # The lock is released before the stack syncs.
            file = final_reports.append(
                Departure(left.session, self._registry.has_ended(left.session, left.peer))
                for left in leaving
                if left.session is not None and left.session.has_unsaved
            )
            stack.callback(sync, file)
            confirmed, outcomes_file = self._log_outcomes(leaving)
            stack.callback(sync, outcomes_file)
        return confirmed

    def _log_outcomes(self, leaving: list[ProgramConnection]) -> tuple[list[list[str]], int | None]:
        """Write the outcomes of programs that Kafka has not acknowledged; returns their ids by program, and a file."""
        if self.outcome_log is None:
            return [[] for _ in leaving], None
        found = [self._registry.open_outcomes(left.session) if left.session else [] for left in leaving]
        written, file = self.outcome_log.append([one for outcomes in found for one in outcomes], self._now_ns())
        on_disk = set(written)
        return [[one.event_id for one in outcomes if one.event_id in on_disk] for outcomes in found], file


def _confirm(connection: ProgramConnection, event_ids: list[str]) -> None:
    """Confirm outcomes that are on disk to a program that is ending, as far as its socket accepts packets."""
    with contextlib.suppress(OSError):
        for start in range(0, len(event_ids), IDS_AT_ONCE):
            for packet in encode(OutcomesConfirmed(tuple(event_ids[start : start + IDS_AT_ONCE]))):
                connection.socket.send(packet)
