"""Compiles the functions of the push: called by `kernelcast compile`, and by each member before its first message."""

import threading
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.bridge.push.instruments import DestinationMetrics, PushMetrics
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.remote_write.conversion import Conversion
from kernelcast.bridge.push.remote_write.requests import request_v1, request_v2
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.topics import KERNELS

WARM_UP_LOCK: Final = threading.Lock()
"""Members start together; the others wait, then find the functions compiled."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A message with the interface of a Kafka message."""

    body: bytes

    def topic(self) -> str:
        return KERNELS.name

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.body

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 2, 1


def warm_up() -> None:
    """Take a number and histograms through both versions of remote write."""
    with WARM_UP_LOCK:
        Decoder.warm_up()
        totals = DurationTotals()
        totals.observe(1_000)
        samples = [
            Sample(kernel.LAUNCHES, (("kernel", "k"),), 1_000_000, 1, 1),
            Sample(kernel.DURATION, (("kernel", "k"),), 1_000_000, totals, 1, detailed=True),
            Sample(kernel.DURATION, (("kernel", "l"),), 1_000_000, totals, 1),
        ]
        resource = Resource((("service.instance.id", ""), ("service.name", "")))
        bodies = [export.body for export in encode(resource, samples, scope="")]
        metrics = DestinationMetrics(PushMetrics(CollectorRegistry()), "warm-up")
        for native in (True, False):
            settings = PushSettings(
                name="warm-up", kind="remote_write", url="http://localhost", native_histograms=native
            )
            conversion = Conversion(settings, metrics, ReaderSettings())
            for _, payloads in conversion.payloads([_Message(body) for body in bodies]):
                for payload in payloads:
                    request_v1(payload)
                    request_v2(payload)
