import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from tests.support.bridge.delta_streams import LATE_MS, ORDER, Delta, Meter, Slow, sums

from kernelcast.bridge.delta.accumulate import Accumulator
from kernelcast.bridge.delta.columns import GROWN_TOPIC, PART_OF_TOPIC, SCATTERED, WHOLE_TOPIC
from kernelcast.bridge.delta.sequence import Order
from kernelcast.columnar import IS_INTEGER, NO_RECORDED_VALUE

SECOND_NS = 10**9


def line(*values: float) -> list[Delta]:
    return [Delta(10 * i + 10, 10 * i + 20, value) for i, value in enumerate(values)]


def test_deltas_become_a_running_total_with_one_start() -> None:
    assert Meter().sums(*line(3, 4, 5)) == [(10, 20, 3), (10, 30, 7), (10, 40, 12)]


def test_integers_stay_exact_beyond_what_doubles_hold() -> None:
    meter = Meter()
    meter.sums(*line(2**53, 1, 1, 1))
    numbers = meter.take(sums([Delta(50, 60, 1)])).numbers
    assert (numbers.integer.tolist(), numbers.flags.tolist()) == ([2**53 + 4], [IS_INTEGER])


def test_a_sum_that_would_not_fit_restarts_instead_of_wrapping_around() -> None:
    meter = Meter()
    assert meter.sums(*line(2**63 - 2, 5))[-1] == (20, 30, 5)
    assert meter.counted["overflow"] == 1


def test_doubles_and_integers_of_one_series_are_added_as_doubles() -> None:
    assert [value for _, _, value in Meter().sums(*line(2, 0.5, 3))] == [2, 2.5, 5.5]


def test_cumulative_points_pass_unchanged() -> None:
    meter = Meter()
    body = sums(line(3, 4), temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
    decoded = meter.take(body)
    assert decoded.numbers.value.tolist() == [3, 4]
    assert (len(meter.totals.rows), meter.counted) == (0, {})


def test_deltas_and_cumulative_points_of_one_batch_keep_their_places() -> None:
    plain = sums([Delta(1, 2, 7)], name="other", temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
    decoded = Meter().take(sums(line(3)), plain, sums([Delta(20, 30, 4)]))
    assert decoded.numbers.value.tolist() == [3, 7, 7]
    assert decoded.numbers.message.tolist() == [0, 1, 2]
    assert decoded.numbers.start_ns.tolist() == [10, 1, 10]


def test_a_message_read_again_adds_nothing_and_shows_the_present_total() -> None:
    meter = Meter()
    meter.sums(*line(3, 4, 5))
    assert meter.sums(*line(3, 4, 5), offset=0) == [(10, 40, 12)] * 3
    assert meter.counted == {"first": 1, "added": 2, "replayed": 3}


def test_a_message_from_before_the_total_shows_no_value_where_there_is_no_total() -> None:
    meter = Meter()
    meter.totals.at(0, 5)
    numbers = meter.take(sums(line(3)), offset=0).numbers
    assert numbers.flags.tolist() == [NO_RECORDED_VALUE]


def test_a_producers_retry_under_another_offset_is_not_added_twice() -> None:
    meter = Meter()
    first, second = line(3, 4)
    assert [value for *_, value in meter.sums(first, second, second, first)] == [3, 7, 7, 7]
    assert (meter.counted["duplicate"], meter.counted["older"]) == (1, 1)


def test_what_comes_late_fills_its_gap_once() -> None:
    meter = Meter()
    a, b, c, d = line(1, 2, 4, 8)
    assert [value for *_, value in meter.sums(a, d, c, b, b, c)] == [1, 9, 13, 15, 15, 15]
    assert (meter.counted["gap"], meter.counted["filled"], meter.counted["older"]) == (1, 2, 2)


def test_a_point_in_the_middle_of_a_gap_leaves_two() -> None:
    a, b, c, d, e = line(1, 2, 4, 8, 16)
    assert Meter().sums(a, e, c, d, b)[-1] == (10, 60 + 3, 31)


def test_a_restarted_producer_continues_counting_in_the_same_series() -> None:
    meter = Meter()
    assert meter.sums(Delta(10, 20, 3), Delta(500, 510, 4)) == [(10, 20, 3), (10, 510, 7)]
    assert meter.counted["gap"] == 1


def test_what_reaches_past_the_last_point_is_added_and_counted_as_overlap() -> None:
    meter = Meter()
    assert meter.sums(Delta(10, 20, 3), Delta(15, 25, 4))[-1] == (10, 25, 7)
    assert meter.counted["overlap"] == 1


def test_points_that_are_read_after_one_that_spans_a_corrected_clock_are_added_once() -> None:
    meter = Meter()
    meter.sums(Delta(1000, 1010, 1))
    assert meter.sums(Delta(500, 1100, 2), partition=1, offset=0) == [(1000, 1100, 3)]
    late = [Delta(1010, 1020, 4), Delta(1020, 1030, 8)]
    assert [value for _, _, value in meter.sums(*late, *late)] == [7, 15, 15, 15]
    assert meter.counted == {"first": 1, "overlap": 1, "filled": 2, "older": 2}


def test_without_start_times_the_order_of_times_decides() -> None:
    meter = Meter()
    points = [Delta(0, 10, 1), Delta(0, 20, 2), Delta(0, 20, 2), Delta(0, 15, 4), Delta(0, 30, 8)]
    assert meter.sums(*points)[-1] == (10, 30, 11)
    assert (meter.counted["duplicate"], meter.counted["older"]) == (1, 1)


def test_a_clock_that_is_put_right_does_not_stop_the_series() -> None:
    meter = Meter()
    future_ns = LATE_MS * 1_000_000 + 3600 * SECOND_NS
    now_ns = LATE_MS * 1_000_000
    points = [
        Delta(future_ns, future_ns + 10, 1),
        Delta(now_ns, now_ns + 10, 2),
        Delta(now_ns + 10, now_ns + 20, 4),
    ]
    assert [value for *_, value in meter.sums(*points)] == [1, 3, 7]
    assert meter.counted["clock_set"] == 1


def test_a_message_from_before_a_clock_ran_ahead_that_is_sent_again_is_counted_once() -> None:
    meter = Meter()
    now_ns = LATE_MS * 1_000_000
    future_ns = now_ns + 3600 * SECOND_NS
    ahead = [Delta(now_ns + 10, future_ns, 2), Delta(future_ns, future_ns + 10, 4)]
    meter.sums(Delta(now_ns, now_ns + 10, 1), *ahead)
    again = meter.sums(Delta(now_ns, now_ns + 10, 1), *ahead, Delta(now_ns + 20, now_ns + 30, 8))
    assert again[-1][-1] == 15
    assert (meter.counted["older"], meter.counted["duplicate"], meter.counted["clock_set"]) == (2, 1, 1)


def test_points_that_come_after_those_of_a_clock_that_ran_ahead_fill_their_gap_once() -> None:
    meter = Meter()
    now_ns = LATE_MS * 1_000_000
    future_ns = now_ns + 3600 * SECOND_NS
    ahead = [Delta(future_ns, future_ns + 10, 2), Delta(now_ns + 30, future_ns, 4)]
    late = [Delta(now_ns + 20, now_ns + 30, 8), Delta(now_ns + 10, now_ns + 20, 16)]
    meter.sums(Delta(now_ns, now_ns + 10, 1))
    assert [value for *_, value in meter.sums(*ahead, *late, *ahead, *late)] == [3, 7, 15, 31, 31, 31, 31, 31]
    assert meter.counted == {"first": 1, "gap": 1, "filled": 3, "duplicate": 1, "older": 3}
    assert meter.sums(Delta(now_ns + 40, now_ns + 50, 32))[-1] == (now_ns, now_ns + 50, 63)
    assert meter.counted["clock_set"] == 1


def test_points_from_before_a_clock_ran_ahead_that_come_after_the_jump_fill_their_gap_once() -> None:
    meter = Meter()
    now_ns = LATE_MS * 1_000_000
    future_ns = now_ns + 3600 * SECOND_NS
    meter.sums(Delta(now_ns, now_ns + 10, 1), Delta(now_ns + 30, future_ns, 2))
    late = [Delta(now_ns + 20, now_ns + 30, 4), Delta(now_ns + 10, now_ns + 20, 8)]
    assert [value for *_, value in meter.sums(*late, *late)] == [7, 15, 15, 15]
    assert meter.counted == {"first": 1, "gap": 1, "filled": 2, "older": 2}


def test_a_gap_that_ends_in_the_future_does_not_hide_that_a_clock_was_put_right() -> None:
    meter = Meter()
    now_ns = LATE_MS * 1_000_000
    future_ns = now_ns + 3600 * SECOND_NS
    points = [Delta(now_ns, now_ns + 10, 1), Delta(future_ns, future_ns + 10, 2), Delta(now_ns + 20, now_ns + 30, 4)]
    assert meter.sums(*points)[-1] == (now_ns, now_ns + 30, 7)
    assert meter.counted == {"first": 1, "gap": 1, "clock_set": 1}


@pytest.mark.parametrize(
    "point", [Delta(20, 10, 1), Delta(10, 0, 1), Delta(20, 30, -1), Delta(20, 30, float("nan")), Delta(2**63, 2**63, 1)]
)
def test_what_cannot_be_added_leaves_the_total_as_it_is(point: Delta) -> None:
    meter = Meter()
    meter.sums(*line(3))
    assert meter.sums(point)[-1] == (10, 20, 3)
    assert meter.counted["malformed"] == 1
    assert meter.sums(Delta(20, 30, 4)) == [(10, 30, 7)]


def test_a_sum_that_is_not_monotonic_may_fall() -> None:
    meter = Meter()
    numbers = meter.take(*[sums([point], monotonic=False) for point in line(3, -5)]).numbers
    assert numbers.value.tolist() == [3, -2]


def test_a_series_without_a_present_value_continues_its_total() -> None:
    meter = Meter()
    meter.sums(*line(3))
    absent = meter.take(sums([Delta(20, 30, None)])).numbers
    assert (absent.flags.tolist(), absent.time_ns.tolist()) == ([NO_RECORDED_VALUE], [30])
    assert meter.sums(Delta(30, 40, 4)) == [(10, 40, 7)]


def test_series_beyond_the_limit_have_no_value_and_come_in_once_there_is_room() -> None:
    meter = Meter(Accumulator(ORDER, max_series=1))
    meter.sums(Delta(10, 20, 1, "a"))
    assert meter.take(sums([Delta(10, 20, 1, "b")])).numbers.flags.tolist() == [NO_RECORDED_VALUE]
    assert meter.counted["limit"] == 1
    meter.totals.free(meter.totals.expired({0: LATE_MS + 1}))
    assert meter.sums(Delta(20, 30, 2, "b")) == [(20, 30, 2)]


def test_resting_totals_make_room_for_live_series_the_longest_resting_first() -> None:
    meter = Meter(Accumulator(ORDER, max_series=3))
    for i, name in enumerate("abc"):
        meter.sums(Delta(10, 20, 1 + i, name), append_ms=LATE_MS + i)
    assert not len(meter.totals.expired({0: LATE_MS + 2}, kept_ms=1000))
    body = sums([Delta(20, 30, 8, "b"), Delta(20, 30, 16, "d")])
    assert meter.take(body, append_ms=LATE_MS + 3).numbers.value.tolist() == [10, 16]
    assert "limit" not in meter.counted
    meter.sums(Delta(20, 30, 32, "e"))
    assert meter.counted["limit"] == 1


def test_a_series_that_returns_after_it_expired_has_a_new_start() -> None:
    meter = Meter()
    meter.sums(*line(3))
    meter.totals.free(meter.totals.expired({0: LATE_MS + 1}))
    assert meter.sums(Delta(20, 30, 4)) == [(20, 30, 4)]


def test_a_series_number_given_to_another_series_takes_no_total_along() -> None:
    meter = Meter()
    meter.sums(Delta(10, 20, 3, "a"))
    numbers = np.zeros(1, np.int32)
    meter.decoder.forget(numbers)
    meter.totals.forget(meter.decoder, numbers)
    assert meter.sums(Delta(10, 20, 5, "b")) == [(10, 20, 5)]
    assert meter.sums(Delta(20, 30, 1, "a")) == [(10, 30, 4)]


def test_a_series_that_moves_to_another_partition_once_is_followed() -> None:
    meter = Meter()
    meter.sums(*line(3))
    assert meter.sums(Delta(20, 30, 4), partition=1, offset=0) == [(10, 30, 7)]


def test_a_series_that_comes_from_all_partitions_of_one_replica_in_turn_is_one_total() -> None:
    meter = Meter()
    for i, point in enumerate(line(1, 2, 4, 8)):
        decoded = meter.take(sums([point]), partition=i % 2, offset=i)
    assert decoded.numbers.value.tolist() == [15]
    assert meter.counted == {"first": 1, "added": 3}


def test_a_series_that_comes_from_two_of_many_partitions_in_turn_shows_no_value_until_it_has_settled() -> None:
    meter = Meter()
    for partition in (0, 1):
        meter.totals.set_scope(partition, PART_OF_TOPIC)
    for i, point in enumerate(line(1, 2, 4, 8)):
        decoded = meter.take(sums([point]), partition=i % 2, offset=i)
    assert decoded.numbers.flags.tolist() == [NO_RECORDED_VALUE]
    assert meter.counted["spread"] == 2
    limit = LATE_MS + ORDER.settle_ms
    meter.take(sums([Delta(50, 60, 16)]), partition=1, offset=9, append_ms=limit)
    meter.totals.free(meter.totals.expired({0: limit - 10, 1: limit - 10}))
    assert meter.sums(Delta(60, 70, 32), partition=1, offset=10, append_ms=limit) == [(60, 70, 32)]


@pytest.mark.parametrize("scope", [GROWN_TOPIC, WHOLE_TOPIC])
def test_a_series_that_came_from_two_partitions_in_turn_goes_on_once_its_moves_are_explained(scope: int) -> None:
    meter = Meter()
    for partition in (0, 1):
        meter.totals.set_scope(partition, PART_OF_TOPIC)
    for i, point in enumerate(line(1, 2, 4)):
        meter.sums(point, partition=i % 2, offset=i)
    meter.totals.follow_explained_moves()
    meter.sums(Delta(40, 50, 8), partition=0, offset=3)
    assert meter.counted == {"first": 1, "added": 1, "spread": 2}
    for partition in (0, 1):
        meter.totals.set_scope(partition, scope)
    meter.totals.follow_explained_moves()
    assert meter.sums(Delta(50, 60, 16), partition=1, offset=4) == [(10, 60, 19)]


@pytest.mark.parametrize(("silence_ms", "pending"), [(70_000, False), (70_001, True)])
def test_a_series_of_a_grown_topic_that_was_away_for_longer_than_a_hold_begins_again(
    silence_ms: int,
    pending: bool,  # noqa: FBT001  parameter
) -> None:
    meter = Meter(Accumulator(ORDER, max_series=10, away_ms=70_000))
    meter.totals.set_scope(0, WHOLE_TOPIC)
    meter.sums(*line(1, 2))
    meter.totals.set_scope(0, GROWN_TOPIC)
    shown = meter.take(sums([Delta(80, 90, 4)]), append_ms=LATE_MS + silence_ms).numbers
    assert (shown.flags[0] & NO_RECORDED_VALUE != 0) == pending
    former = [columns["integer"].tolist() for columns in meter.totals.rows.reserved.values()]
    assert (former, meter.totals.rows.columns.integer[0]) == (([[3]], 4) if pending else ([], 7))


def test_a_series_of_a_grown_topic_goes_on_after_any_time_where_its_points_are_end_to_end() -> None:
    meter = Meter(Accumulator(ORDER, max_series=10, away_ms=70_000))
    meter.sums(*line(1, 2))
    meter.totals.set_scope(0, GROWN_TOPIC)
    assert meter.sums(Delta(30, 90, 4), append_ms=LATE_MS + 100_000) == [(10, 90, 7)]


def test_a_series_that_may_come_from_any_partition_keeps_its_total_also_if_a_former_revision_marked_it() -> None:
    meter = Meter(Accumulator(ORDER._replace(settle_ms=0), max_series=10))
    meter.sums(*line(1, 2), append_ms=LATE_MS)
    meter.totals.rows.columns.flags[0] |= SCATTERED
    meter.totals.free(meter.totals.expired({0: LATE_MS - 1}))
    assert meter.sums(Delta(30, 40, 4)) == [(10, 40, 7)]


def test_gaps_are_forgotten_oldest_first_and_counted() -> None:
    meter = Meter(Accumulator(ORDER._replace(max_gaps=2), max_series=10))
    points = line(*[1] * 9)
    meter.sums(*points[::2])
    assert meter.totals.forgotten_gaps == 2
    meter.sums(points[1], points[7], points[5])
    assert (meter.counted["older"], meter.counted["filled"]) == (1, 2)


times = st.integers(1, 12)
anything = st.builds(
    lambda a, b, start, value, series: Delta(min(a, b) if start else 0, max(a, b), value, series),
    times,
    times,
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from("ab"),
)


@given(st.lists(anything, max_size=40), st.integers(1, 7))
def test_any_points_in_any_order_give_the_result_of_the_slow_oracle(points: list[Delta], at_once: int) -> None:
    meter, slow = Meter(), {"a": Slow(), "b": Slow()}
    expected: dict[str, int] = {}
    seen = []
    for begin in range(0, len(points), at_once):
        seen += meter.sums(*points[begin : begin + at_once])
    for point, (start, time, value) in zip(points, seen, strict=True):
        series = slow[point.series]
        outcome = series.add(point)
        expected[outcome] = expected.get(outcome, 0) + 1
        assert (start, value) == (series.start, series.total)
        assert series.last <= time <= series.last + expected.get("filled", 0)
    assert meter.counted == expected


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(1, 6)), max_size=40))
def test_any_clock_gives_the_result_of_the_slow_oracle(points: list[tuple[int, int, int]]) -> None:
    meter, slow = Meter(), Slow()
    expected: Counter[str] = Counter()
    newest = 0
    for append, a, b in points:
        point = Delta(min(a, b) * ORDER.tolerance_ns, max(a, b) * ORDER.tolerance_ns, 1)
        ((start, _, value),) = meter.sums(point, append_ms=append * ORDER.tolerance_ns // 1_000_000)
        latest_ns = (append + 1) * ORDER.tolerance_ns if append >= newest else math.inf
        newest = max(newest, append)
        expected[slow.add(point, latest_ns)] += 1
        assert (start, value) == (slow.start, slow.total)
        assert meter.totals.rows.columns.last_ns[0] == slow.last
    assert meter.counted == expected


def test_a_partition_that_is_read_later_than_another_is_not_taken_for_a_clock_that_was_put_right() -> None:
    meter = Meter(Accumulator(Order(10 * 10**9, settle_ms=0, max_gaps=128), max_series=10))
    for begin, end, partition in ((100, 110, 0), (170, 180, 0), (110, 140, 1), (140, 170, 1), (180, 190, 0)):
        meter.sums(Delta(begin * 10**9, end * 10**9, 1), partition=partition, append_ms=end * 1000)
    assert meter.counted == {"first": 1, "gap": 1, "filled": 2, "added": 1}
