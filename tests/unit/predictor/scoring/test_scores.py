"""Scores of forecasts, breach probabilities and alerts."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import ndtri

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.classes import CLASSES, class_number, series_number
from kernelcast.predictor.scoring.intervals import LEVELS
from kernelcast.predictor.scoring.scores import Scoring
from kernelcast.predictor.scoring.stored import pack, unpack
from kernelcast.predictor.scoring.widening import widened
from kernelcast.wire.errors import WireError

BLOCK_SECONDS = 300.0
HORIZONS = (300.0, 3600.0)
DAY = 288
HOUR = 12
TEMPERATURE, KERNEL = CLASSES.index("temperature"), CLASSES.index("kernel")
MEMORY, OTHER = CLASSES.index("memory"), CLASSES.index("other")
"""No factors are shipped for these two at five minutes."""


def scoring(horizons: Sequence[float] = HORIZONS) -> Scoring:
    return Scoring(horizons, BLOCK_SECONDS)


def numbers(*found: int) -> Ints:
    return np.array(found, np.int64)


def nothing(count: int) -> Bools:
    return np.zeros(count, np.bool_)


def settle(  # noqa: PLR0913  one array each
    one: Scoring,
    block: int,
    series: Ints,
    *,
    values: Floats | None = None,
    beyond: Bools | None = None,
    firing: Bools | None = None,
    gpus: float = 0.0,
    kind: int = TEMPERATURE,
) -> None:
    count = len(series)
    one.settle(
        block,
        series,
        np.full(count, kind),
        np.zeros(count) if values is None else values,
        nothing(count) if beyond is None else beyond,
        nothing(count) if firing is None else firing,
        gpus=gpus,
    )


def claim_normal(
    one: Scoring, block: int, count: int, *, spread: float = 1.0, naive: float = 0.0, kind: int = TEMPERATURE
) -> Ints:
    """Forecasts of `count` series, each a normal distribution around 0."""
    series = np.arange(count, dtype=np.int64)
    quantiles = np.tile(spread * ndtri(np.array(LEVELS)), (count, 1))
    one.claim_forecasts(block, series, np.full(count, kind), 300.0, quantiles, np.full(count, naive))
    return series


def test_right_distributions_are_covered_as_they_say_and_narrow_ones_are_not() -> None:
    truth = np.random.default_rng(1).normal(size=4000)
    right, narrow = scoring(), scoring()
    for one, spread in ((right, 1.0), (narrow, 0.5)):
        settle(one, 1, claim_normal(one, 0, 4000, spread=spread, kind=MEMORY), values=truth, kind=MEMORY)

    assert right.intervals.coverage()[MEMORY, 0] == pytest.approx([0.5, 0.8, 0.95], abs=0.02)
    assert narrow.intervals.coverage()[MEMORY, 0] == pytest.approx([0.264, 0.478, 0.673], abs=0.03)
    assert right.intervals.pinball()[MEMORY, 0] < narrow.intervals.pinball()[MEMORY, 0]
    assert np.isnan(right.intervals.coverage()[OTHER]).all()
    assert np.isnan(right.intervals.coverage()[MEMORY, 1]).all()


def test_intervals_are_scaled_until_they_hold_what_they_say_and_each_class_by_itself() -> None:
    rng, one = np.random.default_rng(1), scoring()
    for block in range(40):
        if block == 20:
            one.intervals.cells["inside"][:] = one.intervals.cells["bounded"][:] = 0
        settle(
            one,
            block + 1,
            claim_normal(one, block, 100, spread=0.4, kind=MEMORY),
            values=rng.normal(size=100),
            kind=MEMORY,
        )

    assert one.intervals.coverage()[MEMORY, 0] == pytest.approx([0.5, 0.8, 0.95], abs=0.03)
    raw = 0.4 * ndtri(np.array(LEVELS))[None]
    scaled = one.published_quantiles(raw, numbers(MEMORY), 300.0)
    assert scaled[0] == pytest.approx(2.5 * raw[0], abs=0.25)
    assert np.array_equal(one.published_quantiles(raw, numbers(OTHER), 300.0), raw)


@pytest.mark.parametrize("surprise", [0.2, 1.5])
def test_four_hours_ahead_a_bound_lies_within_half_of_the_value(surprise: float) -> None:
    """Steps come without a sign, but they are no reason for an interval from 0 to 150 degrees."""
    one = scoring((300.0, 14_400.0))
    raw = 60.0 + 2.0 * ndtri(np.array(LEVELS))[None]
    found = one.published_quantiles(raw, numbers(TEMPERATURE), 14_400.0, np.array([surprise]))[0]

    assert 40.0 < found[0] < 56.0
    assert 64.0 < found[-1] < 80.0


def test_four_hours_ahead_a_series_that_stands_still_has_an_interval() -> None:
    one = scoring((300.0, 14_400.0))
    still = np.full((1, len(LEVELS)), 40_000.0)
    found = one.published_quantiles(still, numbers(CLASSES.index("memory")), 14_400.0, np.array([0.0]))[0]

    assert 4_000.0 < found[-1] - found[0] < 60_000.0


@pytest.mark.parametrize("seconds", [240.0, 300.0, 900.0, 3600.0, 14_400.0])
def test_shipped_half_widths_are_for_horizons_near_to_theirs(seconds: float) -> None:
    one, raw = scoring((seconds,)), 60.0 + 2.0 * ndtri(np.array(LEVELS))[None]
    found = one.published_quantiles(raw, numbers(KERNEL), seconds, np.array([9.0]))
    assert found[0, -1] - found[0, 0] > 1.3 * (raw[0, -1] - raw[0, 0])


def test_shipped_half_widths_are_for_blocks_as_long_as_theirs() -> None:
    """Five minutes are 150 blocks of 2 s; a temperature that rises had an upper bound of 126 degrees in a demo."""
    one, raw = Scoring((300.0,), 2.0), 60.0 + 2.0 * ndtri(np.array(LEVELS))[None]
    assert np.array_equal(one.published_quantiles(raw, numbers(TEMPERATURE), 300.0, np.array([9.0])), raw)


@pytest.mark.parametrize(
    ("seconds", "kind"), [(600.0, KERNEL), (86_400.0, KERNEL), (300.0, MEMORY), (900.0, MEMORY), (3600.0, OTHER)]
)
def test_without_shipped_half_widths_intervals_stay_as_they_are_at_first(seconds: float, kind: int) -> None:
    one, raw = scoring((seconds,)), 60.0 + 2.0 * ndtri(np.array(LEVELS))[None]
    assert np.array_equal(one.published_quantiles(raw, numbers(kind), seconds, np.array([9.0])), raw)


def test_scaled_bounds_never_cross_and_absent_ones_stay_absent() -> None:
    quantiles = np.array([[-9.0, -2.0, -1.0, 0.0, 1.0, 2.0, np.nan]])
    found = widened(quantiles, np.array([[10.0, 1.0, 1.0]]), ((2, 4), (1, 5), (0, 6)), 3)

    assert found.tolist()[0][:6] == [-10.0, -10.0, -10.0, 0.0, 10.0, 10.0]
    assert np.isnan(found[0, 6])


def test_skill_is_one_less_the_ratio_to_the_errors_of_the_naive_forecasts() -> None:
    one = scoring()
    series = numbers(1, 2)
    quantiles = np.tile([[0.0]], (2, len(LEVELS)))
    one.claim_forecasts(0, series, numbers(TEMPERATURE, TEMPERATURE), 300.0, quantiles, np.array([4.0, 4.0]),
                        np.array([2.0, np.nan]))  # fmt: skip
    settle(one, 1, series, values=np.array([1.0, -2.0]))

    found = one.intervals.skill()
    assert found["naive"][TEMPERATURE, 0] == pytest.approx(1 - 3 / 9)
    assert found["seasonal_naive"][TEMPERATURE, 0] == pytest.approx(0.0)


def test_a_series_has_one_claim_at_a_time_for_each_horizon() -> None:
    one = scoring()
    for block in range(HOUR + 1):
        series = claim_normal(one, block, 1)
        one.claim_breaches(block, series, numbers(TEMPERATURE), np.array([[0.5, 0.5]]))
        settle(one, block + 1, series, values=np.zeros(1))

    assert one.intervals.cells["count"][TEMPERATURE].tolist() == [HOUR + 1, 0]
    assert one.breaches.cells["count"][TEMPERATURE].tolist() == [HOUR + 1, 1]
    assert len(one.breaches.pending) == 1


def test_claims_for_hours_ahead_come_due_at_every_block_each_series_once_in_a_horizon() -> None:
    one, series = scoring((300.0, 14_400.0)), np.arange(480, dtype=np.int64)
    kinds, quantiles = np.full(480, TEMPERATURE), np.tile(ndtri(np.array(LEVELS)), (480, 1))
    scored = []
    for block in range(3 * 48):
        one.claim_forecasts(block, series, kinds, 14_400.0, quantiles, np.zeros(480))
        before = one.intervals.cells["count"][TEMPERATURE, 1]
        settle(one, block + 1, series, values=np.zeros(480))
        scored.append(one.intervals.cells["count"][TEMPERATURE, 1] - before)

    assert scored[:47] == [0] * 47
    assert set(scored[47:]) == {10}


@pytest.mark.parametrize("name", ["widening/levels", "interval_claims/state"])
def test_a_state_that_lacks_a_column_is_refused_and_nothing_changes(name: str) -> None:
    before, after = filled(), scoring()
    meta, arrays = unpack(before.dump())
    del arrays[name]
    empty = after.dump()
    with pytest.raises(WireError, match=name):
        after.load(pack(meta, arrays))
    assert unpack(after.dump())[0] == unpack(empty)[0]
    assert len(after.intervals.pending) == 0


def test_factors_by_state_survive_a_restart() -> None:
    horizons, four_hours = (300.0, 14_400.0), 14_400.0
    before, after = scoring(horizons), scoring(horizons)
    series, kinds = np.arange(96, dtype=np.int64), np.full(96, TEMPERATURE)
    quantiles, surprise = np.tile(ndtri(np.array(LEVELS)), (96, 1)), np.tile([0.2, 1.5, 9.0], 32)
    for block in range(120):
        before.claim_forecasts(block, series, kinds, four_hours, quantiles, np.zeros(96), surprise=surprise)
        settle(before, block + 1, series, values=4 * surprise)
    after.load(before.dump())

    shown, off = quantiles[:3], surprise[:3]
    published = [one.published_quantiles(shown, kinds[:3], four_hours, off) for one in (before, after)]
    assert np.array_equal(published[0], published[1])
    assert len(np.unique(published[0][:, -1])) == 3


def test_brier_score_and_reliability_are_those_of_the_claims() -> None:
    one = scoring()
    series = np.arange(10, dtype=np.int64)
    said = np.array([0.9] * 5 + [0.1] * 5)
    one.claim_breaches(0, series, np.full(10, TEMPERATURE), np.stack([said, np.full(10, np.nan)], axis=1))
    settle(one, 1, series, beyond=np.array([True] * 4 + [False] * 6))

    assert one.breaches.brier()[TEMPERATURE, 0] == pytest.approx((4 * 0.01 + 0.81 + 5 * 0.01) / 10)
    assert one.breaches.brier_skill()[TEMPERATURE, 0] == pytest.approx(1 - 0.09 / 0.24)
    claims, mean, came = (each[TEMPERATURE, 0] for each in one.breaches.reliability())
    assert claims.tolist() == [0, 5, 0, 0, 5, 0]
    assert mean[4] == pytest.approx(0.9)
    assert came[[1, 4]] == pytest.approx([0.0, 0.8])
    assert len(one.breaches.pending) == 0


def test_a_breach_counts_within_its_horizon_alone() -> None:
    one = scoring()
    series = numbers(1, 2, 3)
    settle(one, 0, series, beyond=np.array([True, False, False]))
    one.claim_breaches(0, series, np.full(3, TEMPERATURE), np.tile([np.nan, 0.5], (3, 1)))
    for block in range(1, HOUR + 2):
        settle(one, block, series, beyond=np.array([False, block == 5, block == HOUR + 1]))

    assert one.breaches.cells["count"][TEMPERATURE, 1] == 3
    assert one.breaches.cells["came"][TEMPERATURE, 1] == 1


def test_a_claim_without_values_has_no_outcome_and_is_counted() -> None:
    one = scoring()
    series = claim_normal(one, 0, 2)
    one.claim_breaches(0, series, np.full(2, TEMPERATURE), np.full((2, 2), 0.5))
    for block in range(1, HOUR + 4):
        settle(one, block, series[:1], values=np.zeros(1))

    assert one.intervals.cells["count"][TEMPERATURE, 0] == 1
    assert one.breaches.cells["count"][TEMPERATURE].tolist() == [1, 1]
    assert one.unscored == 3


def test_a_series_that_is_a_block_late_is_scored() -> None:
    one = scoring()
    series = claim_normal(one, 0, 2)
    one.claim_breaches(0, series, np.full(2, TEMPERATURE), np.full((2, 2), 0.5))
    settle(one, 1, series[:1])
    settle(one, 2, series[:1])
    settle(one, 1, series[1:], values=np.array([9.0]), beyond=np.array([True]))

    assert one.intervals.cells["count"][TEMPERATURE, 0] == 2
    assert one.breaches.cells["came"][TEMPERATURE, 0] == 1
    assert one.unscored == 0


def claimed(one: Scoring, count: int, *, came: float) -> None:
    """Claims of `count` series for 5 minutes, of which a share comes true."""
    series = np.arange(count, dtype=np.int64)
    probability = np.tile([0.6, np.nan], (count, 1))
    one.claim_breaches(0, series, np.full(count, TEMPERATURE), probability)
    settle(one, 1, series, beyond=np.random.default_rng(count).random(count) < came)


def alerted(blocks: dict[int, tuple[bool, bool]], *, until: int, gpus: float = 0.0) -> Scoring:
    """One series; by block whether its alert fires and whether it is beyond the limit, for all later blocks."""
    one = scoring()
    firing = beyond = False
    for block in range(until):
        firing, beyond = blocks.get(block, (firing, beyond))
        settle(one, block, numbers(1), firing=np.array([firing]), beyond=np.array([beyond]), gpus=gpus)
    return one


def test_an_alert_before_the_limit_is_right_with_its_lead() -> None:
    found = alerted({10: (True, False), 10 + 3 * HOUR: (True, True), 80: (False, False)}, until=90).alerts

    assert found.precision()[TEMPERATURE] == 1.0
    assert found.announced()[TEMPERATURE] == 1.0
    assert 3 * 3600 <= found.median_lead_seconds()[TEMPERATURE] <= 6 * 3600
    assert np.isnan(found.precision()[KERNEL])


def test_a_limit_that_is_passed_without_warning_has_no_lead() -> None:
    found = alerted({10: (True, True), 20: (False, False)}, until=30).alerts

    assert found.announced()[TEMPERATURE] == 0.0
    assert found.median_lead_seconds()[TEMPERATURE] == 0.0


@pytest.mark.slow
def test_an_alert_without_a_breach_within_a_day_is_wrong_once() -> None:
    blocks = {10: (True, False), 40: (False, False), 60: (True, False), 70: (False, False)}
    one = alerted(blocks, until=10 + DAY, gpus=2.0).alerts
    assert one.wrong.sum() == 0
    found = alerted(blocks, until=2 * DAY, gpus=2.0).alerts

    assert found.wrong[TEMPERATURE] == 1
    assert found.precision()[TEMPERATURE] == 0.0
    assert found.false_alarms_per_gpu_day()[TEMPERATURE] == pytest.approx(1 / 4)


@pytest.mark.slow
def test_an_alert_that_fires_for_days_is_wrong_once_and_the_next_one_is_another() -> None:
    found = alerted({10: (True, False), 3 * DAY: (False, False), 4 * DAY: (True, False)}, until=6 * DAY).alerts

    assert found.wrong[TEMPERATURE] == 2


@pytest.mark.slow
def test_an_alert_of_a_series_that_vanished_has_no_outcome() -> None:
    one = alerted({0: (True, False)}, until=10)
    for block in range(10, 2 * DAY):
        settle(one, block, numbers(99))

    assert one.alerts.wrong.sum() == one.alerts.right.sum() == 0
    assert len(one.alerts.open["series"]) == 0


def filled() -> Scoring:
    one = scoring()
    claimed(one, 200, came=0.7)
    series = claim_normal(one, 1, 3)
    one.claim_breaches(1, series + 500, np.full(3, TEMPERATURE), np.full((3, 2), 0.4))
    settle(one, 2, numbers(900, 901), firing=np.array([True, True]), beyond=np.array([True, False]), gpus=8)
    one.claim_breaches(2, numbers(600), numbers(KERNEL), np.array([[0.1, 0.9]]))
    one.abstain(KERNEL, "no_baseline", 3)
    return one


@pytest.mark.slow
def test_a_limit_passed_on_the_last_day_counts_whatever_else_is_settled_before() -> None:
    for others_first in (False, True):
        one = alerted({0: (True, False)}, until=DAY)
        if others_first:
            settle(one, DAY, numbers(2))
        settle(one, DAY, numbers(1), firing=np.array([True]), beyond=np.array([True]))
        assert (one.alerts.right.sum(), one.alerts.wrong.sum()) == (1, 0)


@pytest.mark.parametrize("beyond", [True, False])
def test_an_alert_whose_day_ended_while_nothing_was_read_has_no_outcome(beyond: bool) -> None:  # noqa: FBT001
    one = alerted({0: (True, False)}, until=HOUR)
    settle(one, 2 * DAY, numbers(1), firing=np.array([False]), beyond=np.array([False]))
    assert (one.alerts.right.sum(), one.alerts.wrong.sum()) == (0, 0)
    for block in range(2 * DAY + 1, 2 * DAY + 20):
        settle(one, block, numbers(1), firing=np.array([beyond]), beyond=np.array([beyond]))
    assert (one.alerts.right.sum(), one.alerts.wrong.sum()) == (float(beyond), 0)


@pytest.mark.parametrize("blocks", [280, 2 * DAY - 16])
def test_a_limit_passed_after_its_day_makes_no_alert_right(blocks: int) -> None:
    one = alerted({0: (True, False)}, until=HOUR)
    settle(one, blocks, numbers(1), firing=np.array([True]), beyond=np.array([False]))
    settle(one, 3 * DAY, numbers(1), firing=np.array([True]), beyond=np.array([True]))
    assert one.alerts.leads[:, 1:].sum() == 0, "without a lead of days"


def test_an_alert_of_a_series_that_begins_again_has_no_outcome() -> None:
    one = scoring()
    for block, firing in ((9000, True), (100, False), (200, True), (201, False)):
        if block == 100:
            one.give_up(numbers(1))
        settle(one, block, numbers(1), firing=np.array([firing]), beyond=np.array([block == 201]))
    assert (one.alerts.right.sum(), one.alerts.wrong.sum()) == (1, 0)
    assert one.alerts.median_lead_seconds()[TEMPERATURE] == pytest.approx(600, abs=300)


def test_scores_and_claims_survive_a_restart() -> None:
    before, after = filled(), scoring()
    after.load(before.dump())
    for one in (before, after):
        settle(one, 3, numbers(0, 1, 500, 600, 901), values=np.ones(5), beyond=np.array([0, 0, 1, 1, 1], np.bool_))

    assert np.array_equal(after.intervals.widening.needed, before.intervals.widening.needed, equal_nan=True)
    for name in ("intervals", "breaches"):
        for sums, found in getattr(before, name).cells.sums.items():
            assert np.array_equal(getattr(after, name).cells.sums[sums], found), sums
    assert np.array_equal(after.alerts.leads, before.alerts.leads)
    assert (after.alerts.gpu_days, after.abstentions) == (before.alerts.gpu_days, before.abstentions)
    assert after.dump() == before.dump()


def test_a_state_with_other_horizons_keeps_those_that_are_in_use() -> None:
    before, after = filled(), scoring((600.0, 3600.0, 300.0 * 144))
    after.load(before.dump())

    assert after.breaches.cells["count"][TEMPERATURE].tolist() == [0, 0, 0]
    assert after.breaches.pending.ints("horizon").tolist() == [1] * 4
    back = scoring()
    back.load(after.dump())
    assert len(back.breaches.pending) == 4


def test_a_state_with_another_length_of_blocks_keeps_scores_without_claims() -> None:
    before, after = filled(), Scoring(HORIZONS, 60.0)
    after.load(before.dump())

    assert np.array_equal(after.breaches.cells["count"], before.breaches.cells["count"])
    assert len(after.breaches.pending) == len(after.intervals.pending) == len(after.alerts.open["series"]) == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state[:5], "has 5 bytes"),
        (lambda state: b"KCPW" + state[4:], "expected b'KCSC' version 1"),
        (lambda state: state[:4] + b"\x09\x00" + state[6:], "version 9"),
        (lambda state: state[:-3] + b"abc", "does not match its checksum"),
    ],
)
def test_a_state_that_cannot_be_read_changes_nothing(damage: object, message: str) -> None:
    assert callable(damage)
    one, state = filled(), scoring().dump()
    before = one.dump()
    with pytest.raises(WireError, match=message):
        one.load(damage(state))
    assert one.dump() == before


@pytest.mark.parametrize("lost", ["classes", "horizons_seconds", "block_seconds", "gpu_days", "abstentions"])
@pytest.mark.parametrize("replaced", [{}, {"by": "x"}])
def test_a_state_without_a_part_changes_nothing(lost: str, replaced: dict[str, str]) -> None:
    one = filled()
    before = one.dump()
    meta, arrays = unpack(filled().dump())
    del meta[lost]
    with pytest.raises(WireError, match="scores begin again"):
        one.load(pack({**meta, **({lost: replaced["by"]} if replaced else {})}, arrays))
    assert one.dump() == before


def test_claims_that_an_earlier_process_could_not_score_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter of a new process begins at 0; Prometheus would count its first value as new ones."""
    monkeypatch.setattr("kernelcast.predictor.scoring.pending.MAX_PENDING", 10)
    before, after = scoring(), scoring()
    settle(before, 5, claim_normal(before, 0, 25))
    assert before.unscored == 25
    after.load(before.dump())
    assert after.unscored == 0


def test_old_claims_weigh_less_than_new_ones() -> None:
    one = scoring()
    for block in range(40):
        count = 600
        crossing = np.arange(count, dtype=np.int64)
        one.claim_breaches(block, crossing, np.full(count, TEMPERATURE), np.tile([0.9, np.nan], (count, 1)))
        settle(one, block + 1, crossing, beyond=np.full(count, block >= 20))

    assert one.breaches.cells["count"][TEMPERATURE, 0] <= 10_600
    assert one.breaches.reliability()[2][TEMPERATURE, 0, 4] > 0.6


def test_claims_beyond_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.predictor.scoring.pending.MAX_PENDING", 10)
    one = scoring()
    claim_normal(one, 0, 25)

    assert len(one.intervals.pending) == 10
    assert one.unscored == 15


def test_a_series_has_the_same_number_in_every_process_and_a_metric_its_class() -> None:
    labels = [("gpu", "0"), ("Hostname", "a")]

    assert series_number("DCGM_FI_DEV_GPU_TEMP", labels) == series_number("DCGM_FI_DEV_GPU_TEMP", labels[::-1])
    assert series_number("a", [("b", "c")]) == 5766215021995494662
    assert 0 <= series_number("x", []) < 2**63
    metrics = ("DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_FB_USED", "cuda_kernel_duration_seconds", "queue_length")
    assert [CLASSES[class_number(metric)] for metric in metrics] == ["temperature", "memory", "kernel", "other"]
