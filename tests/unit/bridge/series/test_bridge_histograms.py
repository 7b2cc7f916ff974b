import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.fleet import RESOURCE, come_from
from tests.support.bridge.histograms import Shown, explicit, exponential

from kernelcast.bridge.tables.columns import MALFORMED_HISTOGRAM, SERIES_LIMIT, STORED
from kernelcast.bridge.tables.exponential import HEADER_WORDS, MAX_BUCKETS, MAX_SCALE, block_words
from kernelcast.bridge.tables.schemas import MAX_BOUNDS, Schemas
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS, DurationTotals, classic_counts

KERNEL = (("kernel", "gemm"),)
NAME = "cuda_kernel_duration_seconds"


def exported(totals: DurationTotals, *, time: int = 2, detailed: bool) -> bytes:
    sample = Sample(kernel.DURATION, KERNEL, time, totals, 1, detailed=detailed)
    return next(iter(encode(Resource(RESOURCE), [sample], scope=""))).body


durations = st.lists(st.one_of(st.integers(0, 10**6), st.integers(0, 10**12)), min_size=1, max_size=60)


@given(durations)
def test_classic_buckets_count_exactly_the_durations_at_or_below_each_bound(durations_ns: list[int]) -> None:
    totals = DurationTotals()
    for duration in durations_ns:
        totals.observe(duration)
    shown = Shown()
    shown.read(exported(totals, detailed=True))
    assert [*shown.buckets(NAME)] == [*CLASSIC_BOUNDS_SECONDS, math.inf]
    expected = classic_counts(totals.zero_count, totals.buckets.items())
    assert [*shown.buckets(NAME).values()] == [*expected, len(durations_ns)]
    exact = [sum(duration <= bound * 1e9 for duration in durations_ns) for bound in CLASSIC_BOUNDS_SECONDS]
    assert expected == exact
    assert shown.value("sum", NAME) == totals.sum_seconds


def upper_exponent(index: int, scale: int) -> float:
    return (index + 1) * 2.0**-scale


@given(
    st.integers(-10, 20),
    st.integers(-3000, 3000),
    st.lists(st.integers(0, 5), max_size=40),
    st.lists(st.integers(0, 3), max_size=5),
    st.integers(0, 4),
    st.sampled_from([0.0, 1e-9, 0.01, 1e9]),
)
def test_no_scale_overstates_a_bucket_and_nothing_is_lost(
    scale: int, offset: int, positive: Sequence[int], negative: Sequence[int], zero: int, threshold: float
) -> None:
    shown = Shown()
    shown.read(
        exponential(scale=scale, offset=offset, positive=positive, negative=negative, zero=zero, threshold=threshold)
    )
    total = sum(positive) + sum(negative) + zero
    for bound, count in shown.buckets().items():
        if bound == math.inf:
            assert count == total
            continue
        surely = sum(
            observations
            for i, observations in enumerate(positive)
            if upper_exponent(offset + i, scale) <= math.log2(bound)
        )
        assert count == surely + sum(negative) + (zero if threshold <= bound else 0)


@pytest.mark.parametrize(("scale", "offset"), [(-10, 0), (20, 2**31 - 50), (-10, -(2**31)), (0, 2**31 - 50)])
def test_extreme_scales_and_offsets_neither_crash_nor_overstate(scale: int, offset: int) -> None:
    shown = Shown()
    shown.read(exponential(scale=scale, offset=offset, positive=[1, 2]))
    counts = [*shown.buckets().values()]
    assert counts == sorted(counts)
    assert counts[-1] == 3


@dataclass
class Kept:
    """The content of a histogram's block."""

    scale: int
    threshold: float
    zero: int
    positive: dict[int, int]
    negative: dict[int, int]

    @classmethod
    def of(cls, shown: Shown) -> "Kept":
        slots = shown.store._slots
        words = slots.blocks.counts[slots.series.block[0] :]
        scale, threshold, zero, positive, positives, negative, negatives, capacity = words[:HEADER_WORDS].tolist()
        counts = words[HEADER_WORDS:capacity].tolist()
        assert positives + negatives <= len(counts)
        return cls(
            scale,
            float(np.int64(threshold).view(np.float64)),
            zero,
            {positive + i: count for i, count in enumerate(counts[:positives])},
            {negative + i: count for i, count in enumerate(counts[positives : positives + negatives])},
        )


def merged(offset: int, counts: Sequence[int], steps: int) -> dict[int, int]:
    buckets: dict[int, int] = {}
    for i, count in enumerate(counts):
        index = (offset + i) >> steps
        buckets[index] = buckets.get(index, 0) + count
    return buckets


sides = st.tuples(
    st.integers(-(2**31), 2**30), st.one_of(st.lists(st.integers(0, 5), max_size=9), st.just([1] * 1_000))
)


@given(st.lists(st.tuples(st.integers(-10, 20), sides, sides), min_size=1, max_size=4))
def test_an_exponential_histogram_is_kept_as_it_came_at_a_scale_that_has_room(
    points: list[tuple[int, tuple[int, list[int]], tuple[int, list[int]]]],
) -> None:
    shown = Shown()
    for time, (scale, positive, negative) in enumerate(points, start=1):
        body = exponential(
            time=time,
            scale=scale,
            offset=positive[0],
            positive=positive[1],
            negative_offset=negative[0],
            negative=negative[1],
            zero=3,
            threshold=0.25,
        )
        shown.read(body)
        kept = Kept.of(shown)
        steps = scale - kept.scale
        assert (kept.threshold, kept.zero) == (0.25, 3)
        assert kept.positive == merged(*positive, steps)
        assert kept.negative == merged(*negative, steps)
        assert kept.scale <= MAX_SCALE
        most = max(len(merged(*side, steps - 1)) for side in (positive, negative)) if steps else 0
        assert steps == max(scale - MAX_SCALE, 0) or most > MAX_BUCKETS
        assert max(len(kept.positive), len(kept.negative)) <= MAX_BUCKETS


def test_explicit_bounds_are_shown_as_they_came() -> None:
    shown = Shown()
    shown.read(explicit([0.5, 1.0, 2.5], [1, 0, 2, 4], total=9.75))
    assert shown.buckets() == {0.5: 1, 1.0: 1, 2.5: 3, math.inf: 7}
    assert (shown.value("count"), shown.value("sum")) == (7, 9.75)


def test_bounds_that_change_are_followed() -> None:
    shown = Shown()
    shown.read(explicit([0.5, 1.0], [1, 0, 2], time=1))
    shown.read(explicit([1.0, 10.0, 100.0], [1, 1, 1, 1], time=2))
    assert shown.buckets() == {1.0: 1, 10.0: 2, 100.0: 3, math.inf: 4}


def test_a_histogram_without_bounds_has_count_and_sum_alone() -> None:
    shown = Shown()
    shown.read(explicit([], [], count=5, total=2.5))
    assert shown.buckets() == {math.inf: 5}
    assert (shown.value("count"), shown.value("sum")) == (5, 2.5)


def test_a_histogram_without_a_sum_shows_none() -> None:
    shown = Shown()
    shown.read(exponential(positive=[1], total=None))
    assert shown.value("sum") is None
    assert shown.value("count") == 1


def test_a_kernel_that_joins_and_leaves_the_hottest_stays_one_series() -> None:
    shown, totals = Shown(), DurationTotals()
    totals.observe(3_000)
    for time, detailed in enumerate([False, True, False, True], start=2):
        totals.observe(5_000)
        shown.read(exported(totals, time=time, detailed=detailed))
        assert shown.value("count", NAME) == time
        assert len(shown.buckets(NAME)) == (28 if detailed else 1)
    assert shown.store.states()["exposed"] == 1
    assert shown.store.lines == 30


@pytest.mark.parametrize(
    "body",
    [
        explicit([1.0, 2.0], [1, 1, 1], count=4),
        explicit([1.0, 2.0], [1, 1]),
        explicit([2.0, 1.0], [1, 1, 1]),
        explicit([1.0, 1.0], [1, 1, 1]),
        explicit([1.0, math.inf], [1, 1, 1]),
        explicit([1.0, math.nan], [1, 1, 1]),
        explicit([1.0], [2**63, 2**63], count=0),
        exponential(positive=[1, 2], count=4),
        exponential(positive=[2**63, 2**63], count=0),
        exponential(zero=2, count=1),
    ],
    ids=lambda body: f"{len(body)} bytes",
)
def test_counts_that_contradict_each_other_are_refused(body: bytes) -> None:
    shown = Shown()
    shown.read(explicit([3.0], [1, 0]))
    decoded = shown.decoder.decode([body])
    if not decoded.failures:  # the decoder refuses some of them itself
        outcomes = shown.store.apply(decoded, come_from(offset=9), shown.decoder)
        assert outcomes[MALFORMED_HISTOGRAM] == 1
    assert shown.buckets() == {3.0: 1, math.inf: 1}


def test_a_histogram_that_would_grow_over_the_limit_is_refused_and_counted() -> None:
    shown = Shown(SeriesLimits(series=10, series_per_metric=10))
    assert shown.read(exponential(positive=[1]))[SERIES_LIMIT] == 1
    assert shown.read(explicit([1.0], [1, 1]))[STORED] == 1
    assert shown.store.lines == 4


def test_the_memory_of_buckets_is_used_again() -> None:
    shown = Shown()
    for time in range(1, 200):
        shown.read(explicit([float(time)], [1, 1], time=time) if time % 2 else exponential(positive=[1], time=time))
    assert shown.store._slots.blocks.used == block_words(1, 0) + 1


def test_histograms_that_gain_buckets_one_by_one_take_little_more_memory_than_their_last_blocks() -> None:
    shown = Shown()
    for buckets in range(1, 161):
        shown.read(exponential(time=buckets, positive=[1] * buckets))
    assert shown.store._slots.blocks.used < 3 * (HEADER_WORDS + 160)


def test_sets_of_bounds_are_limited_by_their_size_too() -> None:
    schemas = Schemas()
    wide = [np.arange(i, i + 9_000, dtype=np.float64) for i in range(50)]
    numbers = [schemas.number(bounds) for bounds in wide]
    assert numbers.count(None) > 0
    assert len(schemas.bounds) <= MAX_BOUNDS
    assert schemas.number(wide[0]) == numbers[0]
