"""Weeks of office hours: the morning after a weekend, after a change of the clock, and after a restart."""

import threading

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.alert_rule import AlarmState, is_near
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.detector import evaluate
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS
from kernelcast.predictor.passage.run import DetectorOptions, run
from kernelcast.predictor.passage.season import Rhythm, rhythm
from kernelcast.predictor.passage.series import SeriesBlocks, Traits
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.series.saved.rows import SavedRows
from kernelcast.predictor.series.saved.writer import StateWriter
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.series.windows import Windows

BLOCKS = 288
BLOCK_NS = 300 * 1_000_000_000
MONDAY = 1_799_625_600
"""A Monday, 0 h."""
TEMPERATURE = Subject("DCGM_FI_DEV_GPU_TEMP", Form.MEAN, (("Hostname", "n1"), ("UUID", "GPU-1")))
TRAITS = Traits(
    limit=np.array([87.0]),
    baseline_ratio=np.array([np.nan]),
    below=np.array([False]),
    resolution=np.array([1.0]),
    settling_blocks=np.array([15]),
    reserves=np.array([False]),
)


def office(days: int, *, later: tuple[int, float] = (999, 0.0)) -> Floats:
    """Temperature of working days, from a Monday on: people come from 6 to 11 h, the chassis takes an hour.

    Args:
        days: How many.
        later: From this day on, people come so many hours later, as where a clock was changed.
    """
    rng = np.random.default_rng(4)
    hours = np.arange(days * BLOCKS) / 12
    day = (hours // 24).astype(np.int64)
    clock = hours % 24 - np.where(day >= later[0], later[1], 0.0) - rng.normal(0, 0.2, days)[day]
    works = np.clip((clock - 6) / 5, 0, 1) * np.clip((19 - clock) / 2, 0, 1) * (day % 7 < 5)
    now, warm = 0.0, np.empty(len(hours))
    for place, load in enumerate(works.tolist()):
        now += (load - now) / 12
        warm[place] = 50 + 34 * (0.4 * load + 0.6 * now)
    return np.round(warm + rng.normal(0, 0.3, len(warm)), 1)


def fires_at_a_morning(values: Floats, day: int) -> bool:
    """Whether the alert fires between 6 and 13 h of a day."""
    return fires(values, range(day * BLOCKS + 72, day * BLOCKS + 156))


def fires(values: Floats, ends: range) -> bool:
    """Whether the alert fires at the end of one of some blocks."""
    numbers = np.zeros((1, len(values)), np.int64)
    nothing = np.full((1, len(values)), np.nan)
    whole = SeriesBlocks.of(values[None], values[None], nothing, numbers, numbers - 1, averaged=np.array([True]))
    results = run(whole, TRAITS, DetectorOptions(calibration=shipped()), ends=ends, alarms=AlarmState.quiet(1))
    return any(bool(one.alarms.firing[0]) for one in results)


@pytest.mark.parametrize("hours", [1.0, -1.0])
def test_no_morning_after_a_change_of_the_clock_is_a_drift(hours: float) -> None:
    values = office(16, later=(14, hours))
    assert not fires_at_a_morning(values, 14)
    assert not fires_at_a_morning(values, 15)


def test_a_night_that_gets_warmer_is_carried_to_the_work_that_the_only_earlier_day_has_shown() -> None:
    hours = np.arange(2 * BLOCKS) / 12
    works = (hours % 24 >= 9) & (hours % 24 < 18)
    values = np.where(works, 84.0, 50.0) + np.random.default_rng(4).normal(0, 0.3, len(hours))
    before_work = range(BLOCKS, BLOCKS + 60)
    assert fires(np.round(values + 0.7 * np.maximum(hours - 20, 0)), before_work)
    assert not fires(np.round(values), before_work)


def test_without_earlier_weeks_the_same_monday_is_one() -> None:
    assert fires_at_a_morning(office(15)[12 * BLOCKS :], 2)


class Memory:
    """Histories of one temperature, with their writer."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.windows = Windows(interval_ns=BLOCK_NS // 5, points=240, max_series=100)
        self.histories = Histories(self.windows, lock)
        self.rows = SavedRows(self.windows, lock, histories=self.histories)
        self.writer = StateWriter(self.rows, epoch=1, sequence=0, every_seconds=60.0)

    def write(self, first: int, values: Floats) -> None:
        """Write blocks from a number of blocks since `MONDAY` on."""
        row = np.array([self.windows.admit(TEMPERATURE, owner=0)])
        for place, value in enumerate(values.tolist(), first):
            for part in range(5):
                time_ns = MONDAY * 1_000_000_000 + place * BLOCK_NS + part * BLOCK_NS // 5
                self.windows.put_levels(row, np.array([time_ns]), np.array([value]), now_seconds=0.0)
            if place % 12 == 11:
                self.histories.advance(row)
        self.histories.advance(row)

    def blocks(self, end: int) -> SeriesBlocks:
        row = np.array([self.windows.row(TEMPERATURE)])
        newest = MONDAY // 300 + end - 1
        mean, median = self.histories.blocks(row, newest)
        numbers = np.zeros(mean.shape, np.int64)
        hours, nothing = self.histories.hours(row, newest), np.full(mean.shape, np.nan)
        hour, phase = divmod(newest + 1, self.histories.hour_blocks)
        by_hour = (hours, np.array([phase]), np.full(hours.shape, np.nan), np.array([hour - 1]))
        return SeriesBlocks(mean, median, nothing, numbers, numbers - 1, *by_hour, nothing)


def test_after_two_weeks_and_a_restart_from_a_snapshot_the_next_monday_is_no_drift() -> None:
    values, sunday = office(15), 13 * BLOCKS + 240
    before = Memory()
    before.write(0, values[:sunday])
    reader, after = StateReader(), Memory()
    for key, part in before.writer.save(before.windows.owned_by([0]), 1):
        reader.put(key, part)
    assert reader.restore(after.rows, 0, now_seconds=5.0).series == 1
    begin, alarms = 14 * BLOCKS + 72, AlarmState.quiet(1)
    after.write(sunday, values[sunday:begin])
    for end in range(begin, begin + 84):
        after.write(end, values[end : end + 1])
        found = evaluate(after.blocks(end + 1), TRAITS, calibration=shipped())
        passage = found.passage
        near = is_near(passage.probability, HORIZONS_SECONDS, passage.median_seconds, np.array([False]))
        alarms = alarms.step(passage.probability, found.beyond, near)
        assert not alarms.firing[0], (end - 14 * BLOCKS) / 12


def test_the_rhythm_is_that_of_a_day_after_one_day_and_of_a_week_after_eight() -> None:
    hours = np.full((3, 840), np.nan)
    hours[0, -20:] = hours[1, -49:] = 60.0
    hours[2, -200:] = 60.0
    assert rhythm(hours, 24) == [Rhythm.UNKNOWN, Rhythm.DAY, Rhythm.WEEK]
