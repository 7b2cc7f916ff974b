"""A batch of compressed messages is unpacked, converted and sent in parts."""

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cramjam
import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.bridge.list_kafka import ManualClock
from tests.support.push.push_site import MS, P0, PushSite, counting
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.inputs import selection
from kernelcast.bridge.push import otlp
from kernelcast.bridge.push.backlog import MAX_POLL_GAP_SECONDS
from kernelcast.bridge.push.remote_write import conversion
from kernelcast.columnar import Decoded, Decoder, DecoderLimits
from kernelcast.wire.errors import DecodeError

CONVERTERS = {"otlp": otlp, "remote_write": conversion}
ZSTD = (("content-encoding", b"zstd"),)


def export(time_ms: int, name: str = "up", *, description: str = "", points: int = 1) -> bytes:
    """A gauge with a point per millisecond; its description makes the message long, and is no part of the series."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=name, description=description)
    for i in range(points):
        metric.gauge.data_points.add(time_unix_nano=(time_ms + i) * MS, as_double=1)
    return request.SerializeToString()


def write(site: PushSite, *bodies: bytes) -> None:
    """Write messages, each compressed."""
    site.log.messages[P0] = [
        Record((*P0, i), bytes(cramjam.zstd.compress(body)), append_ms=1_000_000, header_items=ZSTD)
        for i, body in enumerate(bodies)
    ]


@pytest.fixture
def one_message_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_UNPACKED_BYTES", 1)


def peak_bytes(site: PushSite) -> int:
    tracemalloc.start()
    try:
        site.push_all()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", CONVERTERS)
def test_a_batch_of_small_messages_that_unpack_to_long_ones_takes_little_memory(kind: str) -> None:
    site = PushSite(counting([]), kind=kind, protocol="1.0")
    write(site, *(export(10 + i, description=" " * 2**20) for i in range(200)))
    assert peak_bytes(site) < 100 * 2**20
    assert site.own("points_total") == 200


@pytest.mark.parametrize("kind", CONVERTERS)
def test_the_points_of_a_batch_are_not_in_memory_together(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(selection, "MAX_UNPACKED_BYTES", 2**18)
    peaks = []
    for messages in (8, 8, 64):  # the first one loads what all need
        site = PushSite(counting([]), kind=kind, protocol="1.0")
        write(site, *(export(10 + 4_000 * i, points=4_000) for i in range(messages)))
        peaks.append(peak_bytes(site))
        assert site.own("points_total") == 4_000 * messages
    assert peaks[2] < 1.5 * peaks[1]


@pytest.mark.usefixtures("one_message_a_part")
@pytest.mark.parametrize("kind", CONVERTERS)
def test_a_fault_of_ours_in_a_later_part_sends_no_point_twice(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    class Fragile(Decoder):
        def decode(self, bodies: Sequence[bytes], *arguments: Any) -> Decoded:
            if any(b"crash" in body for body in bodies):
                raise ZeroDivisionError("a fault of ours")
            return super().decode(bodies, *arguments)

    monkeypatch.setattr(CONVERTERS[kind], "Decoder", Fragile)
    requests: list[httpx.Request] = []

    def receiver(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(204)

    site = PushSite(receiver, kind=kind, protocol="1.0")
    write(site, export(10), export(20), export(30, name="crash"), export(40), export(50))
    site.push_all()
    assert site.own("points_total") == 4
    assert len({request.content for request in requests}) == len(requests) == 4
    assert site.own("undecodable_messages_total", error="internal") == 1
    assert site.log.committed == {P0: 5}


@pytest.mark.usefixtures("one_message_a_part")
@pytest.mark.parametrize("kind", CONVERTERS)
@pytest.mark.parametrize("unpacks", [True, False], ids=["no_metrics", "too_long"])
def test_messages_without_a_point_do_not_delay_polls(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, unpacks: bool
) -> None:
    clock = ManualClock()

    def slow(_message: bytes, _encoding: str, _limits: DecoderLimits) -> bytes:
        clock.seconds += 4
        if unpacks:
            return b"\xffpoison"
        raise DecodeError("message is too long")

    monkeypatch.setattr(selection, "unpacked", slow)
    site = PushSite(counting([]), kind=kind, clock=clock)
    write(site, *[b""] * 60)
    polls: list[float] = []
    site.member.due = [lambda: polls.append(clock.seconds)] * 200
    site.push_all()
    assert max(after - before for before, after in pairwise(polls)) < 2 * MAX_POLL_GAP_SECONDS
    assert site.own("undecodable_messages_total", error="DecodeError") == 60
