"""A Prometheus that answers every query at once with a recorded answer; for a process of its own."""

import asyncio
import contextlib
import gzip
import json
import re
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

POINTS: Final = 240
"""Points of a graph, as many as a page asks for."""
SERIES_OF_AN_ANSWER: Final = 8


def _answer(points: int) -> bytes:
    rng = np.random.default_rng(1)
    result = [
        {
            "metric": {"Hostname": f"node{n}", "gpu": str(n)},
            "values": [[15 * i, f"{rng.uniform(0, 100):.3f}"] for i in range(points)],
        }
        for n in range(SERIES_OF_AN_ANSWER)
    ]
    body = gzip.compress(json.dumps({"status": "success", "data": {"result": result}}).encode())
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


async def _serve(port: Connection) -> None:
    """Answer each request with some series, with all points of a graph where a range was asked."""
    long, short = _answer(POINTS), _answer(1)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(re.findall(rb"(?i)content-length: *(\d+)", head)[0]))
                writer.write(long if b"query_range " in head else short)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_prometheus(port: Connection) -> None:
    """Run it; sends its port."""
    asyncio.run(_serve(port))
