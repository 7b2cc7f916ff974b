"""Clients of a web server on loopback, many at one time, from addresses that the test chooses."""

import asyncio
import base64
import os
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

ATTACKER = "127.0.0.66"
CROWD = 300
LOCAL = WebSettings(listen_address="127.0.0.1:0")
HALF_A_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Half: "


@contextmanager
def many_files() -> Iterator[None]:
    """Both ends of every connection are files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def address_of(server: WebServer) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


@contextmanager
def half_open(
    server: WebServer, number: int, *, source: str = ATTACKER, data: bytes = HALF_A_REQUEST
) -> Iterator[None]:
    """Connections that send the beginning of a request and then nothing."""
    with ExitStack() as stack:
        for _ in range(number):
            client = socket.create_connection(address_of(server), timeout=LONGEST_SECONDS, source_address=(source, 0))
            stack.enter_context(client)
            if data:
                client.sendall(data)
        yield


def get(
    server: WebServer,
    path: str,
    *,
    headers: bytes = b"",
    source: str = "127.0.0.1",
    seconds: float = LONGEST_SECONDS / 2,
) -> int:
    """The status of one request on a connection of its own; 0 where there is no answer in time."""
    try:
        with socket.create_connection(address_of(server), timeout=seconds, source_address=(source, 0)) as client:
            client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n" % (path.encode(), headers))
            return _status(client.recv(4096))
    except OSError:
        return 0


def crowd(
    server: WebServer, path: str, *, headers: bytes = b"", number: int = CROWD, source: str = "127.0.0.1"
) -> Counter[int]:
    """Number of answers by status, for simultaneous requests."""
    return Counter(asyncio.run(_crowd(server, path, headers, number, source)))


async def _crowd(server: WebServer, path: str, headers: bytes, number: int, source: str) -> list[int]:
    host, port = address_of(server)

    async def one() -> int:
        try:
            reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
            writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n" % (path.encode(), headers))
            status = _status(await reader.read(4096))
            writer.close()
        except OSError:
            return 0
        return status

    async with asyncio.timeout(LONGEST_SECONDS):
        return await asyncio.gather(*(one() for _ in range(number)))


def basic(user: str, password: str) -> bytes:
    return b"Authorization: Basic %s\r\n" % base64.b64encode(f"{user}:{password}".encode())


def guarded(folder: Path, text: str, registry: CollectorRegistry | None = None) -> WebServer:
    (folder / "web.yml").write_text(text)
    settings = WebSettings(listen_address="127.0.0.1:0", config_file=folder / "web.yml")
    return WebServer(settings, title="bridge", metrics=registry or CollectorRegistry())


def rewrite(file: Path, text: str) -> None:
    """Write a file so that its time differs, however coarse the file system's clock is."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    os.utime(file, ns=(before + 10**9, before + 10**9))


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
