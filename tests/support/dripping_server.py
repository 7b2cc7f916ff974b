"""A server that holds its clients: it sends a byte now and then, so that no single read takes long."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress


@contextmanager
def dripping(sent: bytes) -> Iterator[str]:
    """The address of a server whose answers begin at once, and go on by one byte each tenth of a second."""
    stopping = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(sent)
            for _ in range(40):
                if stopping.wait(0.1):
                    return
                connection.sendall(b"H")

    def accept() -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                threads.submit(drip, listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(4) as threads:
        listener.settimeout(0.1)
        threads.submit(accept)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            stopping.set()
