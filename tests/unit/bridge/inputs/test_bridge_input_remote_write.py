import random
from typing import Any

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import readings, shapes
from tests.fuzz.targets import points_of
from tests.support.bridge.input_reading import one, read
from tests.support.examples import parser_examples

from kernelcast.bridge.inputs.remote_write.requests import RemoteWrite
from kernelcast.bridge.inputs.remote_write.schema import LABEL, REQUEST, WRITE_REQUEST
from kernelcast.bridge.inputs.rows import BatchRows
from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import EXPLICIT, NO_RECORDED_VALUE, DecoderLimits
from kernelcast.wire.catalogue import Kind

MS = 1_000_000
NOW_MS = 1_700_000_000_000


def version_1(**labels: str) -> tuple[Any, Any]:
    request = WRITE_REQUEST()
    series = request.timeseries.add()
    for name, value in labels.items():
        series.labels.append(LABEL(name=name, value=value).SerializeToString())
    return request, series


def version_2(type_: int = 0, **labels: str) -> tuple[Any, Any]:
    texts = [text for pair in labels.items() for text in pair]
    request = REQUEST(symbols=["", "a description", "seconds", *texts])
    series = request.timeseries.add(labels_refs=range(3, 3 + len(texts)))
    series.metadata.type, series.metadata.help_ref, series.metadata.unit_ref = type_, 1, 2
    return request, series


def native(series: Any, **fields: Any) -> Any:
    spans = fields.pop("spans")
    histogram = series.histograms.add(timestamp=NOW_MS, **fields)
    for offset, length in spans:
        histogram.positive_spans.add(offset=offset, length=length)
    return histogram


@pytest.mark.parametrize("pack", [bytes, lambda body: bytes(cramjam.snappy.compress_raw(body))])
def test_both_versions_bare_and_in_snappy_keep_names_labels_and_milliseconds(pack: Any) -> None:
    first, series = version_1(__name__="up", job="api", instance="h:9")
    series.samples.add(value=1.0, timestamp=NOW_MS)
    second, series = version_2(1, __name__="done_seconds_total", job="api", instance="h:9")
    series.samples.add(value=2.0, timestamp=NOW_MS, start_timestamp=NOW_MS - 5)
    source = RemoteWrite()
    one_point, other = one(source, pack(first.SerializeToString())), one(source, pack(second.SerializeToString()))
    assert (one_point.name, one_point.labels, one_point.time_ns) == ("up", 'instance="h:9",job="api"', NOW_MS * MS)
    assert (one_point.kind, one_point.value) == (Kind.UNKNOWN, 1.0)
    assert (other.kind, other.help, other.start_ns) == (Kind.COUNTER, "a description", (NOW_MS - 5) * MS)
    placement = source.identity(1)
    assert isinstance(placement, Placement)
    assert (placement.unit, placement.producer) == ("seconds", ("api", "h:9"))


def test_a_label_that_is_repeated_keeps_each_of_its_values_once() -> None:
    """prometheus/prometheus issue 15138: labels are sent twice, some with the same value."""
    request, series = version_1(__name__="up", env="prod", service="a")
    for name, value in (("env", "prod"), ("service", "b")):
        series.labels.append(LABEL(name=name, value=value).SerializeToString())
    series.samples.add(value=1.0, timestamp=NOW_MS)
    assert one(RemoteWrite(), request.SerializeToString()).labels == 'env="prod",service="a;b"'


def test_the_marker_of_a_stale_series_is_no_value() -> None:
    request, series = version_1(__name__="up")
    series.samples.add(value=shapes.STALE, timestamp=NOW_MS)
    series.samples.add(value=float("nan"), timestamp=NOW_MS)
    flags = RemoteWrite().decode([request.SerializeToString()]).numbers.flags.tolist()
    assert flags == [NO_RECORDED_VALUE, 0]


def test_metadata_of_version_1_describes_the_series_that_come_after_it() -> None:
    source, request = RemoteWrite(), WRITE_REQUEST()
    request.metadata.add(type=3, metric_family_name="rpc_seconds", help="Time.", unit="seconds")
    request.metadata.add(type=1, metric_family_name="jobs", help="Jobs.")
    assert read(source, request.SerializeToString()) == []
    for name, kind in (("rpc_seconds_bucket", Kind.COUNTER), ("jobs_total", Kind.COUNTER), ("other", Kind.UNKNOWN)):
        request, series = version_1(__name__=name, le="1")
        series.samples.add(value=1, timestamp=NOW_MS)
        assert one(source, request.SerializeToString()).kind is kind


def test_a_native_histogram_keeps_its_buckets() -> None:
    request, series = version_2(3, __name__="h")
    native(series, schema=3, count_int=7, sum=1.5, zero_count_int=1, spans=[(2, 2), (1, 1)], positive_deltas=[1, 2, -1])
    rows = RemoteWrite().decode([request.SerializeToString()]).histograms
    # Prometheus' bucket 2 ends at base**2; OTLP's of the same bounds is 1.
    assert (rows.scale.tolist(), rows.positive_offset.tolist(), rows.positive.tolist()) == ([3], [1], [1, 3, 0, 2])
    assert (rows.count.tolist(), rows.total.tolist(), rows.zero_count.tolist()) == ([7], [1.5], [1])
    assert not rows.flags[0] & EXPLICIT


@pytest.mark.parametrize("version", [version_1, version_2])
def test_a_native_histograms_own_label_le_cannot_stand_beside_the_bound_of_its_buckets(version: Any) -> None:
    request, series = version(__name__="h", le="5", a="b")
    native(series, count_int=1, zero_count_int=1, spans=())
    assert one(RemoteWrite(), request.SerializeToString()).labels == 'a="b",exported_le="5"'


def test_custom_buckets_become_an_explicit_histogram() -> None:
    request, series = version_2(3, __name__="h")
    native(
        series, schema=-53, count_int=3, sum=2, custom_values=[1, 2, 4], spans=[(1, 1), (1, 1)], positive_deltas=[1, 1]
    )
    found = one(RemoteWrite(), request.SerializeToString())
    assert (found.kind, found.bounds, found.buckets) == (Kind.HISTOGRAM, [1.0, 2.0, 4.0], [0, 1, 0, 2])


def test_histograms_that_are_no_totals_are_left_out_and_counted() -> None:
    request, series = version_2(4, __name__="h")
    native(series, schema=0, count_int=1, reset_hint=3, spans=[(0, 1)], positive_deltas=[1])
    native(series, schema=0, count_float=1.5, spans=[(0, 1)], positive_counts=[1.5])
    native(series, schema=99, count_int=1, spans=[(0, 1)], positive_deltas=[1])
    native(series, schema=0, count_int=1, spans=[(0, 2)], positive_deltas=[1, -5])
    decoded = RemoteWrite().decode([request.SerializeToString()])
    assert (len(decoded.histograms.series), decoded.unsupported, decoded.failures) == (0, 4, ())


def wrong_bodies() -> dict[str, bytes]:
    odd, series = version_2(__name__="up")
    series.labels_refs.append(1)
    series.samples.add(value=1)
    beyond, series = version_2(__name__="up")
    series.labels_refs.extend((77, 78))
    series.samples.add(value=1)
    spans, series = version_2(__name__="up")
    native(series, schema=0, spans=[(0, 2)], positive_deltas=[1])
    wide, series = version_2(__name__="up")
    native(series, schema=0, spans=[(0, 1), (2**31 - 1, 1)], positive_deltas=[1, 0])
    late, series = version_1(__name__="up")
    series.samples.add(value=1, timestamp=2**62)
    requests = {"odd": odd, "beyond": beyond, "spans": spans, "wide": wide, "late": late}
    bodies = {name: request.SerializeToString() for name, request in requests.items()}
    return {**bodies, "empty": b"", "garbage": b"\xff\x01garbage", "cut": bodies["late"][:-3]}


@pytest.mark.parametrize(("name", "body"), wrong_bodies().items())
def test_a_wrong_request_is_refused_whole(name: str, body: bytes) -> None:
    good, series = version_1(__name__="good")
    series.samples.add(value=1, timestamp=NOW_MS)
    source = RemoteWrite()
    decoded = source.decode([body, good.SerializeToString()])
    assert ([index for index, _ in decoded.failures], decoded.numbers.message.tolist()) == ([0], [1])
    assert len(source.interner) == 1


def test_a_small_block_that_promises_gigabytes_costs_nothing() -> None:
    [(_, error)] = RemoteWrite().decode([b"\xff\xff\xff\xff\x0f" + bytes(20)]).failures
    assert "4294967295 bytes, decompressed; the limit is 8388608" in str(error)


@pytest.mark.parametrize(("kind", "fields"), [("sent", {}), ("left out", {"count_float": 1.5})])
def test_empty_buckets_between_spans_cannot_make_gigabytes(kind: str, fields: dict[str, Any]) -> None:
    request, series = version_2(__name__="up")
    for _ in range(30):
        native(series, schema=0, spans=[(0, 1), (9_998, 1)], positive_deltas=[1, 0], **fields)
    body = request.SerializeToString()
    source = RemoteWrite(limits=DecoderLimits(message_bytes=1024 * 1024))
    [(index, error)] = source.decode([body, body]).failures[:1]
    assert index == 0
    assert str(error).startswith("message has more than 262144 empty buckets between spans of histograms, the limit; ")
    for _ in range(5):
        series.histograms.pop()
    decoded = source.decode([request.SerializeToString(), request.SerializeToString()])
    assert decoded.failures == ()
    assert (len(decoded.histograms.series), decoded.unsupported) == ((50, 0) if kind == "sent" else (0, 50))


def test_a_refused_message_does_not_search_the_start_times_of_the_batch() -> None:
    class Unsearchable(dict[int, int]):
        def __iter__(self) -> Any:
            raise AssertionError("all start times are searched")

    rows = BatchRows(start_ns=Unsearchable())
    for start_ns in (5, 6, 7):
        rows.begin_message()
        rows.start_ns[len(rows.series)] = start_ns
        rows.series.append(0)
    rows.roll_back()
    assert list(rows.start_ns.items()) == [(0, 5), (1, 6)]


def test_symbols_shared_by_many_series_cannot_make_gigabytes_of_labels() -> None:
    request = REQUEST(symbols=["", "__name__", "up", "a", "x" * 60_000, *map(str, range(2_000))])
    for i in range(2_000):
        request.timeseries.add(labels_refs=[1, 2, 3, 4, i + 5, i + 5]).samples.add(value=1)
    source = RemoteWrite(limits=DecoderLimits(message_bytes=1024 * 1024))
    [(_, error)] = source.decode([request.SerializeToString()]).failures
    assert "bytes of labels" in str(error)
    assert len(source.interner) == 0


@parser_examples(300)
@given(seed=st.integers(0, 2**63))
def test_requests_read_as_protobufs_objects_say(seed: int) -> None:
    body = shapes.remote_write(random.Random(seed))
    source = RemoteWrite()
    for _ in range(2):  # unknown, then known
        decoded = source.decode([body])
        if not decoded.failures:  # a native histogram of this shape may be refused
            assert list(points_of(source, decoded, 0)) == readings.remote_write(body)
    source.forget(np.arange(20, dtype=np.int32))
    assert len(source.interner) == 0
