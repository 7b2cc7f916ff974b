import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from tests.support.bridge.exemplars import BOUNDS, CUMULATIVE, SECOND_NS, SPAN, TRACE, Site, exemplar

from kernelcast.bridge.layouts.exemplars import Exemplar
from kernelcast.bridge.series import kept_exemplars
from kernelcast.bridge.series.kept_exemplars import MAX_PER_SERIES, UNREAD_POINTS


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def test_an_exemplar_leads_to_its_trace_and_carries_what_its_series_does_not_say() -> None:
    site = Site()
    site.count(exemplar(3.5, 5, trace_id=TRACE, span_id=SPAN, filtered_attributes=[text("user.id", "u1")]))
    labels = (("trace_id", TRACE.hex()), ("span_id", SPAN.hex()), ("user_id", "u1"))
    assert site.shown() == [[Exemplar(labels, 3.5, 5 * SECOND_NS)]]


def test_a_counter_keeps_its_newest_exemplar_also_when_newer_points_have_none() -> None:
    site = Site()
    site.count(exemplar(1, 5), exemplar(2, 3))
    site.count(exemplar(3, 9))
    site.count()
    assert site.values() == [3]


def test_a_histogram_keeps_the_newest_exemplar_of_each_bucket() -> None:
    site = Site()
    site.observe(exemplar(0.5, 1), exemplar(3.0, 2), exemplar(99.0, 3))
    site.observe(exemplar(0.7, 4), exemplar(1.0, 3))
    assert site.values() == [3.0, 99.0, 0.7]


def test_the_one_exemplar_of_a_rare_bucket_stays_however_many_points_follow() -> None:
    site = Site()
    site.observe(exemplar(99.0, 1))
    for second in range(2, 4 * UNREAD_POINTS):
        site.observe(exemplar(0.5, second))
    assert site.values() == [99.0, 0.5]


@given(st.lists(st.lists(st.tuples(st.sampled_from([0.5, 1.0, 1.5, 3.0, 9.0]), st.integers(1, 9)), max_size=4)))
def test_however_points_bring_them_each_bucket_shows_its_newest(points: list[list[tuple[float, int]]]) -> None:
    site = Site()
    newest: dict[int, tuple[int, float]] = {}
    for point in points:
        site.observe(*(exemplar(value, second) for value, second in point))
        for value, second in point:
            bucket = sum(value > bound for bound in BOUNDS)
            if bucket not in newest or newest[bucket][0] <= second:
                newest[bucket] = (second, value)
    shown = sorted(one.value for series in site.shown() for one in series)
    assert shown == sorted(value for _, value in newest.values())


def test_exponential_histograms_have_exemplars_too() -> None:
    site = Site()
    point = metrics_pb2.ExponentialHistogramDataPoint(
        count=1, scale=3, zero_count=1, time_unix_nano=1, exemplars=[exemplar(0.25)]
    )
    histogram = metrics_pb2.ExponentialHistogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    site.send(metrics_pb2.Metric(name="latency", exponential_histogram=histogram))
    assert site.values() == [0.25]


def test_what_no_scrape_may_carry_is_left_out_and_the_trace_stays() -> None:
    site = Site()
    site.count(exemplar(1, 1, trace_id=TRACE, filtered_attributes=[text("sql", "x" * 128)]))
    assert site.shown() == [[Exemplar((("trace_id", TRACE.hex()),), 1.0, SECOND_NS)]]


def test_an_attribute_cannot_pose_as_the_trace() -> None:
    site = Site()
    site.count(exemplar(1, 1, trace_id=TRACE, filtered_attributes=[text("trace.id", "mine")]))
    [[shown]] = site.shown()
    assert dict(shown.labels) == {"trace_id": TRACE.hex(), "exported_trace_id": "mine"}


def test_a_sum_that_rises_and_falls_has_no_exemplars() -> None:
    site = Site()
    site.count(exemplar(1), name="queue", monotonic=False)
    assert site.shown() == []


def test_exemplars_go_with_their_series_and_another_series_in_its_place_has_none() -> None:
    site = Site()
    site.count(exemplar(1))
    site.store.expire({0: 10})
    site.offset = 20
    site.count(name="others")
    assert site.shown() == []


def test_a_snapshot_has_the_series_of_its_moment() -> None:
    site = Site()
    site.count(exemplar(1, 1))
    snapshot = site.store.snapshot()
    site.count(exemplar(2, 2))
    assert [one.value for one in snapshot.exemplars()[0]] == [1]


def test_beyond_the_limit_those_go_that_have_had_none_for_longest_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_exemplars, "MAX_SERIES", 2)
    site = Site()
    for name in ("a", "b", "a", "c"):
        site.count(exemplar(ord(name)), name=name)
    assert [[one.value for one in series] for series in site.shown()] == [[ord("a")], [ord("c")]]
    assert site.store.occupancy().dropped_exemplars == 1


def test_a_point_with_an_absurd_amount_of_exemplars_keeps_none_and_is_counted() -> None:
    site = Site()
    site.count(*(exemplar(i) for i in range(2000)))
    assert site.shown() == []
    assert site.store.occupancy().dropped_exemplars == 1


def test_a_histogram_with_very_many_buckets_shows_its_newest_exemplars() -> None:
    site = Site()
    bounds = [float(i) for i in range(50)]
    point = metrics_pb2.HistogramDataPoint(
        count=51,
        bucket_counts=[1] * 51,
        explicit_bounds=bounds,
        time_unix_nano=1,
        exemplars=[exemplar(value, int(value) + 1) for value in bounds],
    )
    histogram = metrics_pb2.Histogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    site.send(metrics_pb2.Metric(name="latency", histogram=histogram))
    assert site.values() == bounds[-MAX_PER_SERIES:]


def test_snapshots_share_one_copy_of_the_exemplars_until_one_comes_or_goes() -> None:
    site = Site()
    site.count(exemplar(1.0))
    first = site.store.snapshot().exemplars_by_slot
    assert site.store.snapshot().exemplars_by_slot is first
    site.count()  # the series' own value is newer, its exemplars are not
    assert site.store.snapshot().exemplars_by_slot is first
    site.count(exemplar(2.0))
    assert site.values() == [2.0]
    assert [one.value for one in first[next(iter(first))]] == [1.0]
    site.store.expire({0: 10**9})
    assert site.store.snapshot().exemplars_by_slot == {}
    assert len(first) == 1
