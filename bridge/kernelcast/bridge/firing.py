"""The alerts that fire now, as Alertmanager's notifications have told this bridge; in memory only."""

import threading
from collections.abc import Sequence
from typing import Final

from kernelcast.bridge.clock import Clock
from kernelcast.view.model import Alerts
from kernelcast.view.words import since
from kernelcast.wire.events import Alert

FORGET_SECONDS: Final = 9 * 3600
"""Age at which an alert is dropped: Alertmanager repeats one that fires every 4 hours (`grafana/alertmanager.py`)."""
MAX_ALERTS: Final = 10_000


class FiringAlerts:
    """Keeps the alerts that fire, by fingerprint. Any thread may use it.

    Args:
        clock: Gives the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began_ns = clock.now_ns()
        self._heard = False
        self._alerts: dict[str, tuple[int, dict[str, str]]] = {}

    def note(self, alerts: Sequence[Alert]) -> None:
        """Take note of a notification: an alert of it fires, or has been resolved."""
        now_ns = self._clock.now_ns()
        with self._lock:
            self._heard = True
            for alert in alerts:
                self._alerts.pop(alert.fingerprint, None)
                if alert.status == "firing" and len(self._alerts) < MAX_ALERTS:
                    self._alerts[alert.fingerprint] = now_ns, alert.labels

    def now(self) -> Alerts:
        """The alerts for people that fire; unknown until the first notification."""
        now_ns = self._clock.now_ns()
        with self._lock:
            if not self._heard:
                age = since((now_ns - self._began_ns) / 1e9)
                return Alerts(None, f"Alertmanager has sent none since this bridge began, {age} ago")
            oldest_ns = now_ns - FORGET_SECONDS * 10**9
            return Alerts.for_people([labels for heard_ns, labels in self._alerts.values() if heard_ns >= oldest_ns])
