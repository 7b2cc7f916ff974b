"""Prometheus remote write, 2.0 and 1.0: encodes, compresses and sends payloads, in the version that the receiver knows.

Source: prometheus.io/docs/specs, remote write 1.0 and 2.0-rc.4.
"""

from typing import Final

import numpy as np
import structlog
from cramjam import snappy

from kernelcast.bridge.push.answer import PushAnswer, RetryDecision
from kernelcast.bridge.push.receiver import Receiver
from kernelcast.bridge.push.remote_write import encode
from kernelcast.bridge.push.remote_write.native import histogram_bodies
from kernelcast.bridge.push.remote_write.rows import STALE_BITS, SampleRows, WritePayload
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar import NO_RECORDED_VALUE
from kernelcast.wire.histogram import SMALLEST_ZERO_WIDTH

HEADERS_V1: Final = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
HEADERS_V2: Final = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
}
WRITTEN: Final = ("x-prometheus-remote-write-samples-written", "x-prometheus-remote-write-histograms-written")
"""Headers in which a 2.0 receiver reports how many points it has stored."""
BYTES_A_HISTOGRAM: Final = 128
BYTES_A_BUCKET: Final = 24
"""Bounds of the encoded size: of a histogram without buckets, and of a bucket with its own span."""

Bodies = tuple[UInt8Array, Int64Array]


class WriteSender:
    """Sends payloads in the newest version that the receiver knows; for one thread."""

    def __init__(self, receiver: Receiver, settings: PushSettings) -> None:
        """Begin.

        Args:
            receiver: Where to.
            settings: For `protocol`: a fixed version, or `auto`.
        """
        self._receiver = receiver
        self._negotiable = settings.protocol == "auto"
        self._name = settings.name
        self._uses_version_2 = settings.protocol != "1.0"
        self._log = structlog.stdlib.get_logger("bridge.push.remote_write")

    def send(self, payload: WritePayload) -> tuple[PushAnswer, int]:
        """Send a payload once; twice where the first answer says that the version was the wrong one."""
        answer, sent_bytes = self._attempt(payload)
        if answer.decision is RetryDecision.UNSUPPORTED and self._uses_version_2 and self._negotiable:
            self._uses_version_2 = False
            self._log.info("the receiver knows remote write 1.0 only", destination=self._name, reason=answer.detail)
            answer, sent_bytes = self._attempt(payload)
        return answer, sent_bytes

    def _attempt(self, payload: WritePayload) -> tuple[PushAnswer, int]:
        body = bytes(snappy.compress_raw(request_v2(payload) if self._uses_version_2 else request_v1(payload)))
        answer = self._receiver.post(body, HEADERS_V2 if self._uses_version_2 else HEADERS_V1)
        return (_with_written_counts(answer, payload.points) if self._uses_version_2 else answer), len(body)


def _with_written_counts(answer: PushAnswer, points: int) -> PushAnswer:
    """Complete an answer by the statistics of a 2.0 receiver.

    The receiver counts the samples that it wrote, even if it refuses the rest; those must not be sent again. A success
    without statistics means a 1.0 receiver that found no field that it knows, and reported no error.
    """
    if answer.decision not in (RetryDecision.ACKNOWLEDGED, RetryDecision.REFUSED):
        return answer
    counts = [int(text[:18]) for name in WRITTEN if (text := answer.headers.get(name, "")).isdecimal()]
    if counts:
        discarded = max(0, points - sum(counts))
        return PushAnswer(RetryDecision.ACKNOWLEDGED, answer.cause or "rejected", answer.detail, discarded=discarded)
    if answer.decision is RetryDecision.ACKNOWLEDGED:
        return PushAnswer(RetryDecision.UNSUPPORTED, "configuration", "no count of written samples, which 2.0 requires")
    return answer


def request_v1(payload: WritePayload) -> bytes:
    """A `prometheus.WriteRequest`."""
    parts = []
    for rows, bodies, tag in (
        (payload.samples, _sample_bodies(payload.samples, started=False), encode.SAMPLES_V1),
        (payload.natives, _native_bodies(payload, started=False), encode.HISTOGRAMS_V1),
    ):
        labels, symbols = _labels(payload), _symbols(payload)
        size = encode.series_v1(rows.series, labels, symbols, bodies, tag, np.empty(0, np.uint8))
        out = np.empty(size, np.uint8)
        if size:
            encode.series_v1(rows.series, labels, symbols, bodies, tag, out)
        parts.append(out.tobytes())
    return b"".join(parts)


def request_v2(payload: WritePayload) -> bytes:
    """An `io.prometheus.write.v2.Request`."""
    directory, labels = payload.directory, _labels(payload)
    names = directory.family, directory.families
    local: Int32Array = np.full(directory.symbols.count, encode.NOT_YET, np.int32)
    order: Int32Array = np.zeros(directory.symbols.count, np.int32)
    local[0] = 0  # the specification wants the empty text first
    used = 1
    for rows in (payload.samples, payload.natives):
        used = encode.number_symbols(rows.series, labels, *names, local, order, used)
    table = np.empty(encode.symbols_v2(_symbols(payload), order[:used], np.empty(0, np.uint8)), np.uint8)
    encode.symbols_v2(_symbols(payload), order[:used], table)
    parts = [table.tobytes()]
    for rows, bodies, tag in (
        (payload.samples, _sample_bodies(payload.samples, started=True), encode.SAMPLES_V2),
        (payload.natives, _native_bodies(payload, started=True), encode.HISTOGRAMS_V2),
    ):
        size = encode.series_v2(rows.series, labels, *names, local, bodies, tag, np.empty(0, np.uint8))
        out = np.empty(size, np.uint8)
        if size:
            encode.series_v2(rows.series, labels, *names, local, bodies, tag, out)
        parts.append(out.tobytes())
    return b"".join(parts)


def _labels(payload: WritePayload) -> tuple[Int32Array, Int64Array]:
    return payload.directory.labels.data, payload.directory.labels.ends


def _symbols(payload: WritePayload) -> tuple[UInt8Array, Int64Array]:
    return payload.directory.symbols.data, payload.directory.symbols.ends


def _sample_bodies(rows: SampleRows, *, started: bool) -> Bodies:
    ends: Int64Array = np.zeros(len(rows) + 1, np.int64)
    out: UInt8Array = np.empty(len(rows) * encode.LONGEST_SAMPLE_BYTES, np.uint8)
    starts = rows.start_ms if started else np.zeros_like(rows.start_ms)
    encode.sample_bodies(rows.value, rows.time_ms, starts, ends, out)
    return out, ends


def _native_bodies(payload: WritePayload, *, started: bool) -> Bodies:
    rows, points = payload.natives, payload.histograms
    ends: Int64Array = np.zeros(len(rows) + 1, np.int64)
    if not len(rows):
        return np.empty(0, np.uint8), ends
    at = rows.value
    buckets = points.positive_indptr[at + 1] - points.positive_indptr[at]
    buckets += points.negative_indptr[at + 1] - points.negative_indptr[at]
    out: UInt8Array = np.empty(len(rows) * BYTES_A_HISTOGRAM + int(buckets.sum()) * BYTES_A_BUCKET, np.uint8)
    sum_bits = points.total.view(np.int64).copy()
    stale = (points.flags & NO_RECORDED_VALUE) != 0
    sum_bits[stale] = STALE_BITS
    start_ms = rows.start_ms if started else np.zeros_like(rows.start_ms)
    # A width that is no number makes queries of Prometheus run for ever: they widen one until both are equal.
    width = points.zero_threshold
    points = points._replace(zero_threshold=np.where((width > 0) & (width < np.inf), width, SMALLEST_ZERO_WIDTH))
    histogram_bodies(points, sum_bits, stale.view(np.uint8), (rows.time_ms, start_ms), at, ends, out)
    return out, ends
