"""Protobuf and native histograms: what machine code wrote, read back by the real message classes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.bridge.fleet import TARGET, Known, Point, come_from, counter, decoded, exposed_store, gauge
from tests.support.bridge.histograms import Shown, explicit, exponential
from tests.support.bridge.protobuf_pages import families

from kernelcast.bridge.expose import formats
from kernelcast.bridge.expose.client_model import COUNTER, GAUGE, HISTOGRAM
from kernelcast.bridge.expose.formats import protobuf_pieces
from kernelcast.bridge.layouts.exemplars import Exemplar
from kernelcast.bridge.layouts.layout import StoreSnapshot
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.columnar import Attributes


def read(snapshot: StoreSnapshot) -> list[Any]:
    found = list(families(b"".join(bytes(piece) for piece in protobuf_pieces(snapshot))))
    names = [family.name for family in found]
    assert len(set(names)) == len(names), "a family stands twice"
    return found


def labels(metric: Any) -> dict[str, str]:
    return {pair.name: pair.value for pair in metric.label}


text = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text('ab\\"\n', max_size=300))
names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
attributes = st.dictionaries(names, text, max_size=4).map(lambda found: tuple(sorted(found.items())))
numbers = st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(names, attributes, numbers, st.booleans()), max_size=15))
def test_the_message_classes_read_back_the_same_series(entries: list[tuple[str, Attributes, float, bool]]) -> None:
    store = exposed_store()
    identities = [
        (counter if counts else gauge)(f"m.{counts:d}.{name}", attributes=given_labels, description='Says "all"\\\n.')
        for name, given_labels, _, counts in entries
    ]
    points = [Point(i, value, i + 1, start_ns=7) for i, (_, _, value, _) in enumerate(entries)]
    store.apply(decoded(points), come_from(), Known(identities.__getitem__))
    expected = {}
    for name, given_labels, value, counts in entries:
        shown = {**TARGET, **{key: item for key, item in given_labels if item}}
        full = f"m_{counts:d}_{name}" + ("_total" if counts else "")
        expected[full, frozenset(shown.items())] = float(value)
    found = {}
    for family in read(store.snapshot()):
        assert family.help == 'Says "all"\\\n.'
        assert family.type == (COUNTER if family.name.endswith("_total") else GAUGE)
        for metric in family.metric:
            held = metric.counter if family.type == COUNTER else metric.gauge
            assert metric.HasField("counter" if family.type == COUNTER else "gauge")
            found[family.name, frozenset(labels(metric).items())] = held.value
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(value) and math.isnan(found[key]))


def native(deltas: Sequence[int], spans: Sequence[Any]) -> dict[int, int]:
    """Prometheus' index of each bucket that is not empty, with its count."""
    counts = np.cumsum(deltas).tolist()
    found, index, at = {}, 0, 0
    for span in spans:
        index += span.offset
        for _ in range(span.length):
            found[index] = counts[at]
            index, at = index + 1, at + 1
    assert at == len(counts), "spans and counts are of one length"
    return {index: count for index, count in found.items() if count}


counts = st.lists(st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 10**12)), max_size=60)


@example(0, -5, [1], [], 0, 0.0)
@example(0, -2, [1], [2], 0, 0.0)
@given(st.integers(-4, 8), st.integers(-5000, 5000), counts, counts, st.integers(0, 10**9), st.sampled_from([0.0, 0.5]))
def test_an_exponential_histogram_becomes_the_native_one_that_the_specification_says(
    scale: int, offset: int, positive: Sequence[int], negative: Sequence[int], zero: int, threshold: float
) -> None:
    shown = Shown()
    body = exponential(
        scale=scale, offset=offset, positive=positive, negative=negative, zero=zero, threshold=threshold, total=2.5
    )
    shown.read(body)
    (family,) = read(shown.store.snapshot())
    assert (family.name, family.type) == ("latency", HISTOGRAM)
    (metric,) = family.metric
    histogram = metric.histogram
    assert histogram.sample_count == sum(positive) + sum(negative) + zero
    assert histogram.sample_sum == 2.5
    assert histogram.schema == scale
    assert histogram.zero_threshold == (threshold or 1e-128)
    assert histogram.zero_count == zero
    assert native(histogram.positive_delta, histogram.positive_span) == {
        offset + i + 1: count for i, count in enumerate(positive) if count
    }
    assert native(histogram.negative_delta, histogram.negative_span) == {
        i + 1: count for i, count in enumerate(negative) if count
    }
    classic = {bucket.upper_bound: bucket.cumulative_count for bucket in histogram.bucket}
    assert classic == shown.buckets()
    assert (histogram.start_timestamp.seconds, histogram.start_timestamp.nanos) == (0, 1)


def test_a_scale_finer_than_prometheus_has_is_merged_and_one_coarser_leaves_the_classic_buckets() -> None:
    fine = Shown()
    fine.read(exponential(scale=10, offset=-3, positive=[1, 2, 4, 8, 16, 32]))
    histogram = read(fine.store.snapshot())[0].metric[0].histogram
    assert histogram.schema == 8
    assert native(histogram.positive_delta, histogram.positive_span) == {0: 7, 1: 56}
    coarse = Shown()
    coarse.read(exponential(scale=-5, offset=-1, positive=[1, 2], zero=3))
    histogram = read(coarse.store.snapshot())[0].metric[0].histogram
    assert not histogram.positive_span
    assert (histogram.schema, histogram.zero_threshold, histogram.zero_count) == (0, 0.0, 0)
    assert (histogram.sample_count, histogram.bucket[-1].upper_bound) == (6, math.inf)
    assert len(histogram.bucket) == 28


def test_an_empty_exponential_histogram_is_still_a_native_one() -> None:
    shown = Shown()
    shown.read(exponential(scale=3))
    histogram = read(shown.store.snapshot())[0].metric[0].histogram
    assert histogram.zero_threshold == 1e-128
    assert histogram.sample_count == 0


def test_an_explicit_histogram_has_its_classic_buckets_and_no_native_part() -> None:
    shown = Shown()
    shown.read(explicit([0.5, 2.0], [3, 4, 5], total=10.0))
    histogram = read(shown.store.snapshot())[0].metric[0].histogram
    assert [(bucket.upper_bound, bucket.cumulative_count) for bucket in histogram.bucket] == [
        (0.5, 3),
        (2.0, 7),
        (math.inf, 12),
    ]
    assert (histogram.sample_count, histogram.sample_sum, histogram.zero_threshold) == (12, 10.0, 0.0)


def test_a_missing_sum_is_not_a_number_and_not_zero() -> None:
    shown = Shown()
    shown.read(exponential(positive=[1], total=None))
    assert math.isnan(read(shown.store.snapshot())[0].metric[0].histogram.sample_sum)


@pytest.mark.parametrize("length", [0, 1, 60, 100, 127, 128, 16_000])
def test_labels_of_any_length_keep_every_length_before_them_right(length: int) -> None:
    store = exposed_store()
    value = "x" * min(length, 7_900)
    store.apply(decoded([Point(0, 1.5, 1)]), come_from(), Known(lambda _: gauge("m", attributes=(("a", value),))))
    (metric,) = read(store.snapshot())[0].metric
    assert labels(metric) == {**TARGET, **({"a": value} if value else {})}


def test_a_family_that_does_not_fit_into_a_chunk_stays_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "SERIES_PER_CHUNK", 7)
    store = exposed_store()
    identities = [gauge(f"m{i % 3}", attributes=(("i", str(i)),)) for i in range(100)]
    store.apply(decoded([Point(i, i + 0.5, 1) for i in range(100)]), come_from(), Known(identities.__getitem__))
    found = {int(labels(m)["i"]): m.gauge.value for family in read(store.snapshot()) for m in family.metric}
    assert found == {i: i + 0.5 for i in range(100)}


def marked(store: SeriesStore, *exemplars: Exemplar) -> StoreSnapshot:
    return replace(store.snapshot(), exemplars_by_slot={0: exemplars})


def test_exemplars_are_in_counters_in_their_buckets_and_beside_native_ones() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 9, 1)]), come_from(), Known(lambda _: counter()))
    old = Exemplar((("trace_id", "a"),), 1.0, 1_500_000_000)
    new = Exemplar((("trace_id", "b"), ("span_id", "c")), 2.0, 2_500_000_000)
    exemplar = read(marked(store, new, old))[0].metric[0].counter.exemplar
    assert {pair.name: pair.value for pair in exemplar.label} == {"trace_id": "b", "span_id": "c"}
    assert (exemplar.value, exemplar.timestamp.seconds, exemplar.timestamp.nanos) == (2.0, 2, 500_000_000)
    shown = Shown()
    shown.read(exponential(positive=[1, 1]))
    histogram = read(marked(shown.store, old, new))[0].metric[0].histogram
    assert [item.value for item in histogram.exemplars] == [1.0, 2.0]
    held = {b.upper_bound: b.exemplar.value for b in histogram.bucket if b.HasField("exemplar")}
    assert held == {1.0: 1.0, 2.0: 2.0}


def test_an_exemplar_too_long_for_prometheus_or_on_a_gauge_is_left_out() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 9, 1)]), come_from(), Known(lambda _: counter()))
    long = Exemplar((("trace_id", "x" * 121),), 1.0, 1)
    assert not read(marked(store, long))[0].metric[0].counter.HasField("exemplar")
    plain = exposed_store()
    plain.apply(decoded([Point(0, 9.0, 1)]), come_from(), Known(lambda _: gauge()))
    assert read(marked(plain, Exemplar((), 1.0)))[0].metric[0].gauge.value == 9.0
