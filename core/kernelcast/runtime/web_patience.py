"""How long a client may take to send its request; uvicorn itself waits for ever.

A few hundred connections that say nothing would otherwise be all that a server takes: nobody could scrape it any more.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def patient_protocol(request_seconds: float) -> type[H11Protocol]:
    """Uvicorn's protocol, closing connections whose next request is not there, body included, after so long."""

    class PatientProtocol(H11Protocol):
        """One connection; the time counts from its beginning, and again from the end of each response."""

        _overdue: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            self._wait_for_request()

        def handle_events(self) -> None:
            super().handle_events()
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._stop_waiting()

        def on_response_complete(self) -> None:
            self._wait_for_request()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait_for_request(self) -> None:
            self._stop_waiting()
            self._overdue = self.loop.call_later(request_seconds, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    return PatientProtocol
