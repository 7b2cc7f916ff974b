import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS, DurationTotals, bucket_index, classic_counts

durations_ns = st.integers(min_value=0, max_value=10**14)


@given(st.integers(min_value=1, max_value=10**14))
def test_a_duration_is_within_its_bucket(duration_ns: int) -> None:
    index = bucket_index(duration_ns)
    assert 2 ** (index / 8) * 1e9 * (1 - 1e-12) <= duration_ns <= 2 ** ((index + 1) / 8) * 1e9 * (1 + 1e-12)


@pytest.mark.parametrize("exponent", [-9, -5, 0, 3])
def test_a_power_of_two_counts_below_its_own_bound(exponent: int) -> None:
    duration_ns = int(2.0**exponent * 1e9)
    assert duration_ns == 2.0**exponent * 1e9
    assert bucket_index(duration_ns) == 8 * exponent - 1


@given(st.lists(durations_ns, max_size=60))
def test_the_classic_buckets_have_the_counts_of_the_raw_values(values: list[int]) -> None:
    totals = DurationTotals()
    for value in values:
        totals.observe(value)
    expected = [sum(value <= bound * 1e9 for value in values) for bound in CLASSIC_BOUNDS_SECONDS]
    assert classic_counts(totals.zero_count, totals.buckets.items()) == expected


@given(st.lists(durations_ns, max_size=30), st.lists(durations_ns, max_size=30))
def test_totals_add_and_subtract_without_loss(first: list[int], second: list[int]) -> None:
    one, two, both = DurationTotals(), DurationTotals(), DurationTotals()
    for value in first:
        one.observe(value)
        both.observe(value)
    for value in second:
        two.observe(value)
        both.observe(value)
    total = one.copy()
    total.add(two)
    assert total == both
    total.subtract(one)
    assert total == two
    assert both.sum_squares_ns2 == sum(value * value for value in first + second)


def test_what_no_clock_resolves_and_what_no_kernel_lives_still_counts() -> None:
    totals = DurationTotals()
    totals.observe(10**18)
    totals.observe(1)
    assert sum(totals.buckets.values()) == totals.count == 2
    assert math.isclose(totals.sum_seconds, 1e9)
