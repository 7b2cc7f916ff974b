"""Ended connections, which are closed after the last report of their process is on disk."""

import threading
import time
from collections.abc import Callable
from typing import Final

from kernelcast.exporter.programs.final_reports import Departure, FinalReports, sync
from kernelcast.exporter.programs.places import ProgramConnection
from kernelcast.exporter.programs.registry import ProbeRegistry

WRITE_INTERVAL_SECONDS: Final = 0.1
"""Interval between two writes of last reports; programs that end in between share the next write."""


class Leaving:
    """Ended connections that are not closed yet. Only the probe server's thread uses it.

    Args:
        registry: The registry of processes.
        lock: The server's lock, which protects the registry and the reports.
        clock: Monotonic seconds.

    Attributes:
        final_reports: The log on disk; None without a state, and connections are closed at once.
    """

    def __init__(
        self, registry: ProbeRegistry, lock: threading.Lock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._lock = lock
        self._clock = clock
        self._connections: list[ProgramConnection] = []
        self._next_write = 0.0
        self.final_reports: FinalReports | None = None

    def add(self, connection: ProgramConnection) -> None:
        """Add an ended connection; it is closed at once if the state on disk includes all of its process' totals."""
        session = connection.session
        if self.final_reports is None or session is None or not session.has_unsaved:
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
        """Write the last reports of the waiting programs, with one sync for all, and close the connections."""
        leaving, self._connections = self._connections, []
        if self.final_reports is not None and leaving:
            with self._lock:
                file = self.final_reports.append(
                    Departure(left.session, self._registry.has_ended(left.session, left.peer))
                    for left in leaving
                    if left.session is not None
                )
            sync(file)
            self._next_write = self._clock() + WRITE_INTERVAL_SECONDS
        for left in leaving:
            left.socket.close()
