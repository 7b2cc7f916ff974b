"""The passage detector on small panels: baselines, drifts, and rises that are none."""

from dataclasses import replace

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.passage import baseline
from kernelcast.predictor.passage.alert_rule import RAISE_FAR_EVALUATIONS, AlarmState, is_near
from kernelcast.predictor.passage.calibration import Calibration, shipped
from kernelcast.predictor.passage.detector import Evaluation, evaluate
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS, first_passage
from kernelcast.predictor.passage.load import BLOCKS, LoadEffect
from kernelcast.predictor.passage.run import (
    WINDOW_BLOCKS,
    DetectorOptions,
    limit_passed,
    replaced_within,
    run,
    trailing_mean,
)
from kernelcast.predictor.passage.series import BLOCK_SECONDS, SeriesBlocks, Traits, build, condense
from kernelcast.predictor.passage.trend import Trend, estimate
from kernelcast.predictor.passage.wear import at_usual_load

_HOUR = 12
_RNG = np.random.default_rng(8)


def traits(
    limit: float, *, resolution: float = 0.0, below: bool = False, settling: int = 8, reserves: bool = False
) -> Traits:
    return Traits(
        limit=np.array([limit]),
        baseline_ratio=np.array([0.8 if below else 1.2]),
        below=np.array([below]),
        resolution=np.array([resolution]),
        settling_blocks=np.array([settling]),
        reserves=np.array([reserves]),
    )


def blocks(
    values: Floats, *, load: Floats | None = None, process: Floats | None = None, version: int = -1
) -> SeriesBlocks:
    row = np.asarray(values, dtype=np.float64)[None]
    return SeriesBlocks.of(
        mean=row,
        median=row,
        load=np.full(row.shape, np.nan) if load is None else load[None],
        process=np.zeros(row.shape, dtype=np.int64) if process is None else process[None].astype(np.int64),
        version=np.full(row.shape, version, dtype=np.int64),
    )


def noise(hours: float, spread: float) -> Floats:
    return np.random.default_rng(3).normal(0.0, spread, round(hours * _HOUR))


def rise(hours: float, per_hour: float, *, last: float) -> Floats:
    """Level, then a line over the last hours."""
    time = np.arange(round(hours * _HOUR)) / _HOUR
    return np.maximum(time - (hours - last), 0.0) * per_hour


def evaluated(values: Floats, limit: float, *, load: Floats | None = None) -> Evaluation:
    return evaluate(blocks(values, load=load), traits(limit))


def another_day(values: Floats) -> Floats:
    """The same after a day at the first level, so that the season is known."""
    return np.concatenate([values[1] + noise(24, 0.1), values])


def highest(found: Evaluation) -> float:
    return float(found.passage.probability.max())


def test_a_drift_reaches_its_limit_when_its_line_does() -> None:
    found = evaluated(another_day(67 + noise(24, 0.1) + rise(24, 2.0, last=5.5)), 87.0)
    # 77.8 degrees in the newest block, 2 an hour: 55 blocks.
    assert found.passage.probability[0, HORIZONS_SECONDS.index(3600.0)] < 0.01
    assert found.passage.probability[0, -1] > 0.95
    low, middle, high = found.passage.seconds[0] / 3600
    assert low <= 55 / _HOUR <= high
    assert middle == pytest.approx(55 / _HOUR, rel=0.05)
    assert found.passage.never[0] < 0.05


def test_the_probability_within_a_horizon_is_that_up_to_it_and_not_up_to_the_next_time_of_the_grid() -> None:
    values = 67 + noise(24, 0.1) + rise(24, 2.0, last=5.5)
    horizons = (14_400.0, 18_000.0, 19_800.0, 21_600.0)
    found = evaluate(blocks(another_day(values)), traits(87.0), horizons_seconds=horizons).passage
    before, five_hours, later, six_hours = found.probability[0]
    assert before < 0.1
    assert six_hours > 0.9
    assert five_hours == pytest.approx((before + six_hours) / 2)
    assert five_hours < later < six_hours
    # The time is that of the line, 9 degrees at 2 an hour, wherever it lies between two times of the grid.
    assert found.seconds[0, 1] == pytest.approx(16_200, rel=0.05)


def test_the_time_to_the_limit_of_a_steady_leak_counts_down() -> None:
    """5,000 MiB an hour for twelve hours, evaluated at each block from four hours before the limit on."""
    limit, per_block = 78_110.0, 5_000 / _HOUR
    values = limit + noise(36, 20.0) + rise(36, 5_000.0, last=12) - 12 * 5_000
    shown = []
    for left in range(4 * _HOUR, 2, -1):
        assert values[-left] == pytest.approx(limit - left * per_block, abs=100)
        found = evaluate(blocks(values[: len(values) - left + 1]), traits(limit, resolution=1.0)).passage
        shown.append(found.seconds[0, 1] / BLOCK_SECONDS)
        assert shown[-1] == pytest.approx(left, abs=max(1.0, 0.05 * left))
    assert (np.diff(shown) < 0).all()


@pytest.mark.parametrize("limit", [100.0, 0.0, -100.0])
def test_a_steep_rise_has_its_distant_horizon_on_the_first_day_whatever_the_unit_begins_at(limit: float) -> None:
    values = limit - 40 + noise(6, 0.1) + rise(6, 3.0, last=4)
    given = traits(limit, resolution=1.0)
    (moment,) = run(blocks(values), given, DetectorOptions(), ends=[len(values)], alarms=AlarmState.quiet(1))
    assert moment.answered.all()
    level = blocks(limit - 40 + noise(6, 0.1))
    (moment,) = run(level, given, DetectorOptions(), ends=[len(values)], alarms=AlarmState.quiet(1))
    assert moment.answered[0].tolist() == [True] * 4 + [False]


def test_a_level_series_below_its_limit_never_reaches_it() -> None:
    found = evaluated(84 + noise(24, 0.3), 87.0)
    assert highest(found) < 0.05
    assert np.isinf(found.passage.seconds).all()
    assert found.passage.never[0] > 0.95


def test_jobs_that_come_and_go_in_the_first_hours_are_no_noise_that_reaches_the_limit() -> None:
    jobs = "73 74 74 57 53 52 50 50 49 49 47 47 47 46 64 68 70 52 48 65 69 70 70 71 72 72 54 51 49 48 47 47"
    later = "63 67 67 68 69 69 70 69 54 50 48 48 68 72 73 75 76 76 76 77 77"
    values = np.array([float(value) for value in f"{jobs} {later}".split()])
    found = evaluate(blocks(values), traits(87.0, resolution=1.0, settling=15))
    assert highest(found) < 0.2


def test_batches_from_a_clock_are_no_noise_that_is_higher_than_they_are() -> None:
    """Half an hour of work in three, with a block of warming up: a spread of 14 degrees, and no batch above 77."""
    wanders = noise(43, 0.3)
    at_work = (np.arange(len(wanders)) % (3 * _HOUR) >= 30).astype(np.float64)
    values = 40 + 36 * (0.9 * at_work + 0.1 * np.r_[0.0, at_work[:-1]]) + wanders
    ends = range(40 * _HOUR, len(values))
    assert max(highest(evaluate(blocks(values[:end]), traits(92.0, resolution=1.0))) for end in ends) < 0.2


def test_a_falling_series_never_reaches_an_upper_limit_but_a_lower_one() -> None:
    values = 60 + noise(24, 0.1) - rise(24, 2.0, last=6)
    assert highest(evaluated(values, 87.0)) < 0.01
    assert highest(evaluate(blocks(another_day(values)), traits(40.0, below=True))) > 0.95


def test_a_warm_up_that_settles_below_the_limit_is_damped() -> None:
    time = np.maximum(np.arange(24 * _HOUR) / _HOUR - 21.0, 0.0)
    found = evaluated(60 + noise(24, 0.1) + 20 * (1 - np.exp(-time / 0.8)), 87.0)
    assert highest(found) < 0.2
    assert np.isfinite(found.trend.time_constant[0])


def together(values: Floats, limit: float) -> Evaluation:
    numbers = np.zeros(values.shape, dtype=np.int64)
    one = traits(limit)
    many = Traits(*(np.repeat(getattr(one, name), len(values)) for name in Traits.__slots__))
    return evaluate(SeriesBlocks.of(values, values, np.full(values.shape, np.nan), numbers, numbers - 1), many)


def remembering(series: int, memory: float) -> Floats:
    """Noise of standard deviation 1 over a day, each block's correlated with the next one's."""
    drawn = np.random.default_rng(6).normal(0.0, 1.0, (series, 24 * _HOUR))
    for place in range(1, drawn.shape[1]):
        drawn[:, place] = memory * drawn[:, place - 1] + np.sqrt(1 - memory**2) * drawn[:, place]
    return drawn


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("unknown_hours", [0, 14])
def test_noise_with_a_memory_is_measured_in_full(memory: float, unknown_hours: int) -> None:
    values = 70 + remembering(100, memory)
    values[:, : unknown_hours * _HOUR] = np.nan
    trend = together(values, 87.0).trend
    assert float(np.median(trend.noise)) * 87.0 == pytest.approx(1.0, abs=0.12)
    assert float(np.median(trend.correlation)) == pytest.approx(memory, abs=0.08)


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("known_hours", [1, 2, 3, 24])
def test_a_young_series_is_as_uncertain_of_its_slope_as_its_noise_allows(memory: float, known_hours: int) -> None:
    values = 70 + remembering(1000, memory)
    values[:, : -known_hours * _HOUR] = np.nan
    trend = together(values, 87.0).trend
    errors = np.abs(trend.slope / trend.error)
    assert (errors > 3).mean() < 0.05
    assert float(np.percentile(errors, 95)) == pytest.approx(2.2, abs=0.65)


def test_the_onset_of_a_drift_is_no_noise() -> None:
    values = 60 + remembering(100, 0.3)
    before, after = together(values, 87.0), together(values + rise(24, 12.0, last=0.5), 87.0)
    assert float(np.median(after.trend.noise / before.trend.noise)) == pytest.approx(1.0, abs=0.05)
    assert float(np.median(after.trend.correlation - before.trend.correlation)) < 0.05


def test_noise_with_a_memory_bends_no_straight_drift() -> None:
    trend = together(60 + remembering(200, 0.6) + rise(24, 1.0, last=12), 87.0).trend
    assert (trend.easing > 0.5).mean() < 0.08
    ratio = trend.straight * 87.0 * _HOUR
    assert (np.abs(ratio - 1.0) < 3 * trend.error * 87.0 * _HOUR).mean() > 0.9


def test_noise_alone_makes_no_drift_fall_off() -> None:
    rng = np.random.default_rng(5)
    found = together(70 + rng.normal(0, 1.0, (100, 48 * _HOUR)) + rise(48, 1.5, last=7), 87.0)
    assert (found.passage.probability[:, -1] > 0.8).mean() >= 0.9
    assert found.trend.easing.mean() < 0.1


def test_a_line_without_a_bend_is_as_old_as_its_window() -> None:
    found = evaluated(70 + noise(10, 0.1) + rise(10, 0.5, last=10), 87.0)
    assert found.trend.age[0] == 8 * _HOUR


def test_a_trend_speaks_about_as_long_a_time_as_it_has_lasted() -> None:
    """Six hours before the limit: a trend of two hours says nothing about it, one of eight does."""
    young, old = (87 - 12.0 - hours * 2.0 + noise(24, 0.1) + rise(24, 2.0, last=hours) for hours in (2, 8))
    assert highest(evaluated(another_day(young), 87.0)) < 0.1
    assert highest(evaluated(another_day(old), 87.0)) > 0.9


@pytest.mark.parametrize("late", [-0.8, 0.0, 0.8])
def test_a_rise_that_comes_every_day_is_no_drift(late: float) -> None:
    """Work begins at eight, or up to an hour earlier or later, and its heat follows within an hour."""
    hour = np.arange(48 * _HOUR) / _HOUR
    begin = np.where(hour < 24, 8.0, 32.0 + late)
    since = np.where((hour >= begin) & (hour < begin + 11), hour - begin, np.inf)
    values = 60 + 18 * np.where(np.isfinite(since), -np.expm1(-since), 0.0) + noise(48, 0.3)
    worst = [highest(evaluated(values[: round(end * _HOUR)], 87.0)) for end in np.arange(30, 46, 0.25)]
    assert max(worst) < 0.4


def test_a_drift_by_night_reaches_the_limit_when_the_day_adds_its_heat() -> None:
    hour = np.arange(101 * _HOUR) / _HOUR
    work = (hour % 24 >= 8) & (hour % 24 < 19)
    values = 60 + 18 * work + noise(101, 0.2) + 1.5 * np.maximum(hour - 95.0, 0.0)
    found = evaluated(values, 87.0)
    assert values[-1] < 70
    assert found.passage.probability[0, HORIZONS_SECONDS.index(14_400.0)] > 0.8


def test_a_step_that_stays_below_the_limit_is_no_drift() -> None:
    for hours in np.arange(0.25, 6.0, 0.25):
        values = 60 + noise(24, 0.1)
        values[-round(hours * _HOUR) :] += 15
        assert highest(evaluated(values, 87.0)) < 0.5, hours


def jobs(hours: int) -> Floats:
    """Power of jobs of one to five hours, with pauses."""
    rng = np.random.default_rng(9)
    power = np.full(hours * _HOUR, 60.0)
    place = 0
    while place < len(power):
        length = int(rng.integers(12, 60))
        power[place : place + length] = rng.uniform(450, 640)
        place += length + int(rng.integers(6, 24))
    return power


def heated(power: Floats, resistance: Floats | float) -> Floats:
    """Temperature of a GPU half of whose heat goes through a chassis of an hour."""
    chassis = np.empty(len(power))
    now = power[0]
    for place, watts in enumerate(power):
        now += (watts - now) / 12
        chassis[place] = now
    return np.asarray(35 + resistance * (power + chassis) / 2, np.float64)


def test_a_fan_that_clogs_under_jobs_is_seen_at_equal_power() -> None:
    power = jobs(48)
    clogged = 0.065 * (1 + rise(48, 0.03, last=8))
    healthy, worn = (heated(power, each) + noise(48, 0.2) for each in (0.065, clogged))
    assert highest(evaluated(healthy, 87.0, load=power)) < 0.1
    assert worn.max() < 87.0
    assert highest(evaluated(worn, 87.0, load=power)) > 0.8


def test_the_block_in_which_a_batch_ends_is_not_compared_with_others() -> None:
    """Its power is the mean of both, and its temperature still that of the batch."""
    place = np.arange(48 * _HOUR)
    power = np.where(place % 40 < 8, 380.0, 160.0)
    power[place % 40 == 8] = 200.0
    values = heated(power, 0.1)
    values[place % 40 == 8] = values[place % 40 == 7]
    highest_value = values.max()
    values, _ = at_usual_load(values[None], LoadEffect.of(values[None], power[None], BLOCKS))
    assert np.isfinite(values[0, place % 40 == 7]).all()
    assert np.nanmax(values) < highest_value


def test_a_load_that_does_not_vary_shows_no_wear() -> None:
    power = np.full(48 * _HOUR, 400.0)
    steady = (70 + noise(48, 0.3))[None] / 87
    values, _ = at_usual_load(steady, LoadEffect.of(steady, power[None], BLOCKS))
    assert np.isnan(values).all()


@pytest.mark.parametrize("minutes", [45, 60])
def test_a_fan_that_dies_under_a_known_load_is_predicted_within_its_first_hour(minutes: int) -> None:
    values = 38 + noise(26, 0.1) + rise(26, 36.0, last=minutes / 60)
    load = np.full(len(values), 115.0)
    warms_up = np.where(np.arange(len(values)) < len(values) - minutes // 5, load, 400.0)
    given = traits(87.0, resolution=1.0, settling=15)
    within_an_hour = HORIZONS_SECONDS.index(3600.0)
    assert evaluate(blocks(values, load=load), given).passage.probability[0, within_an_hour] > 0.8
    # What a step of the load brings may end below the limit, and without the load nobody knows.
    for unknown in (warms_up, None):
        assert highest(evaluate(blocks(values, load=unknown), given)) < 0.4


def test_load_explains_a_rise_of_temperature() -> None:
    load = 300 + 40 * np.sin(np.arange(24 * _HOUR) * 2 * np.pi / 60) + rise(24, 20.0, last=3)
    values = 40 + 0.1 * load + noise(24, 0.05)
    assert highest(evaluated(values, 80.0, load=load)) < 0.2


def test_day_and_night_are_no_drift() -> None:
    for hours in range(24, 48, 2):
        time = np.arange(hours * _HOUR) / _HOUR
        values = 80 + 4 * np.sin(2 * np.pi * time / 24) + np.random.default_rng(1).normal(0, 0.2, hours * _HOUR)
        assert highest(evaluated(values, 87.0)) < 0.8, hours


def test_a_cache_that_is_emptied_and_fills_again_is_no_leak() -> None:
    time = np.arange(30 * _HOUR) / _HOUR
    values = 40_000 + 30_000 * (time % 5.0) / 5.0
    for hours in (24, 26, 28, 29.9):
        assert highest(evaluated(values[: round(hours * _HOUR)], 79_000.0)) < 0.5, hours


@pytest.mark.parametrize("before", [0.0, 10_000.0, 30_000.0])
def test_a_cache_of_a_new_program_is_no_leak_however_large_its_memory_is_beside_it(before: float) -> None:
    time = np.arange(24 * _HOUR) / _HOUR
    begins = 12.0
    values = np.where(time < begins, before, 55_000 + 9_000 * ((time - begins) % 3.0) / 3.0)
    values += np.random.default_rng(4).normal(0, 100, len(values))
    for hours in np.arange(begins + 4.0, 24.0, 0.5):
        assert highest(evaluated(values[: round(hours * _HOUR)], 79_000.0)) < 0.5, hours


def test_a_leak_of_a_program_that_began_after_an_idle_time_is_one() -> None:
    time = np.arange(24 * _HOUR) / _HOUR
    values = np.where(time < 12, 0.0, 30_000 + 3500 * (time - 12))
    assert highest(evaluated(values, 79_000.0)) > 0.9


def test_a_drift_after_a_burst_is_one() -> None:
    values = 40 + noise(24, 0.2) + rise(24, 3.0, last=4)
    values[16 * _HOUR : 16 * _HOUR + 6] += 30
    found = evaluated(another_day(values), 60.0)
    assert found.passage.probability[0, -1] > 0.9


def test_memory_after_a_restart_is_no_leak() -> None:
    time = np.arange(24 * _HOUR) / _HOUR
    held = np.where(time < 22.0, 60_000.0, np.maximum(time - 22.1, 0.0) * 35_000)
    for hours in (22.5, 23.0, 23.5):
        assert highest(evaluated(held[: round(hours * _HOUR)], 79_000.0)) < 0.5, hours


def test_memory_after_a_restart_at_an_hour_at_which_all_days_agree_is_no_leak() -> None:
    """Days explain a fall into their range, and not one out of it."""
    hours = np.arange(5 * 24 * _HOUR) / _HOUR
    restart = 4 * 24 + 11.0
    values = 68_000.0 - 45_000.0 * np.exp(-np.where(hours < restart, hours, hours - restart) / 0.7)
    given = traits(79_000.0, resolution=2.0, reserves=True)
    for end in np.arange(restart + 0.25, restart + 6.0, 0.25):
        assert highest(evaluate(blocks(values[: round(end * _HOUR)]), given)) < 0.5, end


@pytest.mark.parametrize("share", [0.965, 0.98, 1.01])
def test_memory_that_an_engine_reserves_at_its_start_is_its_normal(share: float) -> None:
    """Also after a restart, and whatever the limit is."""
    values = np.full(30 * _HOUR, share * 79_000.0) + noise(30, 20.0)
    values[20 * _HOUR : 20 * _HOUR + 3] = (600.0, 600.0, 40_000.0)
    given = traits(79_000.0, resolution=2.0, reserves=True)
    for end in (2, 19, 22, 30):
        found = evaluate(blocks(values[: end * _HOUR]), given)
        assert not found.beyond[0]
        assert not np.nan_to_num(found.passage.probability).any()


def test_a_leak_is_none_that_an_engine_reserved() -> None:
    values = 60_000 + noise(30, 20.0) + rise(30, 4000.0, last=6)
    assert evaluate(blocks(values), traits(79_000.0, resolution=2.0, reserves=True)).beyond[0]


def test_the_calibration_lifts_no_drift_above_what_is_believed_of_its_slope() -> None:
    """A slope of four errors is as likely real as noise; where noise alone reaches no limit, nothing else does."""
    level = np.array([0.9])
    drift = Trend.line(level=level, slope=level / 90, error=level / 360, noise=level / 900, age=np.array([96]))
    never, reach = np.zeros(1, np.bool_), np.full(1, 96.0)
    passage = first_passage(
        drift, 1.0 - level, never, never, reach=reach, horizons_seconds=HORIZONS_SECONDS, calibration=shipped()
    )
    assert 0.4 < passage.probability[0, -1] <= 0.5


def test_a_leak_that_was_near_its_limit_for_days_is_none_that_an_engine_reserved() -> None:
    """The first of the two days of blocks is not the program's beginning."""
    values = 78_000 + rise(96, 15.0, last=90) + noise(96, 2.0)
    found = evaluate(blocks(values).until(len(values)), traits(79_000.0, resolution=2.0, reserves=True))
    assert found.beyond[0]


def test_memory_that_fills_after_the_first_half_hour_was_not_reserved() -> None:
    values = np.minimum(45_000.0 + 24_000.0 * np.arange(6 * _HOUR) / _HOUR, 79_100.0)
    assert evaluate(blocks(values), traits(79_000.0, resolution=2.0, reserves=True)).beyond[0]


def test_what_an_engine_reserved_days_ago_is_still_its_normal() -> None:
    values = np.full(96 * _HOUR, 78_700.0) + noise(96, 20.0)
    values[:3] = (600.0, 600.0, 40_000.0)
    values[-1] = 79_010.0
    found = evaluate(blocks(values).until(len(values)), traits(79_000.0, resolution=2.0, reserves=True))
    assert not found.beyond[0]


def test_a_leak_that_passes_its_former_peak_is_one() -> None:
    time = np.arange(24 * _HOUR) / _HOUR
    values = np.where(time < 10, 50_000.0, 20_000 + 3500 * (time - 10))
    assert highest(evaluated(values, 79_000.0)) > 0.9


@pytest.mark.parametrize("missing", [1, 6])
def test_a_gap_at_the_end_hides_no_leak_of_a_series_that_has_fallen_before(missing: int) -> None:
    time = np.arange(24 * _HOUR) / _HOUR
    values = np.where(time < 10, 50_000.0, 20_000 + 3700 * (time - 10))
    values[-missing:] = np.nan
    assert highest(evaluated(values, 79_000.0)) > 0.9


@pytest.mark.parametrize("missing", [1, 6])
def test_a_gap_at_the_end_makes_no_leak_of_a_cache_that_fills_again(missing: int) -> None:
    time = np.arange(24 * _HOUR) / _HOUR
    values = 40_000 + 30_000 * (time % 6.0) / 6.0
    values[-missing:] = np.nan
    assert highest(evaluated(values, 79_000.0)) < 0.5


def test_a_limit_that_is_passed_has_the_probability_one() -> None:
    found = evaluated(88 + noise(24, 0.1), 87.0)
    assert (found.passage.probability == 1.0).all()
    assert (found.passage.seconds == 0.0).all()
    assert found.beyond.all()


def test_the_first_minutes_of_a_process_do_not_enter_its_baseline() -> None:
    for opening in (1.4, 0.75):
        values = np.ones(6 * _HOUR) + noise(6, 0.005)
        values[0] = opening
        found = baseline.learn(blocks(values), below=np.array([False]), day_hours=24)
        assert found.value[0] == pytest.approx(1.0, abs=0.01)


def test_a_baseline_stays_while_a_kernel_is_slow() -> None:
    values = np.r_[np.ones(6 * _HOUR), np.full(12 * _HOUR, 1.5)] + noise(18, 0.005)
    found = evaluate(blocks(values), traits(np.nan))
    assert found.limit[0] == pytest.approx(1.2, abs=0.01)
    assert found.beyond.all()


def test_a_kernel_that_gets_slower_day_by_day_is_beside_its_usual_speed_of_before() -> None:
    values = 1 + rise(8 * 24, 0.0028, last=90) + noise(8 * 24, 0.005)
    evaluation = evaluate(blocks(values).until(len(values)), traits(np.nan))
    assert evaluation.limit[0] == pytest.approx(1.2, abs=0.03)
    assert evaluation.beyond.all()
    below = evaluate(blocks(1 / values).until(len(values)), traits(np.nan, below=True))
    assert below.beyond.all()


def test_a_kernel_that_is_slower_since_a_release_days_ago_or_has_slow_days_is_not() -> None:
    days = np.repeat([0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25], 24 * _HOUR)
    stepped = 1 + days + noise(8 * 24, 0.005)
    wavering = 1 + np.repeat([0.0, 0.1, 0.05, 0.15, 0.1, 0.2, 0.15, 0.25], 24 * _HOUR) + noise(8 * 24, 0.005)
    for values, least in ((stepped, 1.45), (wavering, 1.35)):
        evaluation = evaluate(blocks(values).until(len(values)), traits(np.nan))
        assert evaluation.limit[0] > least


def test_a_deploy_in_the_last_two_days_ends_a_creep() -> None:
    values = 1 + rise(8 * 24, 0.0028, last=90) + noise(8 * 24, 0.005)
    process = np.r_[np.zeros(len(values) - 20 * _HOUR), np.ones(20 * _HOUR)]
    evaluation = evaluate(blocks(values, process=process).until(len(values)), traits(np.nan))
    assert evaluation.limit[0] > 1.4


def test_a_kernel_that_gets_slower_within_a_day_does_not_creep() -> None:
    """Blocks of a minute: 120 of twelve are a day."""
    values = 1 + rise(4 * 120, 0.0028, last=90) + noise(4 * 120, 0.005)
    for day_hours in (120, 0):
        evaluation = evaluate(blocks(values).until(len(values)), traits(np.nan), day_hours=day_hours)
        assert evaluation.limit[0] > 1.3


def test_a_kernel_that_compiled_slowly_and_is_slow_later_passes_its_limit() -> None:
    values = np.r_[1.4, np.ones(3 * _HOUR - 1), np.full(_HOUR, 1.22)] + noise(4, 0.005)
    assert evaluate(blocks(values), traits(np.nan)).beyond.all()


def test_a_deploy_begins_a_regime_and_a_restart_of_the_same_version_does_not() -> None:
    values = np.r_[np.ones(20 * _HOUR), np.full(2 * _HOUR, 1.25)] + noise(22, 0.005)
    process = np.r_[np.zeros(20 * _HOUR), np.ones(2 * _HOUR)]
    unknown = blocks(values, process=process)
    same = blocks(values, process=process, version=3)
    other = replace(same, version=same.version + same.process)
    assert evaluate(unknown, traits(np.nan)).limit[0] == pytest.approx(1.5, abs=0.02)
    assert evaluate(other, traits(np.nan)).limit[0] == pytest.approx(1.5, abs=0.02)
    assert evaluate(same, traits(np.nan)).limit[0] == pytest.approx(1.2, abs=0.02)


def test_it_abstains_until_a_baseline_is_learnt() -> None:
    process = np.r_[np.zeros(20 * _HOUR), np.ones(4)]
    found = evaluate(blocks(np.ones(20 * _HOUR + 4), process=process), traits(np.nan))
    assert np.isnan(found.passage.probability).all()
    assert not found.beyond.any()


def test_a_passed_limit_is_announced_between_evaluations_but_not_for_a_new_process() -> None:
    found = evaluate(blocks(np.ones(6 * _HOUR) + noise(6, 0.005)), traits(np.nan))
    slow, same = np.full((1, 6), 1.3), np.zeros((1, 6), dtype=np.int64)

    def passed(values: Floats, process: Ints) -> list[bool]:
        mean, replaced = trailing_mean(values, 5), replaced_within(process, 5)
        answers: list[bool] = limit_passed(mean, replaced, found.limit, found.opening, traits(np.nan))[0].tolist()
        return answers

    assert passed(slow, same) == [False, False, False, False, True, True]
    assert not any(passed(np.ones((1, 6)), same))
    assert not any(passed(slow, np.array([[0, 0, 0, 0, 1, 1]])))


@pytest.mark.parametrize("huge", [1e18, 1e308, -9223372036854775792.0])
@pytest.mark.parametrize("width", [1, 5, 7])
def test_a_huge_value_leaves_the_means_of_other_windows_as_they_are(huge: float, width: int) -> None:
    values = np.full((2, 40), 50.0)
    values[0, 11:13] = huge
    values[1, 20:33] = np.nan
    mean = trailing_mean(values, width)
    affected = np.zeros(40, np.bool_)
    affected[11 : 13 + width - 1] = True
    assert (mean[0, width - 1 :][~affected[width - 1 :]] == 50.0).all()
    gone = np.array([np.isnan(values[1, max(end - width, 0) : end]).all() for end in range(1, 41)])
    assert np.array_equal(np.isnan(mean[1, width - 1 :]), gone[width - 1 :])
    assert np.isnan(mean[:, : width - 1]).all()


def test_a_gap_between_evaluations_hides_no_passed_limit() -> None:
    hot = np.array([[90.0, np.nan, 90.0, np.nan, 90.0]])
    nothing, unknown = np.zeros((1, 5), dtype=np.bool_), np.array([False])
    found = limit_passed(trailing_mean(hot, 3), nothing, np.array([87.0]), unknown, traits(87.0))
    assert found[0].tolist() == [False, False, True, True, True]


@pytest.mark.slow
def test_moments_computed_together_equal_those_computed_one_after_another() -> None:
    values = 70 + noise(60, 0.1) + rise(60, 1.5, last=14)
    made, rule = blocks(values), DetectorOptions(calibration=shipped())
    ends = range(WINDOW_BLOCKS - 3, len(values) + 1)
    together = list(run(made, traits(87.0), rule, ends=ends, alarms=AlarmState.quiet(1)))
    alarms = AlarmState.quiet(1)
    for moment in together:
        (alone,) = run(made, traits(87.0), rule, ends=[moment.end], alarms=alarms)
        alarms = alone.alarms
        np.testing.assert_array_equal(alone.found.passage.probability, moment.found.passage.probability)
        assert alone.alarms.firing.tolist() == moment.alarms.firing.tolist()
    assert together[-1].alarms.firing[0]


def test_a_held_baseline_is_not_forgotten_however_long_a_kernel_is_slow() -> None:
    values = np.r_[np.ones(2 * _HOUR), np.full(46 * _HOUR, 1.5)] + noise(48, 0.005)
    assert not evaluate(blocks(values), traits(np.nan)).beyond.any()
    held = evaluate(blocks(values), traits(np.nan), held=np.array([1.0]))
    assert held.limit[0] == pytest.approx(1.2)
    assert held.beyond.all()


def test_an_evaluation_does_not_depend_on_what_comes_later_nor_on_other_series() -> None:
    rows = np.stack([70 + noise(30, 0.1) + rise(30, 1.5, last=10), 60 + noise(30, 0.4)])
    both = SeriesBlocks.of(
        rows, rows, np.full(rows.shape, np.nan), np.zeros(rows.shape, np.int64), np.full(rows.shape, -1, np.int64)
    )
    two = Traits(*(np.repeat(getattr(traits(87.0), name), 2) for name in Traits.__slots__))
    together = evaluate(both.until(26 * _HOUR), two).passage.probability
    alone = evaluate(blocks(rows[0, : 26 * _HOUR]), traits(87.0)).passage.probability
    np.testing.assert_allclose(together[:1], alone)


def test_gaps_are_left_out() -> None:
    values = 67 + noise(24, 0.1) + rise(24, 2.0, last=5.5)
    values[::7] = np.nan
    found = evaluated(another_day(values), 87.0)
    assert found.passage.probability[0, -1] > 0.95
    assert np.isfinite(found.passage.probability).all()


def test_blocks_have_means_and_medians_without_gaps() -> None:
    mean, median = condense(np.array([[1.0, 2.0, 9.0, np.nan, np.nan, np.nan, 5.0]]), 3)
    assert mean.tolist()[0][0] == 4.0
    assert median.tolist()[0][0] == 2.0
    assert np.isnan(mean[0, 1])
    made = build(np.ones((2, 60)), 60.0, load=None, process=None, version=None)
    assert made.mean.shape == (2, 12)


def test_a_far_breach_must_stay_probable_and_a_passed_limit_alerts_at_once() -> None:
    far = np.array([[0.0, 0.0, 0.0, 0.1, 0.9]])
    state, calm, hours_away = AlarmState.quiet(1), np.array([False]), np.array([False])
    for number in range(RAISE_FAR_EVALUATIONS):
        assert state.firing[0] == (number >= RAISE_FAR_EVALUATIONS)
        state = state.step(far, calm, hours_away)
    assert state.firing[0]
    assert AlarmState.quiet(1).step(far, np.array([True]), hours_away).firing[0]


def test_a_near_breach_alerts_with_the_second_evaluation_that_shows_it() -> None:
    probable, calm, near = np.array([[0.0, 0.1, 0.6, 0.9, 0.9]]), np.array([False]), np.array([True])
    for at_first in (near, ~near):
        state = AlarmState.quiet(1).step(probable, calm, at_first)
        assert not state.firing[0]
        assert state.step(probable, calm, near).firing[0]


@pytest.mark.parametrize(
    ("within_an_hour", "minutes", "later", "on_first_day"), [(0.4, 70, 0, 0), (0.6, 50, 1, 0), (0.9, 20, 1, 1)]
)
def test_a_breach_is_near_that_is_as_likely_as_not_within_the_hour_and_on_a_first_day_probable(
    within_an_hour: float, minutes: float, later: int, on_first_day: int
) -> None:
    probability = np.tile([0.0, 0.1, within_an_hour, 0.9, 0.9], (2, 1))
    near = is_near(probability, HORIZONS_SECONDS, np.full(2, 60.0 * minutes), np.array([False, True]))
    assert near.tolist() == [later, on_first_day]


def test_an_alert_clears_after_half_an_hour_and_an_abstention_changes_nothing() -> None:
    state = AlarmState.quiet(1).step(np.ones((1, 5)), np.array([True]), np.array([True]))
    calm, near = np.array([False]), np.array([False])
    state = state.step(np.full((1, 5), np.nan), calm, near)
    for _ in range(5):
        state = state.step(np.zeros((1, 5)), calm, near)
        assert state.firing[0]
    assert not state.step(np.zeros((1, 5)), calm, near).firing[0]


def test_the_shipped_calibration_is_monotone_and_names_its_origin() -> None:
    found = shipped()
    assert found.origin == "simulation"
    assert found.horizons_seconds.tolist() == list(HORIZONS_SECONDS)
    assert (np.diff(found.computed, axis=1) >= 0).all()
    assert (np.diff(found.calibrated, axis=1) >= 0).all()
    assert ((found.calibrated >= 0) & (found.calibrated <= 1)).all()


def test_a_calibration_applies_the_nearest_horizon_and_keeps_gaps() -> None:
    line = np.array([0.0, 1.0])
    made = Calibration("simulation", np.array([300.0, 3600.0]), np.stack([line, line]), np.stack([line / 2, line]))
    found = made.apply(np.array([[0.4, 0.4], [np.nan, 0.2]]), np.array([400.0, 7200.0]))
    np.testing.assert_allclose(found, [[0.2, 0.4], [np.nan, np.nan]])


def working_days(days: int, hours: int, warmer: Floats) -> Floats:
    """Heat of ten working hours a day at some highest temperatures, one a day."""
    hour = np.arange((days * 24 + hours) * _HOUR) / _HOUR
    work = (hour % 24 >= 8) & (hour % 24 < 18)
    return np.where(work, warmer[(hour // 24).astype(np.int64)], 55.0) + noise(days * 24 + hours, 0.2)


def test_the_first_monday_after_a_weekend_of_traffic_ends_no_higher_for_beginning_earlier() -> None:
    hours = np.arange(16 * _HOUR, 4 * 24 * _HOUR) / _HOUR
    earlier = 1.5 * (hours >= 3 * 24)
    course = np.sin(np.pi * np.clip((hours % 24 - 8.0 + earlier) / 14.0, 0.0, 1.0))
    values = 20.0 + 60.0 * course + np.random.default_rng(4).normal(0, 0.5, len(hours))
    for end in range(len(hours) - 18 * _HOUR, len(hours) - 8 * _HOUR, 3):
        assert highest(evaluated(values[:end], 95.0)) < 0.8, end


def test_a_job_that_goes_on_while_the_usual_range_falls_has_no_slope_and_a_rise_keeps_its_own() -> None:
    """On other nights the job was done by now."""
    values = np.stack([84.0 + noise(10, 0.5), 84.0 + noise(10, 0.5) + rise(10, 3.0, last=2)])
    usual = 84.0 - 20.0 * np.maximum(np.arange(120) - 90, 0)[None] / 30
    trend = estimate(values, np.zeros(2, np.int64), resolution=np.ones(2), settling=np.full(2, 8), usual=usual)
    assert trend.slope[0] * _HOUR < 0.5
    assert trend.slope[1] * _HOUR == pytest.approx(3.0, abs=1.0)


def test_peaks_that_rise_from_day_to_day_reach_the_limit_at_the_next_one() -> None:
    """A filter that clogs over days: no rise within a day leads to the limit."""
    values = working_days(5, 20, np.array([75.0, 75.0, 75.0, 78.5, 82.0, 85.5]))
    assert values.max() < 87.0
    assert evaluated(values, 87.0).passage.probability[0, -1] > 0.8


def test_the_first_workdays_after_a_weekend_are_no_rise_from_day_to_day() -> None:
    values = working_days(4, 20, np.array([55.0, 55.0, 80.0, 80.5, 80.3]))
    worst = [highest(evaluated(values[: round(end * _HOUR)], 87.0)) for end in np.arange(72, 116, 0.5)]
    assert max(worst) < 0.4


def beside_a_neighbour(slower: Floats) -> Floats:
    """A kernel that a neighbour slows for eight hours of each day, by a share of its own for each day."""
    hour = np.arange(len(slower) * 24 * _HOUR) / _HOUR
    neighbour = np.where((hour % 24 >= 10) & (hour % 24 < 18), slower[(hour // 24).astype(np.int64)], 0.0)
    return np.asarray((1.0 + neighbour) * (1.0 + noise(len(slower) * 24, 0.003)))


def test_a_neighbour_that_takes_more_of_a_kernel_each_day_is_no_ageing_kernel() -> None:
    values = beside_a_neighbour(np.array([0.0, 0.075, 0.145]))
    worst = [highest(evaluated(values[: round(end * _HOUR)], np.nan)) for end in np.arange(58, 72.5, 0.5)]
    assert max(worst) < 0.4


@pytest.mark.parametrize(
    ("slower", "least", "most"), [([0.1, 0.1, 0.1, 0.0], 0.8, 1.0), ([0.0, 0.1, 0.0, 0.0], 0.0, 0.4)]
)
def test_a_kernel_that_ages_by_night_is_carried_to_a_neighbour_of_most_days_and_to_no_other(
    slower: list[float], least: float, most: float
) -> None:
    morning = 3 * 24 + 8
    values = (
        beside_a_neighbour(np.array(slower)) + np.maximum(np.arange(96 * _HOUR) / _HOUR - (morning - 4), 0.0) * 0.02
    )
    found = evaluated(values[: morning * _HOUR], np.nan)
    assert least <= found.passage.probability[0, HORIZONS_SECONDS.index(14_400.0)] <= most


@pytest.mark.parametrize(("runs", "share", "passed"), [(5, 0.05, False), (5, 0.15, True), (2, 0.05, True)])
def test_a_kernel_is_slow_beside_a_neighbour_where_it_is_slower_than_it_often_is(
    runs: int,
    share: float,
    passed: bool,  # noqa: FBT001  the expectation
) -> None:
    """A neighbour takes 15 % for three hours, now and then; after a release it is a share more, alone and beside it."""
    hours = np.arange(48 * _HOUR) / _HOUR
    beside = (hours % 8 > 5) & (hours > 48 - 8 * (runs + 1))
    values = 1.0 + 0.15 * beside + np.random.default_rng(3).normal(0, 0.002, len(hours))
    values[-4 * _HOUR :] *= 1.0 + share
    assert evaluated(values, np.nan).beyond[0] == passed


def test_a_steep_rise_is_as_old_as_it_is_and_where_a_series_settles_a_step() -> None:
    rows = np.tile(70 + noise(24, 0.1) + rise(24, 12.0, last=0.9), (2, 1))
    found = estimate(rows, np.zeros(2, np.int64), resolution=np.zeros(2), settling=np.array([5, 15]))
    assert found.age[0] == pytest.approx(11, abs=1)
    assert found.slope.tolist() == [pytest.approx(1.0, abs=0.1), 0.0]
