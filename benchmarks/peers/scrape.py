"""Scrapes with Prometheus's headers: requests, answers and durations."""

import http.client
import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.load import FAMILY

TEXT: Final = "text/plain;version=0.0.4"
PROMETHEUS_ACCEPT: Final = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What Prometheus 3.15 sends by default: scrape/scrape.go, acceptHeader; always with Accept-Encoding: gzip."""
PROTOBUF_ACCEPT: Final = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    + PROMETHEUS_ACCEPT
)
"""What Prometheus sends once it scrapes native histograms."""
REQUESTS: Final[Mapping[str, Mapping[str, str]]] = {
    "text": {"Accept": TEXT},
    "text, gzip": {"Accept": TEXT, "Accept-Encoding": "gzip"},
    "Prometheus' default": {"Accept": PROMETHEUS_ACCEPT, "Accept-Encoding": "gzip"},
    "protobuf, gzip": {"Accept": PROTOBUF_ACCEPT, "Accept-Encoding": "gzip"},
}
TIMEOUT_SECONDS: Final = 300.0
AT_ONCE: Final = 1 << 20
"""Bytes of one read."""
PROGRESS: Final = re.compile(rb"^%s_0\{[^}]*gpu=\"0\"[^}]*\} (\S+)" % FAMILY.encode(), re.MULTILINE)
"""The first metric of GPU 0 of a node: its value is the node's last tick."""


@dataclass(frozen=True)
class Page:
    """One answer.

    Attributes:
        seconds: From the request to the last byte.
        content_type: Its format.
        coding: Its compression.
        length: How many bytes came.
        body: These bytes, where they were wanted.
    """

    seconds: float
    content_type: str
    coding: str
    length: int
    body: bytes

    def text(self) -> bytes:
        """The body without its compression."""
        return zlib.decompress(self.body, 47) if self.coding == "gzip" else self.body


def scrape(port: int, headers: Mapping[str, str], *, path: str = "/metrics", keep: bool = False) -> Page:
    """Ask once and read everything.

    Raises:
        OSError: No answer, or not 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    began = time.perf_counter()
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    length, kept = 0, []
    while chunk := answer.read(AT_ONCE):
        length += len(chunk)
        if keep:
            kept.append(chunk)
    seconds = time.perf_counter() - began
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"{path} answered {answer.status}")
    coding = answer.getheader("Content-Encoding", "") or ""
    return Page(seconds, answer.getheader("Content-Type", "") or "", coding, length, b"".join(kept))


def series_shown(text: bytes) -> int:
    """Number of the fleet's series on a page."""
    return text.count(b"\n%s_" % FAMILY.encode())


def ticks_shown(text: bytes) -> list[int]:
    """The last tick of each node, in no order."""
    return [int(float(match)) for match in PROGRESS.findall(text)]
