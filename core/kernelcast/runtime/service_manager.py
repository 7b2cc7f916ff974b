"""Notifications to systemd: readiness, state, and a watchdog that the progress of each loop feeds.

A daemon's command makes one `ServiceManager` from its environment, and each loop that must not hang gets a part of it.
Protocol: sd_notify(3), one datagram for each notification to the socket that `NOTIFY_SOCKET` names.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Final, Self

from kernelcast.runtime.logging import get_logger

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
PERIOD_VARIABLE: Final = "WATCHDOG_USEC"
PID_VARIABLE: Final = "WATCHDOG_PID"
STATUS_SECONDS: Final = 5.0
"""Minimum time between two texts of the state, and before a notification that systemd did not get is sent again."""
WAIT_SECONDS: Final = 10.0
"""Longest single wait of a part whose period is not known."""
_NOTIFICATIONS_PER_PERIOD: Final = 4
"""Notifications within the watchdog's period, so that a late one does no harm."""
_MAX_STATUS_CHARACTERS: Final = 400
"""`systemctl status` shows one line."""

Check = Callable[[], tuple[bool, str]]
Send = Callable[[bytes], object]

_log = get_logger(__name__)


class ServiceLoop:
    """One loop of a service, which reports its progress; any thread may use it."""

    def __init__(self, manager: "ServiceManager", name: str) -> None:
        self._manager = manager
        self._name = name

    def progressed(self) -> None:
        """Report that the loop has completed a pass."""
        self._manager.progressed(self._name)

    def wait(self, wait: Callable[[float], bool], seconds: float) -> bool:
        """Wait on an event in slices, and report progress after each: a loop that waits is not hung.

        Args:
            wait: Waits for at most the given seconds; returns whether the event is set.
            seconds: The whole time.

        Returns:
            Whether the event is set.
        """
        left = seconds
        while left > self._manager.slice_seconds:
            if wait(self._manager.slice_seconds):
                return True
            self.progressed()
            left -= self._manager.slice_seconds
        return wait(left)


class ServiceManager:
    """Sends the state of this process to systemd; without `NOTIFY_SOCKET` it does nothing.

    A part is a loop of the service. `READY=1` is sent when each part has progressed once. `WATCHDOG=1` is sent when
    each part has progressed since the last one: if one part hangs, no further one is sent, and systemd restarts the
    service. Sending never blocks or raises. Any thread may use it, except `report`, which is for one.

    Args:
        send: Sends one datagram; None without a service manager.
        watchdog_seconds: Time without `WATCHDOG=1` after which systemd restarts the service; 0 without a watchdog.
        clock: Monotonic seconds.

    Attributes:
        slice_seconds: Longest time that a part waits between two reports.
    """

    def __init__(
        self, send: Send | None = None, *, watchdog_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send
        self._clock = clock
        self._watchdog = watchdog_seconds > 0
        self.slice_seconds = watchdog_seconds / _NOTIFICATIONS_PER_PERIOD if self._watchdog else WAIT_SECONDS
        self._lock = threading.Lock()
        self._parts: set[str] = set()
        self._missing: set[str] = set()
        """Parts without progress since the last notification."""
        self._ready = False
        self._notification_due = 0.0
        self._status = ""
        self._report_due = float("-inf")

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str], *, pid: int | None = None) -> Self:
        """Make one from the variables that systemd sets, and remove them, so that no child process uses them.

        Args:
            environ: The process's environment.
            pid: The process's number; this one's by default. A watchdog that is meant for another process is ignored.
        """
        address = environ.pop(SOCKET_VARIABLE, "")
        period, owner = environ.pop(PERIOD_VARIABLE, ""), environ.pop(PID_VARIABLE, "")
        if not address:
            return cls()
        own = owner in ("", str(pid if pid is not None else os.getpid()))
        return cls(datagrams_to(address), watchdog_seconds=int(period) / 1e6 if own and period.isdecimal() else 0.0)

    def part(self, name: str) -> ServiceLoop:
        """Add a part; the service is ready once it has progressed."""
        with self._lock:
            self._parts.add(name)
            self._missing.add(name)
        return ServiceLoop(self, name)

    def progressed(self, name: str) -> None:
        """Record the progress of a part, and send the notifications that are due."""
        if self._send is None:
            return
        with self._lock:
            self._missing.discard(name)
            now = self._clock()
            if self._missing or now < self._notification_due:  # or the last notification was a moment ago
                return
            self._missing = set(self._parts)
            self._notification_due = now + self.slice_seconds
            first = not self._ready
            notifications = (["READY=1"] if first else []) + (["WATCHDOG=1"] if self._watchdog else [])
            self._ready = True
        if notifications and not self._notify("\n".join(notifications)):
            with self._lock:
                self._ready = not first
                self._notification_due = min(self._notification_due, now + STATUS_SECONDS)

    def report(self, check: Check) -> None:
        """Send the state in one line, which `systemctl status` shows, when it has changed; at most every 5 s.

        Args:
            check: Returns whether the service is of use, and if not, the reason; its exception is a reason, too.
        """
        if self._send is None or self._clock() < self._report_due:
            return
        try:
            ready, reason = check()
        except Exception as error:  # noqa: BLE001  whatever it is, the loop that reports must go on
            ready, reason = False, repr(error)
        line = "ready" if ready else " ".join(f"not ready: {reason}".split())[:_MAX_STATUS_CHARACTERS]
        self._report_due = self._clock() + STATUS_SECONDS
        if line != self._status and self._notify(f"STATUS={line}"):
            self._status = line

    def stopping(self) -> None:
        """Announce that the service stops; from then on systemd expects no progress."""
        self._notify("STOPPING=1")

    def _notify(self, text: str) -> bool:
        """Send a notification; returns whether systemd has it."""
        if self._send is None:
            return False
        try:
            self._send(text.encode(errors="replace"))
        except OSError as error:
            _log.warning("systemd not notified", notification=text, reason=str(error))
            return False
        return True


def datagrams_to(address: str) -> Send:
    """Return a function that sends datagrams to a Unix socket, `@` first for an abstract one; it does not block."""
    target = f"\0{address[1:]}" if address.startswith("@") else address

    def send(datagram: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(datagram, target)

    return send
