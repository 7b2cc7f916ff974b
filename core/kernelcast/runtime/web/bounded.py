"""Runs a synchronous endpoint on a few threads of its own, so that it does not use up those of other endpoints.

The web server runs `/metrics` with it, because a scrape may wait for the bridge's lock.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

THREADS: Final = 8
"""Requests that are answered at one time; the others wait on the event loop."""
MAX_WAITING: Final = 400
"""Above the expected number of simultaneous scrapes, below the limit of connections."""
LONGEST_WAIT_SECONDS: Final = 10.0
"""Prometheus' default `scrape_timeout`: a client that has waited longer has disconnected."""
RETRY_SECONDS: Final = 5


@dataclass(eq=False)
class BoundedEndpoint:
    """A Starlette endpoint around one that may block. Only the event loop uses it.

    A thread that waits for a lock cannot be freed when its client has disconnected. So threads are few, and requests
    wait for one on the event loop, where a deadline ends the wait. A refused request gets 503 and Retry-After.

    Attributes:
        endpoint: Called on a thread.
        count: Counts a refused request, with the reason: `waiting` (too many wait) or `waited` (for too long).
        threads: Largest number of requests that run at one time.
        max_waiting: Largest number of waiting requests.
        longest_wait_seconds: Longest wait of a request.
    """

    endpoint: Callable[[Request], Response]
    count: Callable[[str], None] = lambda _reason: None
    threads: int = THREADS
    max_waiting: int = MAX_WAITING
    longest_wait_seconds: float = LONGEST_WAIT_SECONDS
    _waiting: int = 0
    _running: asyncio.Semaphore = field(init=False)
    _limiter: anyio.CapacityLimiter = field(init=False)

    def __post_init__(self) -> None:
        self._running = asyncio.Semaphore(self.threads)
        self._limiter = anyio.CapacityLimiter(self.threads)

    async def answer(self, request: Request) -> Response:
        """Answer with the endpoint's response, or refuse the request."""
        if self._waiting >= self.max_waiting:
            return self._refusal("waiting", f"{self._waiting} requests wait already, the limit")
        if not await self._wait_for_thread():
            return self._refusal("waited", f"it has waited for {self.longest_wait_seconds:g} s, the limit")
        try:
            if await request.is_disconnected():
                return Response(status_code=503)
            return await anyio.to_thread.run_sync(self.endpoint, request, limiter=self._limiter)
        finally:
            self._running.release()

    async def _wait_for_thread(self) -> bool:
        """Wait for a thread; returns whether there is one. A caller that gets True must release it."""
        self._waiting += 1
        try:
            async with asyncio.timeout(self.longest_wait_seconds):
                await self._running.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    def _refusal(self, reason: str, why: str) -> Response:
        self.count(reason)
        wait = str(RETRY_SECONDS)
        return PlainTextResponse(
            f"the server is busy: {why}; try again in {wait} s, or scrape less often\n",
            status_code=503,
            headers={"Retry-After": wait},
        )
