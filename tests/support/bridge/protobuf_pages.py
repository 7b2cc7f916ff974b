"""Pages in protobuf, parsed."""

from collections.abc import Iterator
from typing import Any

from kernelcast.bridge.expose.client_model import MetricFamily


def families(body: bytes) -> Iterator[Any]:
    """Read messages with their lengths before them."""
    at = 0
    while at < len(body):
        length = shift = 0
        while True:
            byte = body[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        assert at + length <= len(body)
        yield MetricFamily.FromString(body[at : at + length])
        at += length
