"""OTLP over HTTP, as `member` wires it: `PayloadConverter` makes requests of messages, `OtlpSender` sends them.

Messages are sent as they are, several in one request; only metrics that must not go out are removed.
`ExportMetricsServiceRequest`s one after the other are one with all their resources: protobuf merges repeated fields.
Source: opentelemetry.io/docs/specs/otlp, OTLP/HTTP.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cramjam import zstd
from google.protobuf.message import DecodeError as ProtobufError
from isal import igzip
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from kernelcast.bridge.inputs import Selection
from kernelcast.bridge.inputs.formats import OTLP_PROTO
from kernelcast.bridge.push.answer import PushAnswer, RetryDecision
from kernelcast.bridge.push.instruments import BatchCounts, DestinationMetrics
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.receiver import Receiver
from kernelcast.bridge.push.remote_write.rows import PARTS
from kernelcast.bridge.push.rewrite import PLAIN, UNSEEN, WIRE_ONLY, rewritten, treatment
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.tables.columns import UInt8Array, grown
from kernelcast.columnar import Decoded, Decoder
from kernelcast.runtime.kafka.clients import StampedMessage

GZIP_LEVEL: Final = 1
"""Higher ones cost more time than they save."""


@dataclass(frozen=True, slots=True)
class OtlpPayload:
    """The messages of one OTLP request.

    Attributes:
        bodies: Export requests, which together are one.
        counts: Points of each.
        level: How often it has been divided by series.
    """

    bodies: tuple[bytes, ...]
    counts: tuple[int, ...]
    level: int = 0

    @property
    def points(self) -> int:
        """Data points."""
        return sum(self.counts)

    def by_series(self) -> list["OtlpPayload"]:
        """Up to PARTS parts, each series whole in one, by its hash; slow, used only for rejected requests."""
        divisor = PARTS**self.level
        parts: dict[int, dict[int, list[bytes]]] = {}  # by part and message, so that a part has messages as well
        for message, body in enumerate(self.bodies):
            for series, point in _single_points([body]):
                part = parts.setdefault(zlib.crc32(series) // divisor % PARTS, {})
                part.setdefault(message, []).append(point)
        if (
            len(parts) == 1
            and divisor * PARTS < 1 << 32
            and len({series for series, _ in _single_points(self.bodies)}) > 1
        ):
            return OtlpPayload(self.bodies, self.counts, self.level + 1).by_series()
        return [
            OtlpPayload(tuple(map(b"".join, part.values())), tuple(map(len, part.values())), self.level + 1)
            for part in parts.values()
        ]

    def by_message(self) -> list["OtlpPayload"]:
        """One part for each message, in order."""
        return [OtlpPayload((body,), (count,)) for body, count in zip(self.bodies, self.counts, strict=True)]

    def by_point(self) -> list["OtlpPayload"]:
        """One part for each point, in the order of the messages."""
        return [OtlpPayload((point,), (1,)) for _, point in _single_points(self.bodies)]


class OtlpSender:
    """Sends payloads."""

    def __init__(self, receiver: Receiver, settings: PushSettings) -> None:
        """Begin.

        Args:
            receiver: Where to.
            settings: For `compression`.
        """
        self._receiver = receiver
        self._compression = settings.compression
        self._headers = {"Content-Type": "application/x-protobuf"}
        if self._compression != "none":
            self._headers["Content-Encoding"] = self._compression

    def send(self, payload: OtlpPayload) -> tuple[PushAnswer, int]:
        """Send a payload once."""
        body = b"".join(payload.bodies)
        if self._compression == "gzip":
            body = igzip.compress(body, GZIP_LEVEL)
        elif self._compression == "zstd":
            body = bytes(zstd.compress(body))
        answer = self._receiver.post(body, self._headers)
        return (_with_rejections(answer) if answer.decision is RetryDecision.ACKNOWLEDGED else answer), len(body)


class PayloadConverter:
    """Turns messages into payloads, most of them unchanged. For one thread.

    `_treatment` has PLAIN, WIRE_ONLY or RENAMED by series number, UNSEEN for new ones; `_known` is their number.
    """

    def __init__(self, settings: PushSettings, metrics: DestinationMetrics, reading: ReaderSettings) -> None:
        """Start without series.

        Args:
            settings: Settings of the destination.
            metrics: Count points that are left out.
            reading: The topics' formats; only `otlp_proto` can be passed on.
        """
        self._settings, self._reading = settings, reading
        self._counts = BatchCounts(metrics)
        self._forget_series()

    def payloads(self, messages: Sequence[StampedMessage]) -> Iterator[tuple[list[int], list[OtlpPayload]]]:
        """Yield, by part of a batch, the indices of its messages and their requests, to be sent in order."""
        if self._known > self._settings.max_series:
            self._forget_series()
        for group in self._selection.groups(messages):
            self._counts.begin()
            for failure in group.failures:
                self._counts.undecodable(type(failure).__name__)
            requests: list[OtlpPayload] = []
            if group.format == OTLP_PROTO:
                requests += self._requests(group.bodies)
            else:
                for _ in group.bodies:
                    self._counts.undecodable("format")
            group.bodies.clear()
            self._counts.commit()
            yield group.indices, requests

    def _requests(self, bodies: Sequence[bytes]) -> Iterator[OtlpPayload]:
        """Yield requests. Each message is decoded, because a malformed one would make the whole request fail."""
        decoded = self._decoder.decode(bodies)
        failed = {index for index, _ in decoded.failures}
        for _, failure in decoded.failures:
            self._counts.undecodable(type(failure).__name__)
        counts, must_rewrite = self._counts_and_marks(decoded, len(bodies))
        max_bytes, max_points = self._settings.max_request_bytes, self._settings.max_points
        ready: list[tuple[bytes, int]] = []
        size = points = 0
        for index, body in enumerate(bodies):
            count = counts[index]
            if index in failed or not count:
                continue
            if must_rewrite[index]:
                body = rewritten(body)  # noqa: PLW2901  the same message
            if ready and (size + len(body) > max_bytes or points + count > max_points):
                yield _payload(ready)
                ready, size, points = [], 0, 0
            ready.append((body, count))
            size, points = size + len(body), points + count
        if ready:
            yield _payload(ready)

    def _forget_series(self) -> None:
        """Forget every series: simpler than to age them, and bounded as well."""
        self._decoder = Decoder(max_identities=2 * self._settings.max_series)
        self._selection = Selection(self._decoder, self._reading.formats)
        self._treatment: UInt8Array = np.full(1024, UNSEEN, np.uint8)
        self._known = 0

    def _counts_and_marks(self, decoded: Decoded, messages: int) -> tuple[list[int], list[bool]]:
        """Return for each message the number of points that are sent, and whether it must be rewritten for that."""
        points = np.zeros(messages, np.int64)
        must_rewrite = np.zeros(messages, np.int64)
        for columns in (decoded.numbers, decoded.histograms):
            self._learn(columns.series)
            treatments = self._treatment[columns.series]
            kept = treatments != WIRE_ONLY
            self._counts.discarded("wire_only", int((~kept).sum()))
            points += np.bincount(columns.message[kept], minlength=messages)
            must_rewrite += np.bincount(columns.message[treatments != PLAIN], minlength=messages)
        return points.tolist(), (must_rewrite > 0).tolist()

    def _learn(self, series: Any) -> None:
        numbers = np.unique(series)
        if len(numbers) and numbers[-1] >= len(self._treatment):
            capacity = grown(len(self._treatment), int(numbers[-1]) + 1)
            fresh = np.full(capacity - len(self._treatment), UNSEEN, np.uint8)
            self._treatment = np.concatenate([self._treatment, fresh])
        for number in numbers[self._treatment[numbers] == UNSEEN].tolist():
            self._treatment[number] = treatment(self._decoder.identity(number))
            self._known += 1


def _payload(ready: list[tuple[bytes, int]]) -> OtlpPayload:
    return OtlpPayload(tuple(body for body, _ in ready), tuple(count for _, count in ready))


def _with_rejections(answer: PushAnswer) -> PushAnswer:
    """Add the number of rejected points, which the body of a success may have."""
    try:
        partial = ExportMetricsServiceResponse.FromString(answer.body).partial_success
    except ProtobufError:  # many receivers answer with something else, or with nothing
        return answer
    rejected = max(0, partial.rejected_data_points)
    detail = partial.error_message[:300] if rejected else answer.detail
    return PushAnswer(RetryDecision.ACKNOWLEDGED, "rejected" if rejected else "", detail, discarded=rejected)


def _single_points(bodies: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each point: bytes that identify its series, and an export request with this point only."""
    for body in bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield from _single_points_of(resource, scope, metric)


def _single_points_of(resource: Any, scope: Any, metric: Any) -> Iterator[tuple[bytes, bytes]]:
    kind = metric.WhichOneof("data")
    points = list(getattr(metric, kind).data_points) if kind else []
    for point in points:
        request = ExportMetricsServiceRequest()
        alone = request.resource_metrics.add(schema_url=resource.schema_url)
        alone.resource.CopyFrom(resource.resource)
        within = alone.scope_metrics.add(schema_url=scope.schema_url)
        within.scope.CopyFrom(scope.scope)
        same = within.metrics.add(name=metric.name, unit=metric.unit, description=metric.description)
        data = getattr(same, kind)
        if kind not in ("gauge", "summary"):
            data.aggregation_temporality = getattr(metric, kind).aggregation_temporality
        if kind == "sum":
            data.is_monotonic = metric.sum.is_monotonic
        identity = b"".join(
            item.SerializeToString(deterministic=True)
            for item in (alone.resource, within.scope, *sorted(point.attributes, key=lambda pair: str(pair.key)))
        )
        data.data_points.append(point)
        yield identity + metric.name.encode(), request.SerializeToString()
