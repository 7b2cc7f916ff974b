"""Reads an export request through the generated protobuf classes: slow, plain, independent of the decoder."""

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2

from kernelcast.columnar import (
    EXPLICIT,
    HAS_SUM,
    IS_INTEGER,
    NO_RECORDED_VALUE,
    Attributes,
    Decoded,
    Decoder,
    PointType,
    SeriesIdentity,
    Temporality,
    exemplars_of,
)
from kernelcast.columnar.decoding.rendering import as_text, number_text

Point = tuple[Any, ...]


@dataclass
class Truth:
    """Points of a message, as tuples whose doubles are bytes, so that NaN equals itself."""

    numbers: list[Point] = field(default_factory=list)
    histograms: list[Point] = field(default_factory=list)
    exemplars: list[Point] = field(default_factory=list)
    unsupported: int = 0


class RefusedError(Exception):
    """The message must not be used."""


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def truth(message: bytes) -> Truth | None:
    """Everything a message says; None if it must be refused."""
    try:
        request = ExportMetricsServiceRequest.FromString(message)
    except ProtobufError:
        return None
    found = Truth()
    try:
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    _walk_metric(found, resource, scope, metric)
    except RefusedError:
        return None
    return found


def _walk_metric(
    found: Truth,
    resource: metrics_pb2.ResourceMetrics,
    scope: metrics_pb2.ScopeMetrics,
    metric: metrics_pb2.Metric,
) -> None:
    which = metric.WhichOneof("data")
    if which is None:
        return
    container = getattr(metric, which)
    if not metric.name:
        found.unsupported += len(container.data_points)
        return
    for point in container.data_points:
        identity = SeriesIdentity(
            resource=_attributes(resource.resource.attributes),
            scope_name=scope.scope.name,
            scope_version=scope.scope.version,
            name=metric.name,
            unit=metric.unit,
            type=PointType[which.upper()],
            temporality=_temporality(container),
            monotonic=bool(getattr(container, "is_monotonic", False)),
            attributes=_attributes(point.attributes),
            scope_attributes=_attributes(scope.scope.attributes),
            schema_url=scope.schema_url,
        )
        if which == "summary":
            found.numbers += _summary(identity, point)
            continue
        head = (identity, point.start_time_unix_nano, point.time_unix_nano)
        exemplars = [_exemplar(exemplar) for exemplar in point.exemplars if exemplar.WhichOneof("value")]
        if len(point.exemplars):
            found.exemplars.append((identity, point.time_unix_nano, exemplars))
        if which in ("gauge", "sum"):
            found.numbers.append(head + _number(point))
        else:
            found.histograms.append(head + (_explicit(point) if which == "histogram" else _exponential(point)))


def _attributes(attributes: Iterable[KeyValue]) -> Attributes:
    return tuple(sorted({item.key: as_text(item.value) for item in attributes}.items()))


def _temporality(container: Any) -> Temporality:
    value = getattr(container, "aggregation_temporality", 0)
    return Temporality(value) if value in (0, 1, 2) else Temporality.UNSPECIFIED


def _summary(identity: SeriesIdentity, point: metrics_pb2.SummaryDataPoint) -> Iterator[Point]:
    flags = NO_RECORDED_VALUE if point.flags & 1 else 0
    times = (point.start_time_unix_nano, point.time_unix_nano)
    for quantile in point.quantile_values:
        part = number_text(quantile.quantile).strip('"')
        yield (replace(identity, part=part), *times, flags, bits(quantile.value), 0)
    yield (replace(identity, part="sum"), *times, flags, bits(point.sum), 0)
    count = struct.unpack("<q", struct.pack("<Q", point.count))[0]
    yield (replace(identity, part="count"), *times, flags | IS_INTEGER, bits(float(count)), count)


def _number(point: metrics_pb2.NumberDataPoint) -> Point:
    which = point.WhichOneof("value")
    flags = NO_RECORDED_VALUE if point.flags & 1 or which is None else 0
    if which == "as_int":
        return (flags | IS_INTEGER, bits(float(point.as_int)), point.as_int)
    return (flags, bits(point.as_double), 0)


def _exemplar(exemplar: metrics_pb2.Exemplar) -> Point:
    value = exemplar.as_double if exemplar.WhichOneof("value") == "as_double" else float(exemplar.as_int)
    ids = (exemplar.trace_id.hex(), exemplar.span_id.hex())
    return (bits(value), exemplar.time_unix_nano, *ids, _attributes(exemplar.filtered_attributes))


def _shared_flags(point: Any) -> int:
    return (NO_RECORDED_VALUE if point.flags & 1 else 0) | (HAS_SUM if point.HasField("sum") else 0)


def _explicit(point: metrics_pb2.HistogramDataPoint) -> Point:
    counts, bounds = list(point.bucket_counts), list(point.explicit_bounds)
    if len(counts) != len(bounds) + 1 and (counts or bounds):
        raise RefusedError
    if any(math.isnan(bound) for bound in bounds) or any(a >= b for a, b in pairwise(bounds)):
        raise RefusedError
    flags = _shared_flags(point) | EXPLICIT
    return (flags, point.count, bits(point.sum), 0, bits(0.0), 0, 0, [], 0, [], [bits(b) for b in bounds], counts)


def _exponential(point: metrics_pb2.ExponentialHistogramDataPoint) -> Point:
    if not -10 <= point.scale <= 20:
        raise RefusedError
    for side in (point.positive, point.negative):
        if side.offset + len(side.bucket_counts) - 1 > 2**31 - 1:
            raise RefusedError
    return (
        _shared_flags(point),
        point.count,
        bits(point.sum),
        point.zero_count,
        bits(point.zero_threshold),
        point.scale,
        point.positive.offset,
        list(point.positive.bucket_counts),
        point.negative.offset,
        list(point.negative.bucket_counts),
        [],
        [],
    )


def decoded_truth(decoder: Decoder, decoded: Decoded, message: int) -> Truth:
    """The decoder's result for one message, in the same form."""
    found = Truth(unsupported=decoded.unsupported)
    columns = decoded.numbers
    for i in np.flatnonzero(columns.message == message):
        found.numbers.append(
            (
                decoder.identity(int(columns.series[i])),
                int(columns.start_ns[i]),
                int(columns.time_ns[i]),
                int(columns.flags[i]),
                bits(columns.value[i]),
                int(columns.integer[i]),
            )
        )
    rows = decoded.histograms
    for i in np.flatnonzero(rows.message == message):

        def run(indptr: Any, data: Any, i: Any = i) -> list[Any]:
            return list(data[indptr[i] : indptr[i + 1]].tolist())

        found.histograms.append(
            (
                decoder.identity(int(rows.series[i])),
                int(rows.start_ns[i]),
                int(rows.time_ns[i]),
                int(rows.flags[i]),
                int(rows.count[i]),
                bits(rows.total[i]),
                int(rows.zero_count[i]),
                bits(rows.zero_threshold[i]),
                int(rows.scale[i]),
                int(rows.positive_offset[i]),
                run(rows.positive_indptr, rows.positive),
                int(rows.negative_offset[i]),
                run(rows.negative_indptr, rows.negative),
                [bits(bound) for bound in run(rows.bounds_indptr, rows.bounds)],
                run(rows.bucket_indptr, rows.buckets),
            )
        )
    found.exemplars = list(_decoded_exemplars(decoder, decoded, message))
    return found


def _decoded_exemplars(decoder: Decoder, decoded: Decoded, message: int) -> Iterator[Point]:
    """In the order of the wire, since both kinds of rows are in it."""
    noted = decoded.exemplars
    for row, histogram, raw in zip(noted.row.tolist(), noted.histogram.tolist(), noted.raw, strict=True):
        columns = decoded.histograms if histogram else decoded.numbers
        if columns.message[row] == message:
            identity = decoder.identity(int(columns.series[row]))
            kind = PointType.SUM if identity.type is PointType.GAUGE else identity.type
            found = exemplars_of(kind, raw)
            texts = [(bits(e.value), e.time_ns, e.trace_id, e.span_id, e.attributes) for e in found]
            yield (identity, int(columns.time_ns[row]), texts)


def assert_decodes_as_protobuf_says(decoder: Decoder, message: bytes) -> None:
    """Decode one message alone and compare with the truth."""
    expected = truth(message)
    decoded = decoder.decode([message])
    if expected is None:
        assert [index for index, _ in decoded.failures] == [0]
        assert len(decoded.numbers.series) == 0
        assert len(decoded.histograms.series) == 0
        assert decoded.exemplars.raw == ()
        assert decoded.unsupported == 0
    else:
        assert decoded.failures == ()
        assert decoded_truth(decoder, decoded, 0) == expected
