"""Answers the pages' queries without a Prometheus: from the ring of the bridge's own last minutes.

`Bridge` makes one `LocalPages` where `pages.prometheus_url` is empty, `PageSite` routes requests to it, and the answers
have the form of Prometheus' HTTP API, so that the page's script needs no other code.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
import numpy as np
import structlog
from starlette.requests import Request
from starlette.responses import Response

from kernelcast.bridge.browser.connections import ForwardedAnswer
from kernelcast.bridge.browser.models import PageModel, page_model
from kernelcast.bridge.browser.queries import Vector
from kernelcast.bridge.browser.ring import SampleRing, read_at_intervals
from kernelcast.bridge.browser.screen_model import Screen
from kernelcast.bridge.browser.screens import SCREENS, families
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.pages.layout import SnapshotSource

MAX_SERIES: Final = 500
"""Series in one answer; more are left out, those with the smallest last values first."""
MAX_STALE_SECONDS: Final = 300.0
"""As long as Prometheus looks back for a sample: an older reading is no answer."""
THREADS: Final = 2
"""Queries that are evaluated at one time, with numpy; the event loop stays free meanwhile."""


class LocalPages:
    """The ring, the thread that fills it, and the answers from it.

    The thread `pages` reads the store; requests are answered on the event loop, which evaluates queries on threads. The
    ring has a lock, everything else is set once.
    """

    def __init__(
        self,
        settings: PagesSettings,
        source: SnapshotSource,
        *,
        hidden: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        screens: Sequence[Screen] = SCREENS,
    ) -> None:
        """Prepare; `start` begins to read.

        Args:
            settings: Interval and number of series.
            source: The store.
            hidden: Whether the store's series must not be shown now; then nothing is read.
            clock: Seconds since the epoch.
            screens: The pages.
        """
        self.ring = SampleRing(families(screens), settings.ring_interval_seconds, settings.ring_series)
        self._source, self._hidden, self._clock = source, hidden, clock
        self._screens = {screen.uid: screen for screen in screens}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._threads = anyio.CapacityLimiter(THREADS)

    def models(self) -> tuple[PageModel, ...]:
        """The pages."""
        return tuple(page_model(screen.model()) for screen in self._screens.values())

    def start(self) -> None:
        """Begin to read the store."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def ring_status(self) -> dict[str, Any]:
        """Size and limits of the ring, for the head of each page."""
        ring = self.ring
        return {
            "series": ring.series,
            "max_series": ring.max_series,
            "dropped_series": ring.dropped_series,
            "bytes": ring.bytes,
            "max_bytes": ring.max_bytes,
            "seconds": round(ring.columns * ring.interval_seconds - ring.interval_seconds),
        }

    async def answer(self, request: Request) -> Response:
        """Answer one target of a page: `uid`, `panel` and `ref` name it, `range` asks for all of the ring's times."""
        answer = await self.ask(f"local?{request.url.query}")
        headers = {"content-type": answer.content_type, "cache-control": "no-store"}
        return Response(answer.body, status_code=answer.status, headers=headers)

    async def ask(self, query: str) -> ForwardedAnswer:
        """Answer `local?parameters`, where `answer` names the parameters."""
        parameters = dict(parse_qsl(query.partition("?")[2]))
        screen = self._screens.get(parameters.get("uid", ""))
        panel = parameters.get("panel", "")
        number = int(panel) if panel.isascii() and panel.isdigit() and len(panel) < 5 else 0
        target = screen.target(number, parameters.get("ref", "")) if screen is not None else None
        if target is None:
            return _json(404, {"status": "error", "error": "no page has this query"})
        vector = await anyio.to_thread.run_sync(target.evaluate, self.ring, limiter=self._threads)
        result = matrix(vector) if parameters.get("range") else instant(vector, self._clock())
        return _json(200, {"status": "success", "data": {"result": result}})

    def _run(self) -> None:
        def wait(seconds: float) -> bool:
            while not self._stop.wait(seconds):
                if not self._hidden():
                    return False
            return True

        try:
            read_at_intervals(self.ring, self._source, clock=self._clock, wait=wait)
        except Exception:  # noqa: BLE001  the pages say that there is no data; the bridge goes on
            structlog.stdlib.get_logger("bridge.pages").exception("the pages' readings have ended")


def instant(vector: Vector, now_seconds: float) -> list[dict[str, Any]]:
    """The newest values as Prometheus writes them; none where the newest reading is too old."""
    if not len(vector.times) or now_seconds - vector.times[-1] > MAX_STALE_SECONDS:
        return []
    newest = [(labels, float(values[-1])) for labels, values in vector.series.items() if not math.isnan(values[-1])]
    newest.sort(key=lambda item: -item[1])
    time_seconds = round(float(vector.times[-1]), 3)
    return [
        {"metric": dict(labels), "value": [time_seconds, _sample_text(value)]} for labels, value in newest[:MAX_SERIES]
    ]


def matrix(vector: Vector) -> list[dict[str, Any]]:
    """All values as Prometheus writes them; a gap has no sample."""
    times = np.round(vector.times, 3).tolist()
    answer = []
    for labels, values in list(vector.series.items())[:MAX_SERIES]:
        points = [
            [moment, _sample_text(value)]
            for moment, value in zip(times, values.tolist(), strict=True)
            if not math.isnan(value)
        ]
        if points:
            answer.append({"metric": dict(labels), "values": points})
    return answer


def _json(status: int, body: dict[str, Any]) -> ForwardedAnswer:
    return ForwardedAnswer(status, "application/json", "", json.dumps(body, separators=(",", ":")).encode())


def _sample_text(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
