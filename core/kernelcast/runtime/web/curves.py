"""Several elliptic curves for one TLS server; Python's `ssl` (before 3.15) can set only one in a context.

`tls_config` makes a `CurvesContext` if the file names several.

It has a context for each curve, and chooses the one of a connection when the client's first message (ClientHello) has
come: the first curve of the list that the client offers. OpenSSL then does the handshake with that message.

Formats: RFC 8446, sections 4.1.2 (ClientHello), 4.2.7 (supported_groups) and 5.1 (records); RFC 8422, section 5.1.1.
"""

import ssl
import struct
from types import MappingProxyType
from typing import Any, Final, cast

CURVES: Final = MappingProxyType(
    {
        "CurveP256": ("prime256v1", 23),
        "CurveP384": ("secp384r1", 24),
        "CurveP521": ("secp521r1", 25),
        "X25519": ("X25519", 29),
    }
)
"""Go's names, with OpenSSL's and the number in the protocol."""
# Numbers of the protocol: type of a record, type of a handshake message, type of an extension.
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SUPPORTED_GROUPS: Final = 10
_LARGEST_HELLO_BYTES: Final = 64 * 1024
"""Real ones have some hundred bytes; a longer one is not parsed."""


class CurvesContext(ssl.SSLContext):
    """Has a connection use the context of a curve that its client offers.

    Attributes:
        by_curve: The curve's number and its context, in the order of preference; at least one.
    """

    by_curve: tuple[tuple[int, ssl.SSLContext], ...]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002  ssl's signature
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,  # noqa: ARG002  ssl's signature
    ) -> ssl.SSLObject:
        """Wrap memory BIOs like `SSLContext.wrap_bio`, for servers."""
        if not server_side or server_hostname is not None:
            raise ValueError("this context is for servers")
        return cast("ssl.SSLObject", _ChoosingObject(self.by_curve, incoming, outgoing))


class _ChoosingObject:
    """An `SSLObject` that chooses its context when the ClientHello is there. asyncio calls it on its event loop."""

    def __init__(
        self, by_curve: tuple[tuple[int, ssl.SSLContext], ...], incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._by_curve, self._incoming, self._outgoing = by_curve, incoming, outgoing
        self._chosen: ssl.SSLObject | None = None

    def do_handshake(self) -> None:
        """Choose the context by the ClientHello's curves, then do the same as `SSLObject.do_handshake`.

        Raises:
            SSLWantReadError: More of the ClientHello is needed.
        """
        if self._chosen is None:
            self._chosen = self._choose().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._chosen.do_handshake()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)

    def _choose(self) -> ssl.SSLContext:
        data = self._incoming.read()
        self._incoming.write(data)
        offered = offered_curves(data)
        if offered is None:
            raise ssl.SSLWantReadError
        return next((context for curve, context in self._by_curve if curve in offered), self._by_curve[0][1])


def offered_curves(data: bytes) -> tuple[int, ...] | None:
    """The curves that a client offers, from the first bytes that it has sent.

    Returns:
        Their numbers; none where the client names none or sends something else; None while more bytes are needed.
    """
    # A record: type (1 byte), version (2), length (2), then a part of the message, which may span several records. The
    # message: type (1), length (3), content.
    message, position = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        if data[position : position + 1] not in (b"", bytes([_HANDSHAKE])) or len(data) > _LARGEST_HELLO_BYTES:
            return ()
        if len(data) < position + 5:
            return None
        end = position + 5 + int.from_bytes(data[position + 3 : position + 5], "big")
        if len(data) < end:
            return None
        message += data[position + 5 : end]
        position = end
    try:
        return _groups(message)
    except (IndexError, struct.error):
        return ()


def _groups(message: bytes) -> tuple[int, ...]:
    """The extension `supported_groups` of a whole ClientHello; nothing if there is none."""
    if message[0] != _CLIENT_HELLO:
        return ()
    # Before the extensions: header (4 bytes), version (2), random (32), and with their lengths before them (1, 2 and 1
    # bytes) session id, cipher suites and compression methods. The extensions' own length has 2 bytes.
    position = 4 + 2 + 32
    position += 1 + message[position]
    position += 2 + int(struct.unpack_from(">H", message, position)[0])
    position += 1 + message[position] + 2
    while position < len(message):
        kind, length = struct.unpack_from(">HH", message, position)
        if kind == _SUPPORTED_GROUPS:
            count = int(struct.unpack_from(">H", message, position + 4)[0]) // 2
            return struct.unpack_from(f">{count}H", message, position + 6)
        position += 4 + length
    return ()
