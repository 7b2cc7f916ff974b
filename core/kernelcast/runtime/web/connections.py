"""Counts a web server's connections from `accept` to `close`, and chooses the one to close when the server is full.

`server.WebServer` accepts through `Listener`; `patience.PatientProtocol` reports whose turn it is on each connection.
All of it runs on the event loop's thread. It works on sockets, below TLS: a client that never finishes its handshake
holds a file descriptor like any other.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

MAX_CONNECTIONS: Final = 512
RESERVE: Final = 64
"""Connections beyond the limit, for probes. They are used only while the server is answering all the others."""
GRACE_SECONDS: Final = 1.0
"""A connection that waits for less is new: its request is probably on its way."""
_IPV6_PREFIX_BITS: Final = 64
"""Providers assign a whole /64 to one customer, so it counts as one address."""

Endpoints = tuple[Any, Any]
"""A connection's two addresses, the client's first, as the socket and the transport give them."""


@dataclass(eq=False, slots=True)
class HttpConnection:
    """One accepted connection.

    Attributes:
        connected: Its socket.
        origin: The address that it counts for.
        endpoints: Its two addresses, by which it is found from its transport.
        waiting_since: Time, in the event loop's seconds, at which the client's turn began (to shake hands, to send a
            request, to read); None while the server works for it.
        deadline: Timer that closes it unless a protocol takes it over; None from then on.
    """

    connected: socket.socket
    origin: str
    endpoints: Endpoints
    waiting_since: float | None
    deadline: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class OpenConnections:
    """The open connections of one server. For the event loop's thread only, except `limit` before the start.

    While the server is full, a new connection replaces the one that has waited longest for its client, of the origin
    (client address) with the most connections. So a client that opens too many loses its own, and one address may have
    all places while no other asks for one. Origins with at least half as many connections can lose one as well, if
    theirs have waited and the first origin's are new: 300 scrapers behind one address that connect at once must not
    replace each other's connections beside an attacker's 300 silent ones.

    Attributes:
        limit: Largest number of open connections.
        reserve: Further connections while the server is answering all of those; they are for probes.
        opening_seconds: Time in which a client must be ready for its first request.
        count: Counts a connection that was closed (`evicted`) or not accepted (`refused`) because the server was full.
    """

    limit: int = MAX_CONNECTIONS
    reserve: int = RESERVE
    opening_seconds: float = 15.0
    count: Callable[[str], None] = lambda _reason: None
    _open: dict[socket.socket, HttpConnection] = field(default_factory=dict)
    _by_endpoints: dict[Endpoints, HttpConnection] = field(default_factory=dict)
    _by_origin: Counter[str] = field(default_factory=Counter)
    _closing: set[socket.socket] = field(default_factory=set)

    def __len__(self) -> int:
        """Connections that are open and stay so."""
        return len(self._open)

    @property
    def full(self) -> bool:
        """Whether the reserve is in use."""
        return len(self._open) > self.limit

    @property
    def closing(self) -> bool:
        """Whether the server is full until the event loop has closed the evicted connections."""
        return bool(self._closing) and len(self._open) + len(self._closing) >= self.limit + self.reserve

    def make_room(self) -> bool:
        """Evict a connection if the server is full; returns whether a new one may stay."""
        if len(self._open) < self.limit:
            return True
        waiting = [one for one in self._open.values() if one.waiting_since is not None]
        if not waiting:
            return len(self._open) < self.limit + self.reserve
        most = max(self._by_origin[one.origin] for one in waiting)
        self._evict(max((one for one in waiting if self._by_origin[one.origin] * 2 >= most), key=self._rank))
        return True

    def opened(self, connected: socket.socket, client: Any) -> None:
        """Count a connection that was just accepted."""
        loop = asyncio.get_running_loop()
        one = HttpConnection(connected, origin_of(client), (client, connected.getsockname()), loop.time())
        one.deadline = loop.call_later(self.opening_seconds, self._close_overdue, one)
        self._open[connected] = self._by_endpoints[one.endpoints] = one
        self._by_origin[one.origin] += 1

    def closed(self, connected: socket.socket) -> None:
        """Forget a connection whose socket was closed."""
        self._closing.discard(connected)
        one = self._open.pop(connected, None)
        if one is not None:
            self._forget(one)

    def taken_over(self, transport: asyncio.BaseTransport) -> None:
        """Stop the timer of a connection that is ready for a request: its protocol has time limits of its own."""
        one = self._of(transport)
        if one is not None and one.deadline is not None:
            one.deadline.cancel()
            one.deadline = None

    def waits(self, transport: asyncio.BaseTransport) -> None:
        """Note that it is the client's turn from now on."""
        one = self._of(transport)
        if one is not None and one.waiting_since is None:
            one.waiting_since = asyncio.get_running_loop().time()

    def works(self, transport: asyncio.BaseTransport) -> None:
        """Note that it is the server's turn."""
        one = self._of(transport)
        if one is not None:
            one.waiting_since = None

    def close_opening(self) -> None:
        """Close the connections that no protocol has taken over yet, so that a stop need not wait for them."""
        for one in list(self._open.values()):
            if one.deadline is not None:
                self._shut(one)

    def _of(self, transport: asyncio.BaseTransport) -> HttpConnection | None:
        return self._by_endpoints.get((transport.get_extra_info("peername"), transport.get_extra_info("sockname")))

    # Sort key of eviction, largest first: no longer new, then of the origin with the most, then waiting longest.
    def _rank(self, one: HttpConnection) -> tuple[bool, int, float]:
        waited_seconds = asyncio.get_running_loop().time() - (one.waiting_since or 0.0)
        return waited_seconds >= GRACE_SECONDS, self._by_origin[one.origin], waited_seconds

    def _evict(self, one: HttpConnection) -> None:
        self.count("evicted")
        self._shut(one)

    def _close_overdue(self, one: HttpConnection) -> None:
        one.deadline = None
        self._shut(one)

    def _shut(self, one: HttpConnection) -> None:
        """Have the event loop close a connection; its socket stays until then."""
        if self._open.pop(one.connected, None) is None:
            return
        self._forget(one)
        self._closing.add(one.connected)
        with contextlib.suppress(OSError):
            one.connected.shutdown(socket.SHUT_RDWR)

    def _forget(self, one: HttpConnection) -> None:
        if one.deadline is not None:
            one.deadline.cancel()
        self._by_endpoints.pop(one.endpoints, None)
        self._by_origin[one.origin] -= 1
        if not self._by_origin[one.origin]:
            del self._by_origin[one.origin]


class Listener(socket.socket):
    """A listening socket whose accepted connections are counted, and bounded."""

    connections: OpenConnections

    @classmethod
    def of(cls, bound: socket.socket, connections: OpenConnections) -> "Listener":
        """Take over a bound socket."""
        listener = cls(bound.family, bound.type, bound.proto, fileno=bound.detach())
        listener.connections = connections
        return listener

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; if the server is full, another one is closed for it.

        Raises:
            BlockingIOError: There is none, or no room for it; asyncio tries again in the next round of its loop.
        """
        if self.connections.closing:
            raise BlockingIOError
        plain, client = super().accept()
        if not self.connections.make_room():
            self.connections.count("refused")
            plain.close()
            raise BlockingIOError
        counted = _Counted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        counted.connections = self.connections
        counted.setblocking(False)
        self.connections.opened(counted, client)
        return counted, client


class _Counted(socket.socket):
    """The socket of an accepted connection; reports to `connections` when it is closed."""

    connections: OpenConnections

    def close(self) -> None:
        """Close it, and give its place back."""
        self.connections.closed(self)
        super().close()


def origin_of(client: Any) -> str:
    """The unit by which an address is counted: an IPv4 address as itself, an IPv6 address as its /64."""
    try:
        address = ipaddress.ip_address(str(client[0]).partition("%")[0])
    except (ValueError, IndexError, TypeError):
        return str(client)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX_BITS), strict=False))
