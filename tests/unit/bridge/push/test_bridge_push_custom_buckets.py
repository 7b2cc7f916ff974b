"""Remote write's histograms with custom buckets: their ends, and series that change between both kinds of buckets."""

import math
from typing import Any

import pytest
from tests.fuzz import shapes
from tests.support.push.push_bench import Bench, name_of, read_v2

from kernelcast.bridge.inputs.remote_write.schema import REQUEST

NOW_MS = 1_700_000_000_000
CUSTOM = {"schema": -53, "count_int": 3, "sum": 2.0, "custom_values": [1.0, 2.0], "positive_deltas": [1, 1]}
EXPONENTIAL = {"schema": 0, "count_int": 2, "sum": 2.0, "positive_deltas": [1, 0]}
STALE = {"sum": shapes.STALE}
CLASSIC_NAMES = {"h_bucket", "h_sum", "h_count"}


def body(fields: dict[str, Any], seconds: int) -> bytes:
    request = REQUEST(symbols=["", "__name__", "h", "job", "api"])
    histogram = request.timeseries.add(labels_refs=[1, 2, 3, 4]).histograms.add(
        timestamp=NOW_MS + 1000 * seconds, **fields
    )
    if fields.get("positive_deltas"):
        histogram.positive_spans.add(offset=0, length=2)
    return bytes(request.SerializeToString())


def unrelated() -> bytes:
    request = REQUEST(symbols=["", "__name__", "unrelated"])
    request.timeseries.add(labels_refs=[1, 2]).samples.add(timestamp=NOW_MS, value=7)
    return bytes(request.SerializeToString())


def sent(bench: Bench, *bodies: bytes) -> list[tuple[str, str, float]]:
    """Name, kind and time in seconds of each point that goes out; an end is "stale" or "stale histogram"."""
    found = []
    for labels, series in read_v2(bench.payloads(*bodies, topic="t")):
        for kind, points in (("", series.samples), (" histogram", series.histograms)):
            for point in points:
                stale = math.isnan(point.sum if kind else point.value)
                found.append((name_of(labels), ("stale" if stale else "value") + kind, point.timestamp - NOW_MS))
    return [(name, kind.strip(), ms / 1000) for name, kind, ms in found]


def names(points: list[tuple[str, str, float]], kind: str) -> set[str]:
    return {name for name, its_kind, _ in points if its_kind == kind}


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_the_end_of_custom_buckets_ends_their_classic_series_and_no_other(*, in_one_batch: bool) -> None:
    bench = Bench()
    sent(bench, unrelated())
    bodies = [body(CUSTOM, 0), body(STALE, 1)]
    points = sent(bench, *bodies) if in_one_batch else [*sent(bench, bodies[0]), *sent(bench, bodies[1])]
    assert names(points, "value") == names(points, "stale") == CLASSIC_NAMES
    assert names(points, "stale histogram") == set()


def test_a_series_that_changes_to_exponential_buckets_goes_out_under_its_own_name() -> None:
    bench = Bench()
    sent(bench, unrelated(), body(CUSTOM, 0))
    assert sent(bench, body(EXPONENTIAL, 1)) == [("h", "value histogram", 1)]
    points = sent(bench, body(STALE, 2))
    assert (names(points, "stale"), names(points, "stale histogram")) == (CLASSIC_NAMES, {"h"})


@pytest.mark.parametrize("first", [EXPONENTIAL, STALE])
def test_custom_buckets_after_another_kind_or_an_end_go_out(first: dict[str, Any]) -> None:
    bench = Bench()
    assert [name for name, _, _ in sent(bench, body(first, 0))] == ["h"]
    assert names(sent(bench, body(CUSTOM, 1)), "value") == CLASSIC_NAMES


def test_the_end_of_an_exponential_histogram_is_a_stale_histogram() -> None:
    bench = Bench()
    sent(bench, body(EXPONENTIAL, 0))
    assert sent(bench, body(STALE, 1)) == [("h", "stale histogram", 1)]


def test_without_native_histograms_the_end_is_one_of_classic_series() -> None:
    bench = Bench(native_histograms=False)
    sent(bench, unrelated(), body(CUSTOM, 0))
    points = sent(bench, body(STALE, 1))
    assert (names(points, "stale"), len(points)) == (CLASSIC_NAMES, 5)
