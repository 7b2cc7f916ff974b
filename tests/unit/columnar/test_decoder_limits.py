import time

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2
from tests.support.columnar.otlp_messages import delimited, varint

from kernelcast.columnar import Decoder, DecoderLimits


def message(points: int = 1, *, name: str = "n", attribute: str = "v", distinct: bool = False) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    for i in range(points):
        point = metric.gauge.data_points.add(as_double=1.0)
        point.attributes.add(key="k").value.string_value = f"{attribute}{i}" if distinct else attribute
    return request.SerializeToString()


def histogram(**fields: object) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="h")
    metric.histogram.data_points.append(metrics_pb2.HistogramDataPoint(**fields))  # type: ignore[arg-type]
    return request.SerializeToString()


def exponential(scale: int, offset: int, buckets: int) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="h")
    point = metric.exponential_histogram.data_points.add(scale=scale)
    point.positive.offset = offset
    point.positive.bucket_counts.extend([1] * buckets)
    return request.SerializeToString()


def summary(quantiles: int) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="s")
    point = metric.summary.data_points.add(count=1, sum=1.0)
    for i in range(quantiles):
        point.quantile_values.add(quantile=i / quantiles, value=1.0)
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("limits", "refused", "words"),
    [
        (DecoderLimits(message_bytes=60), message(3), "limit is 60"),
        (DecoderLimits(points_per_message=2), message(3), "more than 2 points"),
        (DecoderLimits(points_per_message=9), summary(8), "more than 9 points"),  # with its sum and count
        (DecoderLimits(identity_bytes=50), message(attribute="x" * 50), "longer than 50 bytes"),
        (DecoderLimits(identity_bytes=50), message(name="x" * 51), "longer than 50 bytes"),
        (
            DecoderLimits(buckets_per_point=5),
            histogram(bucket_counts=[1] * 6, explicit_bounds=[1, 2, 3, 4, 5]),
            "more than 5",
        ),
        (DecoderLimits(buckets_per_point=5), exponential(0, 0, 6), "more than 5 buckets"),
        (DecoderLimits(), exponential(21, 0, 1), "-10..20"),
        (DecoderLimits(), exponential(-11, 0, 1), "-10..20"),
        (DecoderLimits(), exponential(0, 2**31 - 1, 2), "above 2**31 - 1"),
        (DecoderLimits(), histogram(bucket_counts=[1, 2], explicit_bounds=[1, 2]), "one count more than bounds"),
        (DecoderLimits(), histogram(explicit_bounds=[1]), "one count more than bounds"),
        (DecoderLimits(), histogram(bucket_counts=[1, 2, 3], explicit_bounds=[2, 1]), "do not rise"),
        (DecoderLimits(), histogram(bucket_counts=[1, 2], explicit_bounds=[float("nan")]), "do not rise"),
    ],
)
def test_a_message_over_a_limit_is_refused_with_the_limit_and_the_rest_is_processed(
    limits: DecoderLimits, refused: bytes, words: str
) -> None:
    decoder = Decoder(limits=limits)
    small = message(1)
    decoded = decoder.decode([small, refused, small])
    ((index, error),) = decoded.failures
    assert index == 1
    assert words in str(error)
    assert decoded.numbers.message.tolist() == [0, 2]


def test_a_message_exactly_at_a_limit_is_used() -> None:
    decoder = Decoder(limits=DecoderLimits(message_bytes=len(message(3)), points_per_message=3))
    assert decoder.decode([message(3)]).failures == ()
    assert Decoder(limits=DecoderLimits(points_per_message=10)).decode([summary(8)]).failures == ()


def test_identities_beyond_the_maximum_are_refused_until_some_are_forgotten() -> None:
    decoder = Decoder(max_identities=10)
    assert decoder.decode([message(10, distinct=True)]).failures == ()
    ((_, error),) = decoder.decode([message(10, attribute="w", distinct=True)]).failures
    assert "10" in str(error)
    assert "max_identities" in str(error)
    assert decoder.decode([message(10, distinct=True)]).numbers.series.tolist() == list(range(10))
    decoder.forget(np.arange(10, dtype=np.int32))
    assert decoder.decode([message(10, attribute="w", distinct=True)]).failures == ()


def test_a_huge_length_allocates_nothing() -> None:
    decoder = Decoder()
    before = [array.nbytes for array in (decoder._state.numbers, decoder._state.data, decoder._state.contexts.arena)]
    for length in (2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1):
        for depth in range(5):
            body = varint(10) + varint(length)
            for _ in range(depth):
                body = delimited(1 if depth == 1 else 2, body)
            decoder.decode([delimited(1, body), varint(10) + varint(length) + b"abc"])
    after = [array.nbytes for array in (decoder._state.numbers, decoder._state.data, decoder._state.contexts.arena)]
    assert after == before


def test_the_memory_of_one_long_batch_is_freed() -> None:
    decoder = Decoder()
    decoded = decoder.decode([exponential(0, 0, 10_000)] * 300)
    assert len(decoded.histograms.positive) == 3_000_000
    assert decoder._state.data.nbytes < 64 * 1024 * 1024
    assert decoder.decode([exponential(0, 7, 3)]).histograms.positive.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"\x0b" * 100_000, id="groups that never close"),
        pytest.param(b"\x0b\x0c" * 50_000, id="empty groups"),
        pytest.param(b"\x0a\x00" * 50_000, id="empty resources"),
        pytest.param(delimited(1, b"\x12\x00" * 50_000), id="empty scopes"),
        pytest.param(delimited(1, delimited(2, b"\x12\x00" * 50_000)), id="empty metrics"),
        pytest.param(
            delimited(1, delimited(2, delimited(2, b"\x0a\x01n" + delimited(5, b"\x0a\x00" * 50_000)))), id="points"
        ),
        pytest.param(b"\xff" * 100_000, id="varints that never end"),
        pytest.param(b"\x08" + b"\x80" * 100_000, id="one long varint"),
    ],
)
def test_hostile_bytes_end_soon(hostile: bytes) -> None:
    decoder = Decoder()
    Decoder.warm_up()
    started = time.perf_counter()
    decoder.decode([hostile])
    assert time.perf_counter() - started < 5


def test_deep_nesting_of_attribute_values_is_refused_as_protobuf_refuses_it() -> None:
    value = b""
    for _ in range(200):
        value = delimited(5, delimited(1, value))
    point = delimited(7, delimited(1, b"k") + delimited(2, value))
    metric = delimited(1, b"n") + delimited(5, delimited(1, point))
    decoded = Decoder().decode([delimited(1, delimited(2, delimited(2, metric)))])
    assert len(decoded.failures) == 1
