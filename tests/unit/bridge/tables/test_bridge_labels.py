from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.fleet import Known, Point, come_from, decoded, exposed_store, gauge, page

from kernelcast.bridge.tables import labels as module
from kernelcast.bridge.tables.columns import TYPE_CONFLICT
from kernelcast.bridge.tables.families import Heading
from kernelcast.bridge.tables.new_series import NewSeries
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.tables.slots import SeriesLimits, Slots
from kernelcast.wire.catalogue import Kind

FOREIGN = (0, 9)
"""Family and labels of a series that is not the bridge's."""
NO_SERIES = SeriesLimits(1, 1, 1)
rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=6)
steps = st.lists(st.tuples(st.integers(0, 3), rows, st.booleans()), max_size=40)


def heading(family: int) -> Heading:
    return Heading(f"m{family}", Kind.GAUGE, "")


def text(number: int) -> bytes:
    return b"l" * number


class Indexed:
    """The bridge's own series in a table, and the dictionary with which it should agree."""

    def __init__(self) -> None:
        self.slots = Slots(NO_SERIES, frozenset(("m3",)))
        self.held: dict[tuple[int, bytes], tuple[int, int]] = {}
        foreign = Placement("m0", Kind.GAUGE, "", text(FOREIGN[1]), cumulative=False, writer="w")
        self.slots.admit(NewSeries.of([foreign]), np.array([0], np.int32))

    def add(self, family: int, asked: Sequence[tuple[int, int]]) -> None:
        labels, producers = [text(number) for number, _ in asked], [producer for _, producer in asked]
        found = self.slots.admit_own(heading(family), labels, np.array(producers, np.int32)).tolist()
        for (number, producer), slot in zip(asked, found, strict=True):
            key = (family, text(number))
            if (family, number) == FOREIGN or self.held.get(key, (0, producer))[1] != producer:
                assert slot == -TYPE_CONFLICT
            else:
                assert self.held.setdefault(key, (slot, producer))[0] == slot
        assert len({slot for slot, _ in self.held.values()}) == len(self.held)

    def remove(self, family: int, asked: Sequence[tuple[int, int]]) -> None:
        keys = {(family, text(number)) for number, _ in asked} & self.held.keys()
        if keys:
            self.slots.free(np.array([self.held.pop(key)[0] for key in sorted(keys)], np.intp))

    def labels(self, slot: int) -> bytes:
        sets, number = self.slots.labels.sets.columns, self.slots.series.label_set[slot]
        start = sets.offset[number]
        return self.slots.labels.sets.arena[start : start + sets.length[number]].tobytes()


@given(steps)
def test_own_series_are_found_as_in_a_dictionary_however_labels_are_shared_and_memory_is_given_back(
    chosen: list[tuple[int, list[tuple[int, int]], bool]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GARBAGE_BYTES", 1)
        patch.setattr(module, "SMALLEST_TABLE", 4)
        indexed = Indexed()
        foreign = indexed.slots.lines
        for family, asked, wanted in chosen:
            (indexed.add if wanted else indexed.remove)(family, asked)
            for (known, kept), (slot, producer) in indexed.held.items():
                assert (indexed.labels(slot), indexed.slots.series.producer[slot]) == (kept, producer)
                assert indexed.slots._family(slot).name == f"m{known}"
            assert indexed.slots.lines == foreign + len(indexed.held)
            assert indexed.slots.producer_lines.sum() == foreign  # the bridge's own count for no producer


def test_metrics_with_the_same_labels_keep_them_once() -> None:
    store = exposed_store()
    pods = [(("pod", "p" * 500 + str(i)),) for i in range(100)]
    identities = [gauge(f"m{metric}", attributes=pod) for metric in range(30) for pod in pods]
    store.apply(decoded([Point(i, 1.0, 1) for i in range(3000)]), come_from(), Known(identities.__getitem__))
    assert len(store._slots.labels.sets.arena) < 2 * 100 * 600
    assert page(store).count("p" * 500) == 3000
