"""Blocks and hours of the windows' series, against a dictionary per series."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.predictor.series.histories import BOTH_BLOCKS, KEPT_BLOCKS, KEPT_HOURS, Histories
from kernelcast.predictor.series.rings import EMPTY
from kernelcast.predictor.series.subjects import DURATION, Form, Subject
from kernelcast.predictor.series.windows import Windows

SECOND_NS = 1_000_000_000
INTERVAL_SECONDS = 15
BLOCK = 300 // INTERVAL_SECONDS
START = 1_800_000_000 // 3600 * 3600 // INTERVAL_SECONDS
"""Number of the first interval of an hour."""

GAUGE = "DCGM_FI_DEV_GPU_TEMP"


class Recorder:
    """Windows with their histories; values are written by interval."""

    def __init__(self, *, interval_seconds: float = INTERVAL_SECONDS, points: int = 240) -> None:
        self.windows = Windows(interval_ns=round(interval_seconds * SECOND_NS), points=points, max_series=20_000)
        self.histories = Histories(self.windows, threading.RLock())

    def add(self, metric: str = DURATION, number: int = 0) -> int:
        return self.windows.admit(Subject(metric, Form.LEVEL, (("n", str(number)),)), owner=0)

    def put(self, row: int, interval: int, value: float) -> None:
        time_ns = np.array([interval * self.windows.interval_ns + 1])
        self.windows.put_levels(np.array([row]), time_ns, np.array([value]), now_seconds=0.0)

    def fill(self, row: int, intervals: range, value: float = 1.0) -> None:
        """Write every interval, with a call of `advance` at least once in a window."""
        for interval in intervals:
            self.put(row, interval, value)
            if interval % 100 == 0:
                self.histories.advance(np.array([row]))
        self.histories.advance(np.array([row]))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30), st.floats(-100, 100, width=32)), max_size=80),
    st.integers(1, 7),
)
@settings(deadline=None)
def test_blocks_are_the_means_and_medians_of_what_was_put(points: list[tuple[int, int, float]], every: int) -> None:
    recorder = Recorder()
    rows = np.array([recorder.add(GAUGE, 0), recorder.add(DURATION, 1)])
    at, oracle = [START, START], [dict[int, list[float]](), dict[int, list[float]]()]
    for turn, (which, gap, value) in enumerate(points):
        at[which] += gap
        recorder.put(int(rows[which]), at[which], value)
        oracle[which].setdefault(at[which] // BLOCK, []).append(value)
        if turn % every == 0:
            recorder.histories.advance(rows)
    recorder.histories.advance(rows)
    newest = max(at) // BLOCK - 1
    mean, median = recorder.histories.blocks(rows, newest)
    for which in range(2):
        for block in range(newest - BOTH_BLOCKS + 1, newest + 1):
            kept = oracle[which].get(block, []) if block < at[which] // BLOCK else []
            seen = mean[which, block - newest - 1], median[which, block - newest - 1]
            if kept:
                np.testing.assert_allclose(seen, (np.mean(kept), np.median(kept)), rtol=1e-5, atol=1e-5)
            else:
                assert np.isnan(seen).all()


def test_before_the_last_two_hours_gauges_keep_the_mean_and_durations_the_median() -> None:
    recorder = Recorder()
    rows = np.array([recorder.add(GAUGE, 0), recorder.add(DURATION, 1)])
    for row in rows.tolist():
        for interval in range(START, START + 30 * BLOCK + 1):
            recorder.put(row, interval, 11.0 if interval % 4 == 0 else 1.0)
            recorder.histories.advance(np.array([row]))
    mean, median = recorder.histories.blocks(rows)
    np.testing.assert_allclose(mean[:, -BOTH_BLOCKS:], 3.5)
    np.testing.assert_allclose(median[:, -BOTH_BLOCKS:], 1.0)
    np.testing.assert_allclose(mean[0, -30:], 3.5)
    np.testing.assert_allclose(median[1, -30:], 1.0)
    assert np.isnan(mean[:, :-30]).all()


def test_the_present_block_is_not_shown() -> None:
    recorder = Recorder()
    row = recorder.add()
    recorder.fill(row, range(START, START + BLOCK))
    assert recorder.histories.newest_block(np.array([row])) < START // BLOCK
    recorder.fill(row, range(START + BLOCK, START + BLOCK + 1))
    assert recorder.histories.newest_block(np.array([row])) == START // BLOCK


def test_hours_are_condensed_from_blocks_and_a_gap_keeps_the_hour_before_it() -> None:
    recorder = Recorder()
    row = recorder.add()
    recorder.fill(row, range(START, START + 300), 1.0)  # an hour and a quarter
    recorder.fill(row, range(START + 5 * 240, START + 6 * 240 + 1), 2.0)
    hours = recorder.histories.hours(np.array([row]))
    assert hours.shape == (1, KEPT_HOURS)
    np.testing.assert_array_equal(hours[0, -6:], [1.0, 1.0, np.nan, np.nan, np.nan, 2.0])


@pytest.mark.slow
def test_two_days_and_five_weeks_are_kept() -> None:
    recorder = Recorder(interval_seconds=300.0, points=48)
    row = recorder.add()
    start = START * INTERVAL_SECONDS // 300
    for interval in range(start, start + 36 * 288 + 1):
        recorder.put(row, interval, float(interval - start))
        if interval % 40 == 0:
            recorder.histories.advance(np.array([row]))
    recorder.histories.advance(np.array([row]))
    mean, _ = recorder.histories.blocks(np.array([row]))
    np.testing.assert_array_equal(mean[0], 36 * 288 - 1 - np.arange(KEPT_BLOCKS)[::-1])
    hours = recorder.histories.hours(np.array([row]))[0]
    assert hours[-1] == 36 * 288 - 6.5
    assert np.isfinite(hours).all()


@pytest.mark.parametrize(("interval_seconds", "intervals"), [(15, 20), (10, 30), (60, 5), (300, 1), (600, 1)])
def test_a_block_lasts_five_minutes_but_at_least_an_interval(interval_seconds: float, intervals: int) -> None:
    assert Recorder(interval_seconds=interval_seconds).histories.block_intervals == intervals


def test_a_host_whose_clock_is_ahead_does_not_move_the_others() -> None:
    recorder = Recorder()
    rows = [recorder.add(number=number) for number in range(20)]
    for row in rows[:-1]:
        recorder.fill(row, range(START, START + 3 * BLOCK + 1))
    recorder.fill(rows[-1], range(START + 5000, START + 5000 + 3 * BLOCK))
    newest = recorder.histories.newest_block(np.array(rows))
    assert newest == START // BLOCK + 2
    mean, _ = recorder.histories.blocks(np.array(rows))
    assert np.isfinite(mean[:-1, -3:]).all()


def test_a_row_that_another_series_gets_begins_empty() -> None:
    recorder = Recorder()
    row = recorder.add(number=1)
    recorder.fill(row, range(START, START + 30 * BLOCK))
    recorder.windows.drop(np.array([row]))
    assert recorder.add(number=2) == row
    recorder.histories.advance(np.array([row]))
    assert np.isnan(recorder.histories.blocks(np.array([row]), START // BLOCK + 5)[0]).all()
    assert recorder.histories.newest_block(np.array([row])) == EMPTY


def test_cleared_rows_are_condensed_from_their_window_again() -> None:
    recorder = Recorder()
    row = np.array([recorder.add()])
    recorder.fill(int(row[0]), range(START, START + 30 * BLOCK + 1))
    recorder.histories.clear(row)
    recorder.histories.advance(row)
    mean, _ = recorder.histories.blocks(row)
    assert np.isfinite(mean).sum() == 12


def test_a_new_start_of_the_totals_is_another_process() -> None:
    recorder = Recorder()
    row = np.array([recorder.windows.admit(Subject(DURATION, Form.MEAN, ()), owner=0)])
    for interval in range(4 * BLOCK + 1):
        began = 2 * BLOCK + 3 if interval > 2 * BLOCK + 3 else 1
        time_ns = (START + np.array([interval])) * INTERVAL_SECONDS * SECOND_NS + 1
        start_ns = np.array([START + began]) * INTERVAL_SECONDS * SECOND_NS
        total = np.array([float(interval - began + 1)])
        recorder.windows.put_totals(row, time_ns, start_ns, (total, total), now_seconds=0.0)
        recorder.histories.advance(row)
    processes = recorder.histories.processes(row, START // BLOCK + 3)
    assert processes.shape == (1, KEPT_BLOCKS)
    assert processes[0, -4:].tolist() == [0, 0, 1, 1]


def test_the_lock_is_released_between_parts_of_a_large_call() -> None:
    held: list[int] = []

    class Counting:
        def __enter__(self) -> None:
            held.append(0)

        def __exit__(self, *_: object) -> None: ...

    recorder = Recorder()
    recorder.histories = Histories(recorder.windows, Counting())  # type: ignore[arg-type]
    rows = np.array([recorder.add(number=number) for number in range(9000)])
    recorder.histories.advance(rows)
    assert len(held) >= 3
