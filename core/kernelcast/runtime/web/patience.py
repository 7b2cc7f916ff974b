"""uvicorn's protocol with a time limit for receiving a request; uvicorn itself waits for ever.

Without it, a few hundred silent connections would use up the server's limit, and Prometheus could not scrape it.
"""

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kernelcast.runtime.web.connections import OpenConnections


class PatientProtocol(H11Protocol):
    """The protocol of one connection. The time limit runs from its beginning, and again from the end of each response.

    It also reports to `connections` whose turn it is, the client's or the server's. asyncio calls its methods on the
    event loop's thread.
    """

    request_seconds: ClassVar[float]
    server_connections: ClassVar[OpenConnections]
    _deadline: asyncio.TimerHandle | None = None
    _answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin with the client's turn."""
        super().connection_made(transport)
        self.server_connections.taken_over(transport)
        self._wait_for_request()

    def handle_events(self) -> None:
        """Process received data; once a request is complete, the time limit ends."""
        super().handle_events()
        # h11's state of the client: IDLE before a request, SEND_BODY within one; any other means that it is complete.
        if not self._answering and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_waiting()
            self._answering = True
            self.server_connections.works(self.transport)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait_for_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        self.server_connections.waits(self.transport)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on with the response, if there is more of it."""
        if self._answering:
            self.server_connections.works(self.transport)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self._answering = False
        self.server_connections.waits(self.transport)
        self._deadline = self.loop.call_later(self.request_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def patient_protocol(request_seconds: float, connections: OpenConnections) -> type[H11Protocol]:
    """Return uvicorn's protocol with a time limit for the next request of each connection, its body included."""
    return type(
        "PatientProtocol", (PatientProtocol,), {"request_seconds": request_seconds, "server_connections": connections}
    )
