"""Windows against a slow oracle: one dictionary per series, one point at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.series.windows import NOT_ADMITTED, Windows

SECOND_NS = 1_000_000_000
INTERVAL_NS = 10 * SECOND_NS
POINTS = 6
START_NS = 1_800_000_000 * SECOND_NS


def subject(number: int, form: Form = Form.LEVEL) -> Subject:
    return Subject("metric", form, (("n", str(number)),))


def windows(*, max_series: int = 100, points: int = POINTS) -> Windows:
    return Windows(interval_ns=INTERVAL_NS, points=points, max_series=max_series)


def put(target: Windows, row: int, seconds: float, value: float) -> None:
    time_ns = np.array([START_NS + round(seconds * SECOND_NS)])
    target.put_levels(np.array([row]), time_ns, np.array([value]), now_seconds=0.0)


def put_total(
    target: Windows, row: int, seconds: float, total: float, *, count: float | None = None, start: float = 0
) -> None:
    target.put_totals(
        np.array([row]),
        np.array([START_NS + round(seconds * SECOND_NS)]),
        np.array([START_NS + round(start * SECOND_NS)]),
        (np.array([total]), None if count is None else np.array([count])),
        now_seconds=0.0,
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400), st.floats(-1e3, 1e3, width=32)), max_size=60))
def test_gauges_end_as_one_point_at_a_time_would_have_put_them(points: list[tuple[int, int, float]]) -> None:
    target = windows()
    rows = [target.admit(subject(number), owner=0) for number in range(3)]
    oracle: list[dict[int, float]] = [{}, {}, {}]
    last = [-1, -1, -1]
    for number, second, value in points:
        put(target, rows[number], second, value)
        if last[number] - second > POINTS * 10:
            oracle[number], last[number] = {}, -1
        if second > last[number]:
            oracle[number][(START_NS + second * SECOND_NS) // INTERVAL_NS] = value
            last[number] = second
    for number, row in enumerate(rows):
        newest = max(oracle[number], default=None)
        seen = target.matrix(np.array([row]))[0]
        if newest is None:
            assert np.isnan(seen).all()
        else:
            expected = [oracle[number].get(newest - age, np.nan) for age in range(POINTS - 1, -1, -1)]
            np.testing.assert_array_equal(seen, np.array(expected, np.float32))


def test_reading_a_message_twice_changes_nothing() -> None:
    target = windows()
    row = target.admit(subject(0, Form.RATE), owner=0)
    for second, total in ((0, 0), (10, 50), (20, 150)):
        put_total(target, row, second, total)
    before = target.matrix(np.array([row]))
    for second, total in ((10, 50), (20, 150)):
        put_total(target, row, second, total)
    np.testing.assert_array_equal(before, target.matrix(np.array([row])))


def test_a_counter_becomes_a_rate_per_second() -> None:
    target = windows()
    row = target.admit(subject(0, Form.RATE), owner=0)
    for second, total in ((1, 0), (12, 110), (19, 180), (30, 290)):
        put_total(target, row, second, total)
    seen = target.matrix(np.array([row]))[0]
    np.testing.assert_allclose(seen[[-3, -1]], [10.0, 10.0])
    assert np.isnan(seen[-2])  # no point, no value


def test_a_counter_that_restarts_counts_from_its_start_and_never_goes_negative() -> None:
    target = windows()
    row = target.admit(subject(0, Form.RATE), owner=0)
    put_total(target, row, 0, 1000.0)
    put_total(target, row, 10, 1100.0)
    put_total(target, row, 25, 60.0, start=13)
    seen = target.matrix(np.array([row]))[0]
    assert seen[-1] == pytest.approx(60.0 / 12.0)
    assert np.nanmin(seen) >= 0


def test_a_reset_whose_start_is_unknown_leaves_a_gap_not_a_guess() -> None:
    target = windows()
    row = target.admit(subject(0, Form.RATE), owner=0)
    put_total(target, row, 0, 1000.0)
    put_total(target, row, 10, 1100.0)
    put_total(target, row, 20, 60.0)
    assert np.isnan(target.matrix(np.array([row]))[0][-1])
    put_total(target, row, 30, 160.0)
    assert target.matrix(np.array([row]))[0][-1] == pytest.approx(10.0)


def test_a_mean_duration_does_not_depend_on_how_often_the_kernel_runs() -> None:
    target = windows()
    row = target.admit(subject(0, Form.MEAN), owner=0)
    launches, seconds_spent = 0.0, 0.0
    for second, more in ((0, 10), (10, 1000), (20, 3), (30, 0), (40, 77)):
        launches += more
        seconds_spent += more * 1e-3
        put_total(target, row, second, seconds_spent, count=launches)
    seen = target.matrix(np.array([row]))[0]
    np.testing.assert_allclose(seen[[-4, -3, -1]], 1e-3, rtol=1e-5)
    assert np.isnan(seen[-2])  # no launch, no duration


def test_a_clock_that_was_ahead_and_is_set_right_does_not_silence_its_series() -> None:
    target = windows()
    row = target.admit(subject(0), owner=0)
    put(target, row, 100_000, 1.0)
    put(target, row, 10, 2.0)
    assert target.matrix(np.array([row]))[0][-1] == 2.0


def test_series_beyond_the_limit_are_refused_and_counted() -> None:
    target = windows(max_series=2)
    rows = [target.admit(subject(number), owner=0) for number in range(4)]
    assert rows[2:] == [NOT_ADMITTED, NOT_ADMITTED]
    assert target.refused == 2
    target.drop(np.array([rows[0]]))
    assert target.admit(subject(9), owner=0) == rows[0]
    assert np.isnan(target.matrix(np.array([rows[0]]))).all()


def test_a_series_that_was_set_aside_returns_with_its_past() -> None:
    target = windows()
    row = target.admit(subject(0), owner=0)
    put(target, row, 10, 1.0)
    generation = int(target.generation[row])
    target.set_aside(np.array([row]))
    assert (len(target), target.row(subject(0)), len(target.owned_by([0]))) == (0, None, 0)
    assert target.admit(subject(1), owner=0) != row
    assert target.admit(subject(0), owner=0) == row
    put(target, row, 20, 2.0)
    values = target.matrix(np.array([row]))[0]
    assert values[np.isfinite(values)].tolist() == [1.0, 2.0]
    assert target.generation[row] == generation


def test_a_row_of_a_series_that_was_set_aside_first_is_used_first_where_there_is_no_other() -> None:
    target = windows(max_series=2)
    first, second = (target.admit(subject(number), owner=0) for number in range(2))
    target.set_aside(np.array([first]))
    target.set_aside(np.array([second]))
    assert target.admit(subject(2), owner=0) == first
    assert target.admit(subject(1), owner=0) == second
    assert target.admit(subject(0), owner=0) == NOT_ADMITTED


def test_no_series_returns_into_its_row_after_another_reader_went_on_with_it() -> None:
    target = windows()
    row = target.admit(subject(0), owner=0)
    put(target, row, 10, 1.0)
    target.set_aside(np.array([row]))
    target.forget_aside()
    assert target.admit(subject(0), owner=0) == row
    assert np.isnan(target.matrix(np.array([row]))).all()


def test_windows_grow_with_their_series() -> None:
    target = windows(max_series=5000)
    rows = np.array([target.admit(subject(number), owner=number % 3) for number in range(3000)])
    target.put_levels(rows, np.full(3000, START_NS), np.arange(3000.0), now_seconds=7.0)
    np.testing.assert_array_equal(target.matrix(rows)[:, -1], np.arange(3000, dtype=np.float32))
    assert len(target.owned_by([1])) == 1000
    assert len(target.expired(8.0)) == 3000
    assert not len(target.expired(7.0))


def test_values_that_no_window_can_hold_count_as_missing() -> None:
    target = windows()
    row = target.admit(subject(0), owner=0)
    for second, value in ((0, np.inf), (10, -np.inf), (20, 1e300), (30, 7.0)):
        put(target, row, second, value)
    seen = target.matrix(np.array([row]))[0]
    assert np.isnan(seen[:-1]).all()
    assert seen[-1] == 7.0


def test_a_point_without_a_time_does_not_wipe_the_window() -> None:
    target = windows()
    row = target.admit(subject(0), owner=0)
    put(target, row, 10.0, 5.0)
    target.put_levels(np.array([row]), np.array([0]), np.array([9.0]), now_seconds=0.0)
    assert target.latest(np.array([row])).tolist() == [5.0]


def test_the_increase_of_a_counter_before_its_reset_still_counts() -> None:
    target = windows()
    row = target.admit(subject(0, Form.MEAN), owner=0)
    put_total(target, row, 0.0, 100.0, count=10.0)
    put_total(target, row, 10.0, 130.0, count=13.0)
    put_total(target, row, 20.0, 5.0, count=1.0, start=15)
    assert target.totals.numerator[row] - target.totals.first_numerator[row] == 35.0
