"""The ring: contents, age, and the limit of its memory."""

import math

import numpy as np
import pytest
from tests.support.bridge.pages_ring import FakeStore, Key, rendered

from kernelcast.bridge.browser.ring import MAX_LABEL_BYTES, SECONDS, SampleRing, parsed_labels


def temperature(gpu: str) -> Key:
    return ("temp", (("gpu", gpu),))


def ring(**options: int) -> SampleRing:
    return SampleRing(frozenset({"temp", "duration"}), 5.0, options.get("max_series", 100))


def test_values_are_kept_by_name_and_labels_in_the_order_of_time() -> None:
    kept, store = ring(), FakeStore()
    for step in range(3):
        store.values = {temperature("0"): 60 + step, temperature("1"): 70.5, ("other", ()): 1}
        kept.read(store, 100.0 + 5 * step)
    window = kept.window("temp")
    assert window.times.tolist() == [100, 105, 110]
    by_labels = dict(zip(window.labels, window.values.tolist(), strict=True))
    assert by_labels == {(("gpu", "0"),): [60, 61, 62], (("gpu", "1"),): [70.5, 70.5, 70.5]}
    assert kept.window("other").labels == ()
    assert store.views[0].names == {"temp", "duration"}


def test_of_a_family_with_more_series_than_the_ring_has_only_that_number_is_read() -> None:
    kept = ring(max_series=3)
    kept.read(FakeStore({temperature(f"{gpu}"): 60.0 for gpu in range(10)}), 1.0)
    assert (kept.series, kept.dropped_series) == (3, 7)


def test_a_histogram_is_kept_as_its_sum_and_count() -> None:
    kept, store = ring(), FakeStore({("duration", (("kernel", "a"),)): (2.5, 7)})
    kept.read(store, 1.0)
    assert kept.window("duration_sum").values.tolist() == [[2.5]]
    assert kept.window("duration_count").values.tolist() == [[7.0]]


def test_a_histogram_without_a_sum_has_none_in_the_ring() -> None:
    kept, store = ring(), FakeStore({("duration", (("kernel", "a"),)): (None, 7)})
    kept.read(store, 1.0)
    assert math.isnan(kept.window("duration_sum").values[0, 0])
    assert kept.window("duration_count").values.tolist() == [[7.0]]


def test_a_series_that_is_gone_has_no_value_and_later_no_row() -> None:
    kept, store = ring(), FakeStore({temperature("0"): 60, temperature("1"): 70})
    kept.read(store, 0.0)
    store.values = {temperature("1"): 71}
    kept.read(store, 5.0)
    gone = kept.window("temp").values[kept.window("temp").labels.index((("gpu", "0"),))]
    assert gone[0] == 60
    assert math.isnan(gone[1])
    kept.read(store, 5.0 + SECONDS)
    store.values = {temperature("2"): 80}
    kept.read(store, 10.0 + SECONDS)
    assert set(kept.window("temp").labels) == {(("gpu", "1"),), (("gpu", "2"),)}


def test_fifteen_minutes_are_kept_and_no_more() -> None:
    kept, store = ring(), FakeStore({temperature("0"): 60})
    for step in range(400):
        kept.read(store, 5.0 * step)
    times = kept.window("temp").times
    assert times[-1] - times[0] <= SECONDS
    assert len(times) in (kept.columns - 1, kept.columns)
    assert np.diff(times).tolist() == [5.0] * (len(times) - 1)


def test_readings_that_come_faster_than_planned_do_not_take_more_memory() -> None:
    kept, store = ring(), FakeStore({temperature("0"): 60})
    for step in range(500):
        kept.read(store, 0.1 * step)
    assert len(kept.window("temp").times) == kept.columns


def test_series_beyond_the_limit_are_counted_and_the_bytes_stay_below_the_bound() -> None:
    kept, store = ring(max_series=300), FakeStore({temperature(str(number)): number for number in range(1000)})
    kept.read(store, 0.0)
    assert (kept.series, kept.dropped_series) == (300, 700)
    assert 300 * kept.columns * 8 <= kept.bytes <= kept.max_bytes


def test_the_largest_ring_is_below_20_mib() -> None:
    assert SampleRing(frozenset(), 5.0, 5000).max_bytes < 20 * 2**20


def test_labels_that_are_too_long_are_not_kept() -> None:
    kept, store = ring(), FakeStore({temperature("x" * MAX_LABEL_BYTES): 1, temperature("0"): 2})
    kept.read(store, 0.0)
    assert (kept.series, kept.dropped_series) == (1, 1)


def test_a_clock_that_is_set_back_begins_the_ring_from_empty() -> None:
    kept, store = ring(), FakeStore({temperature("0"): 60})
    kept.read(store, 1000.0)
    kept.read(store, 500.0)
    assert kept.window("temp").times.tolist() == [500.0]


@pytest.mark.parametrize("value", ["plain", 'with "quotes"', "back\\slash", "a,b}c{d", "new\nline", "<script>", ""])
def test_labels_are_read_as_they_were_written(value: str) -> None:
    assert parsed_labels(rendered([("kernel", value), ("gpu", "0")])) == (("gpu", "0"), ("kernel", value))
