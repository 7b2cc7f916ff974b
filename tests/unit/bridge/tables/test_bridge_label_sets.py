"""Sets of labels found and counted together, compared with a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.bridge.tables.labels import LabelSets


@pytest.mark.usefixtures("compiled")
@given(st.lists(st.tuples(st.sets(st.binary(max_size=6), min_size=1, max_size=8), st.integers(0, 2)), max_size=12))
def test_sets_taken_together_have_the_numbers_and_counts_of_a_dictionary(rounds: list[tuple[set[bytes], int]]) -> None:
    sets, counts = LabelSets(), dict[bytes, int]()
    for chosen, series in rounds:
        labels = sorted(chosen)
        found = sets.find_all(labels)
        assert [number >= 0 for number in found.tolist()] == [counts.get(one, 0) > 0 for one in labels]
        sets.take_all(labels, found, np.full(len(labels), series))
        for one in labels:
            counts[one] = counts.get(one, 0) + series
    held = [one for one, count in counts.items() if count]
    numbers = sets.find_all(held).tolist()
    assert len(set(numbers)) == len(held)
    assert [int(sets.columns.refs[number]) for number in numbers] == [counts[one] for one in held]
