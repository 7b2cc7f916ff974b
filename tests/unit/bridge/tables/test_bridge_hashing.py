import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.bridge.tables.hashing import stable_hash, stable_hashes

BLOCK = 128
texts = st.one_of(st.binary(max_size=600), st.sampled_from(range(4 * BLOCK)).map(lambda length: b"l" * length))
names = st.text(max_size=20) | st.sampled_from(("n" * (BLOCK - 1), "n" * BLOCK, "n" * 300))
fleets = st.tuples(st.lists(names, min_size=1, max_size=4), st.lists(texts, min_size=1, max_size=4))


@given(fleets, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=13))
def test_many_series_have_the_hashes_of_hashlib(
    fleet: tuple[list[str], list[bytes]], pairs: list[tuple[int, int]]
) -> None:
    metrics, labels = fleet
    rows = [(metric % len(metrics), label_set % len(labels)) for metric, label_set in pairs]
    columns = np.array(rows, np.int32).reshape(-1, 2)
    hashes = stable_hashes(metrics, columns[:, 0].copy(), labels, columns[:, 1].copy())
    assert hashes.tolist() == [stable_hash(metrics[metric], labels[label_set]) for metric, label_set in rows]


def test_hashes_never_change() -> None:
    known = stable_hashes(["up"], np.zeros(1, np.int32), [b'instance="host-1",job="a"'], np.zeros(1, np.int32))
    assert known.tolist() == [1244522356241358569]
