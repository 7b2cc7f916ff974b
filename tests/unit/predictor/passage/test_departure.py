"""Heat that leaves its range at a like load."""

from dataclasses import replace

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.departure import after_high_loads, departures
from kernelcast.predictor.passage.detector import Evaluation, evaluate
from kernelcast.predictor.passage.load import BLOCKS, HOURS, LoadEffect
from kernelcast.predictor.passage.run import DetectorOptions, run
from kernelcast.predictor.passage.series import SeriesBlocks, Traits
from kernelcast.predictor.passage.trend import Trend

HOUR = 12
DAY = 24 * HOUR
LIMIT = 87.0
TRAITS = Traits(
    limit=np.array([LIMIT]),
    baseline_ratio=np.array([1.2]),
    below=np.array([False]),
    resolution=np.array([1.0]),
    settling_blocks=np.array([15]),
    reserves=np.array([False]),
)


def noise(length: int, spread: float = 0.2) -> Floats:
    return np.random.default_rng(5).normal(0.0, spread, length)


def recording(heat: Floats, load: Floats) -> SeriesBlocks:
    return SeriesBlocks.of(
        heat[None],
        heat[None],
        load[None],
        np.zeros((1, len(heat)), np.int64),
        np.full((1, len(heat)), -1),
        averaged=np.array([True]),
    )


def series(heat: Floats, load: Floats) -> SeriesBlocks:
    return recording(heat, load).until(len(heat))


def office(days: int) -> Floats:
    """Power of a working week: 600 W from 9 to 17 h, else 100 W; the first day is a Monday."""
    blocks = np.arange(days * DAY)
    at_work = (blocks % DAY >= 9 * HOUR) & (blocks % DAY < 17 * HOUR) & (blocks // DAY % 7 < 5)
    return np.where(at_work, 600.0, 100.0)


def warm(load: Floats) -> Floats:
    """Temperature at that load: 30 degrees and 7 more for each 100 W."""
    return 30.0 + 0.07 * load + noise(len(load))


def departure(blocks: SeriesBlocks) -> Trend:
    effect = LoadEffect.of(blocks.mean, blocks.load, BLOCKS)
    hourly = LoadEffect.of(blocks.hours, blocks.load_hours, HOURS)
    return departures(blocks.mean, effect, blocks.load, blocks.hours, hourly)


def certain(found: Trend) -> float:
    """Standard errors of the slope; 0 where nothing has left its range."""
    return float(found.slope[0] / found.error[0])


def risen(hours: float, per_hour: float, length: int) -> Floats:
    return np.maximum(np.arange(length) / HOUR - (length / HOUR - hours), 0.0) * per_hour


@pytest.mark.parametrize("minutes", [30, 40])
def test_heat_that_leaves_its_range_at_a_steady_load_is_predicted_within_minutes(minutes: int) -> None:
    """A line with a bend needs an hour and a quarter of settling."""
    load = np.full(2 * DAY, 400.0) + noise(2 * DAY, 3.0)
    heat = 75.0 + noise(2 * DAY) + risen(minutes / 60, 12.0, 2 * DAY)
    assert evaluate(series(heat, load), TRAITS).passage.probability[0, 2] > 0.8


def test_a_monday_hotter_than_all_mornings_before_is_seen_while_it_warms() -> None:
    """After the weekend, two days of blocks have no such load; hours have."""
    length = 7 * DAY + 10 * HOUR
    load = office(8)[:length]
    healthy = warm(load)
    assert certain(departure(series(healthy, load))) < 3.0
    found = departure(series(healthy + risen(1.0, 8.0, length), load))
    assert 4.0 < found.slope[0] * HOUR < 8.0
    assert certain(found) > 6.0


def test_jobs_that_come_and_go_leave_no_range() -> None:
    load = np.repeat(np.random.default_rng(2).choice([80.0, 300.0, 650.0], 96), 6)
    for end in range(DAY, 2 * DAY, 12):
        assert certain(departure(series(warm(load)[:end], load[:end]))) < 3.0


def test_a_load_that_was_never_seen_says_nothing() -> None:
    load = np.full(2 * DAY, 100.0) + noise(2 * DAY, 5.0)
    load[-6:] = 700.0
    assert np.isnan(departure(series(warm(load), load)).level[0])


def test_a_fit_of_idle_hours_does_not_say_what_a_working_day_must_be() -> None:
    """The newest eight hours are left out of the fit, and are the first ones of work."""
    load = np.full(DAY, 100.0) + noise(DAY, 8.0)
    load[-6 * HOUR :] += 500.0
    heat = warm(load)[None]
    assert LoadEffect.of(heat[:, : -6 * HOUR], load[None, : -6 * HOUR], BLOCKS).known[0]
    assert not LoadEffect.of(heat, load[None], BLOCKS).known[0]


def test_a_pause_of_the_load_is_no_return_to_the_range() -> None:
    load = np.full(2 * DAY, 400.0)
    heat = 70.0 + noise(2 * DAY) + risen(2.0, 4.0, 2 * DAY)
    whole = departure(series(heat, load))
    heat[-8] -= 9.0
    assert departure(series(heat, load)).age[0] == whole.age[0]


@pytest.mark.parametrize("minutes", [20, 40, 60])
def test_a_chassis_that_warms_up_is_not_carried_beyond_where_it_settles(minutes: int) -> None:
    """A first job of this kind: the heat rises ever more slowly, to 6 degrees below the limit."""
    passed = np.maximum(np.arange(2 * DAY) - DAY, 0) * 60 / HOUR
    load = np.full(2 * DAY, 400.0) + noise(2 * DAY, 3.0)
    heat = 55.0 + noise(2 * DAY) + 26.0 * -np.expm1(-passed / minutes)
    ends = range(DAY, DAY + 4 * HOUR)
    said = [evaluate(series(heat[:end], load[:end]), TRAITS).passage.probability[0] for end in ends]
    assert sum(probability[:4].max() > 0.8 for probability in said) <= 2


def test_a_falling_series_does_not_depart_whatever_the_fit_says() -> None:
    blocks = series(warm(office(2)), office(2))
    effect = LoadEffect.of(blocks.mean, blocks.load, BLOCKS)
    wrong = replace(effect, heat=effect.heat - np.linspace(0.0, 20.0, effect.heat.shape[1]))
    hourly = LoadEffect.of(blocks.hours, blocks.load_hours, HOURS)
    assert departures(blocks.mean, wrong, blocks.load, blocks.hours, hourly).slope[0] <= 0.0


def test_air_that_warms_an_idle_gpu_is_carried_to_its_next_job() -> None:
    """Work reaches 72 degrees; at idle 17 degrees more are far from the limit, and in the morning they are not."""
    length = 3 * DAY + 2 * HOUR
    load = office(4)[:length] + noise(length, 3.0)
    warmer = np.where(np.arange(length) >= length - 12, 17.0, 0.0)
    assert evaluate(series(warm(load), load), TRAITS).passage.probability.max() < 0.4
    assert evaluate(series(warm(load) + warmer / 2, load), TRAITS).passage.probability.max() < 0.4
    assert_within_the_day(evaluate(series(warm(load) + warmer, load), TRAITS))


@pytest.mark.parametrize("hours_later", [0.25, 2.0, 12.0])
def test_what_the_last_job_showed_of_a_fan_is_carried_to_the_next_one(hours_later: float) -> None:
    """Work reaches 72 degrees, and 9 more in its last two hours; by night the GPU is as cool as ever."""
    length = 2 * DAY + round((17 + hours_later) * HOUR)
    load = office(4)[:length] + noise(length, 3.0)
    hotter = np.where((np.arange(length) >= 2 * DAY + 15 * HOUR) & (load > 300.0), 9.0, 0.0)
    assert evaluate(series(warm(load), load), TRAITS).passage.probability.max() < 0.4
    assert evaluate(series(warm(load) + hotter / 2, load), TRAITS).passage.probability.max() < 0.4
    assert_within_the_day(evaluate(series(warm(load) + hotter, load), TRAITS))


def test_a_filter_that_clogs_over_a_week_is_carried_to_monday() -> None:
    """Work reaches 72 degrees, 9 more on Friday; on Sunday two days of blocks know of no work."""
    length = 6 * DAY + 20 * HOUR
    load = office(7)[:length] + noise(length, 3.0)
    clogged = np.select([np.arange(length) >= day * DAY for day in (4, 3, 2)], [9.0, 6.0, 3.0], 0.0) * (load > 300.0)
    assert evaluate(series(warm(load), load), TRAITS).passage.probability.max() < 0.4
    assert evaluate(series(warm(load) + clogged / 2, load), TRAITS).passage.probability.max() < 0.4
    assert_within_the_day(evaluate(series(warm(load) + clogged, load), TRAITS))


def test_without_a_whole_hour_no_high_load_is_known() -> None:
    nothing = np.zeros((1, 0))
    assert np.isnan(after_high_loads(nothing, LoadEffect.of(nothing, nothing, HOURS), HOURS).level[0])


def test_a_limit_that_the_next_load_passes_is_announced_without_half_an_hour_of_waiting() -> None:
    """The next load may come before."""
    length = 3 * DAY + 2 * HOUR
    load = office(4)[:length] + noise(length, 3.0)
    heat = warm(load) + np.where(np.arange(length) >= length - 12, 17.0, 0.0)
    blocks, ends = recording(heat, load), range(length - 12, length + 1)
    results = run(blocks, TRAITS, DetectorOptions(), ends=ends, alarms=AlarmState.quiet(1))
    states = [(bool(result.found.next_load[0]), bool(result.alarms.firing[0])) for result in results]
    first = states.index((True, False))
    assert states[first : first + 3] == [(True, False), (True, True), (True, True)]


def assert_within_the_day(found: Evaluation) -> None:
    """Whether the limit is reached within a day, at any moment of it."""
    assert found.next_load[0]
    assert found.passage.probability[0, :3].max() < 0.1
    assert found.passage.probability[0, -1] > 0.8
    assert 10.0 < found.passage.median_seconds[0] / 3600.0 < 14.0


def test_an_idle_gpu_after_a_weekend_of_work_is_no_warmer_than_a_fit_of_work_alone_says() -> None:
    load = np.where(np.arange(2 * DAY) < 2 * DAY - 8 * HOUR, 600.0, 60.0) + noise(2 * DAY, 8.0)
    for end in range(2 * DAY - 8 * HOUR, 2 * DAY, 3):
        blocks = series(warm(load)[:end], load[:end])
        assert evaluate(blocks, TRAITS).passage.probability.max() < 0.4, end
