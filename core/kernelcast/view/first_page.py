"""The part of a daemon's first page that shows what matters now: read anew for each viewer, at most once a second."""

import time
from collections.abc import Callable
from typing import Final

from kernelcast.view.html import body
from kernelcast.view.model import Alerts, Recent
from kernelcast.view.page import ScrapedPage
from kernelcast.wire.errors import PageError

LEAST_SECONDS: Final = 1.0
"""Time between two readings: viewers within it see the same figures."""


class FirstPage:
    """Draws the newest pages of the daemon itself. Only one thread at a time may use it.

    Pages are read only while somebody looks, so a daemon that nobody looks at spends nothing; the first picture has
    no rates.
    """

    def __init__(
        self,
        read: Callable[[], ScrapedPage],
        alerts: Callable[[], Alerts] = lambda: Alerts(None, "Alertmanager sends them to a bridge"),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare.

        Args:
            read: Reads the daemon's page; a `PageError` says why that cannot be.
            alerts: Gives the alerts that fire.
            clock: Unix seconds.
        """
        self._read, self._alerts, self._clock = read, alerts, clock
        self._recent = Recent("")
        self._read_seconds = 0.0

    def body(self) -> str:
        """The picture of now as HTML."""
        now = self._clock()
        if not 0 <= now - self._read_seconds < LEAST_SECONDS:
            self._read_seconds = now
            self._recent.error = ""
            try:
                self._recent.add(now, self._read())
            except PageError as error:
                self._recent.error = str(error)
        self._recent.alerts = self._alerts()
        return body(self._recent.picture(now))
