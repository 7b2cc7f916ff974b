import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.fleet import Known, Point, come_from, decoded, exposed_store, gauge, page

from kernelcast.bridge.tables import labels as module
from kernelcast.bridge.tables.columns import EMPTY, FREE, empty_series
from kernelcast.bridge.tables.hashing import stable_hash
from kernelcast.bridge.tables.labels import LabelIndex

CAPACITY = 64
steps = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=120)


class Indexed:
    """An index of a few slots, and the dictionary that it should agree with."""

    def __init__(self) -> None:
        self.index, self.series, self.used = LabelIndex(), empty_series(CAPACITY), 0
        self.held: dict[tuple[int, bytes], int] = {}
        self.free = list(range(CAPACITY))

    def add(self, family: int, labels: bytes) -> None:
        slot = self.free.pop(0)
        self.used = max(self.used, slot + 1)
        self.series.state[slot], self.series.family[slot] = EMPTY, family
        self.series.hashed[slot] = stable_hash(str(family), labels)
        self.index.insert(self.series, slot, self.used, labels)
        self.held[family, labels] = slot

    def remove(self, family: int, labels: bytes) -> None:
        slot = self.held.pop((family, labels))
        self.index.remove(self.series, np.array([slot]))
        self.series.state[slot] = FREE
        self.index.compact(self.series, self.used)
        self.free.append(slot)

    def find(self, family: int, labels: bytes) -> int | None:
        found = self.index.find(self.series, stable_hash(str(family), labels), family, labels)
        return found if found >= 0 else None

    def labels(self, slot: int) -> bytes:
        sets, number = self.index.sets.columns, self.series.label_set[slot]
        start = sets.offset[number]
        return self.index.sets.arena[start : start + sets.length[number]].tobytes()


@given(steps)
def test_series_are_found_as_in_a_dictionary_however_labels_are_shared_and_memory_is_given_back(
    chosen: list[tuple[int, int, bool]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GARBAGE_BYTES", 1)
        patch.setattr(module, "SMALLEST_TABLE", 4)
        indexed = Indexed()
        for family, number, wanted in chosen:
            labels = b"l" * number
            if ((family, labels) in indexed.held) != wanted:
                (indexed.add if wanted else indexed.remove)(family, labels)
            for known in range(4):
                assert indexed.find(known, labels) == indexed.held.get((known, labels))
            for (_, kept), slot in indexed.held.items():
                assert indexed.labels(slot) == kept


def test_metrics_with_the_same_labels_keep_them_once() -> None:
    store = exposed_store()
    pods = [(("pod", "p" * 500 + str(i)),) for i in range(100)]
    identities = [gauge(f"m{metric}", attributes=pod) for metric in range(30) for pod in pods]
    store.apply(decoded([Point(i, 1.0, 1) for i in range(3000)]), come_from(), Known(identities.__getitem__))
    assert len(store._slots.labels.sets.arena) < 2 * 100 * 600
    assert page(store).count("p" * 500) == 3000
