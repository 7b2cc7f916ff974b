"""A group of processes over loopback sockets: the first rank collects a text of each and returns all of them."""

import socket
import struct
from typing import Final

CONNECT_SECONDS: Final = 200.0
"""For the start of the slowest rank, on a machine that may stand still."""
LENGTH: Final = struct.Struct("!I")


class SocketGroup:
    """Lets ranks exchange texts. After an error it is closed, so that no rank waits for another one.

    Args:
        rank: This rank.
        size: Number of ranks.
        place: Rank 0 takes the descriptor of a socket that listens; the others the port of it.
    """

    def __init__(self, rank: int, size: int, place: int) -> None:
        self.rank, self.size = rank, size
        self._peers: list[socket.socket] = []
        if rank == 0:
            with socket.socket(fileno=place) as server:
                server.settimeout(CONNECT_SECONDS)
                by_rank: dict[int, socket.socket] = {}
                while len(by_rank) < size - 1:
                    peer, _ = server.accept()
                    _without_delay(peer)
                    by_rank[int(_receive(peer))] = peer
            self._peers = [by_rank[one] for one in range(1, size)]
        else:
            self._peers = [_without_delay(socket.create_connection(("127.0.0.1", place)))]
            _send(self._peers[0], str(rank))

    def all_gather(self, text: str) -> list[str]:
        """Return the texts of all ranks."""
        try:
            if self.rank:
                _send(self._peers[0], text)
                return [_receive(self._peers[0]) for _ in range(self.size)]
            texts = [text, *map(_receive, self._peers)]
            answer = b"".join(map(_framed, texts))
            for peer in self._peers:
                peer.sendall(answer)
        except (OSError, EOFError):
            self.close()
            raise
        return texts

    def close(self) -> None:
        """Close all connections: every other rank gets an error."""
        for peer in self._peers:
            peer.close()


def _without_delay(peer: socket.socket) -> socket.socket:
    """Switch off Nagle's algorithm: with it a message waits 40 ms for the acknowledgement of the one before."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _framed(text: str) -> bytes:
    body = text.encode()
    return LENGTH.pack(len(body)) + body


def _send(peer: socket.socket, text: str) -> None:
    peer.sendall(_framed(text))


def _receive(peer: socket.socket) -> str:
    (length,) = LENGTH.unpack(_exactly(peer, LENGTH.size))
    return _exactly(peer, length).decode()


def _exactly(peer: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        part = peer.recv(length - len(found))
        if not part:
            raise EOFError("the other rank has closed the connection")
        found += part
    return found
