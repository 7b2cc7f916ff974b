"""Distinct numbers without sorting, compared with numpy and plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.columnar.distinct import distinct_numbers, first_uses

NUMBERS = st.lists(st.integers(0, 400), max_size=60)


@given(NUMBERS, st.sampled_from((0, 10_000)), st.sampled_from((0, 1_000_000)), st.sampled_from((np.int32, np.int64)))
def test_distinct_numbers_are_those_of_numpy(
    numbers: list[int], low: int, outlier: int, dtype: type[np.signedinteger]
) -> None:
    array = np.array([low + one for one in numbers] + [outlier] * (outlier > 0), dtype)
    values, index = distinct_numbers(array)
    expected, inverse = np.unique(array, return_inverse=True)
    assert (values.tolist(), index.tolist()) == (expected.tolist(), inverse.tolist())


@given(NUMBERS)
def test_first_uses_are_in_the_order_of_a_dictionary(numbers: list[int]) -> None:
    assert first_uses(np.array(numbers, np.int64), 401) == list(dict.fromkeys(numbers))
