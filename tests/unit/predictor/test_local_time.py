"""A site's clock and holidays: what earlier hours say about today, and which days alarm without them."""

import csv
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from kernelcast.cli.app import run as run_command
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.run import DetectorOptions, run
from kernelcast.predictor.passage.series import SeriesBlocks, Traits

DAY_BLOCKS = 288
BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 3, 16, tzinfo=UTC)
"""Two weeks before the Monday after the change to summer time."""
HOLIDAYS = frozenset(date(2026, 3, day) for day in range(17, 28))
TRAITS = Traits(
    limit=np.array([87.0]),
    baseline_ratio=np.array([np.nan]),
    below=np.array([False]),
    resolution=np.array([1.0]),
    settling_blocks=np.array([15]),
    reserves=np.array([False]),
)


def numbered(first: datetime, count: int) -> tuple[Floats, int]:
    """Hours with their distance from the first one as value, and the number of the last one."""
    return np.arange(float(count)), int(first.timestamp()) // 3600 + count - 1


def test_hours_before_a_change_to_summer_time_are_those_of_todays_clock() -> None:
    hours, last = numbered(datetime(2026, 3, 28, tzinfo=UTC), 48)
    found = LocalTime(BERLIN).usual_hours(hours[None], np.array([last]))[0]
    assert found[:24].tolist() == hours[1:25].tolist()
    assert np.isnan(found[24])
    assert found[25:].tolist() == hours[25:].tolist()


def test_of_an_hour_that_comes_twice_the_later_one_counts() -> None:
    hours, last = numbered(datetime(2026, 10, 24, tzinfo=UTC), 48)
    found = LocalTime(BERLIN).usual_hours(hours[None], np.array([last]))[0]
    assert np.isnan(found[0])
    assert found[1:25].tolist() == hours[:24].tolist()
    assert found[25:].tolist() == hours[25:].tolist()


def test_hours_of_a_holiday_say_nothing_about_other_days() -> None:
    hours, last = numbered(datetime(2026, 7, 1, tzinfo=UTC), 72)
    found = LocalTime(BERLIN, frozenset({date(2026, 7, 2)})).usual_hours(hours[None], np.array([last]))[0]
    assert np.flatnonzero(np.isnan(found)).tolist() == list(range(22, 46))


def test_without_settings_hours_are_those_of_utc() -> None:
    hours, last = numbered(datetime(2026, 3, 28, tzinfo=UTC), 48)
    assert LocalTime().usual_hours(hours[None], np.array([last])).tolist() == [hours.tolist()]


def temperature(busy: dict[date, int], until: datetime, *, faulty: date | None = None, rate: float = 0.0) -> Floats:
    """Temperature of days of work until 17 h by the clock of Berlin; a chassis takes an hour to warm up.

    Args:
        busy: Days of work, and the hour at which each begins; people come within two hours.
        until: End.
        faulty: Day on which the air at the inlet gets warmer from 11 h on.
        rate: By how many degrees an hour.
    """
    rng = np.random.default_rng(8)
    now, warm = 0.0, []
    for place in range(int((until - MONDAY).total_seconds()) // 300):
        time = datetime.fromtimestamp(MONDAY.timestamp() + 300 * place, BERLIN)
        hour = time.hour + time.minute / 60
        load = float(np.clip((hour - busy.get(time.date(), 24)) / 2, 0, 1) * (hour < 17))
        now += (load - now) / 12
        late = max(hour - 11, 0.0) if time.date() == faulty else 0.0
        warm.append(45 + 39 * (0.7 * load + 0.3 * now) + rate * late + rng.normal(0, 0.3))
    return np.round(np.array(warm), 1)


def fires(values: Floats, day: date, local_time: LocalTime) -> bool:
    """Whether the alert fires on a day, without a limit that is passed."""
    numbers, first = np.zeros((1, len(values)), np.int64), int(MONDAY.timestamp()) // 300
    nothing, whole = np.full((1, len(values)), np.nan), np.array([True])
    blocks = SeriesBlocks.of(values[None], values[None], nothing, numbers, numbers - 1, averaged=whole, first=first)
    begin = (day - MONDAY.date()).days * DAY_BLOCKS
    ends = range(begin + 60, min(begin + 240, len(values)) + 1)
    options = DetectorOptions(calibration=shipped(), local_time=local_time)
    moments = run(blocks, TRAITS, options, ends=ends, alarms=AlarmState.quiet(1))
    return any(bool(moment.alarms.firing[0] and not moment.found.beyond[0]) for moment in moments)


WORKED = {MONDAY.date(): 8, date(2026, 3, 30): 7}
"""The Mondays before the holidays and after them: people come an hour earlier, and the clock has changed."""
BACK = date(2026, 3, 30)
"""The second one."""


def test_the_morning_after_holidays_and_a_change_of_the_clock_is_no_drift_where_both_are_set() -> None:
    values = temperature(WORKED, datetime(2026, 3, 30, 12, tzinfo=UTC))
    assert fires(values, BACK, LocalTime())
    assert not fires(values, BACK, LocalTime(BERLIN, HOLIDAYS))


def test_a_drift_on_that_day_is_found() -> None:
    values = temperature(WORKED, datetime(2026, 3, 30, 14, tzinfo=UTC), faulty=BACK, rate=1.5)
    assert fires(values, BACK, LocalTime(BERLIN, HOLIDAYS))


def test_the_evening_of_a_quiet_weekday_is_no_rise_against_busy_ones() -> None:
    busy = {date(2026, 3, day): 8 for day in (16, 17, 18)}
    quiet = date(2026, 3, 19)
    assert not fires(temperature(busy, datetime(2026, 3, 20, tzinfo=UTC)), quiet, LocalTime())
    faulty = temperature(busy, datetime(2026, 3, 20, tzinfo=UTC), faulty=quiet, rate=6.0)
    assert fires(np.minimum(faulty, 86.9), quiet, LocalTime())


def test_a_busy_saturday_is_no_drift() -> None:
    busy = {date(2026, 3, day): 8 for day in (16, 17, 18, 19, 20, 21)}
    assert not fires(temperature(busy, datetime(2026, 3, 22, tzinfo=UTC)), date(2026, 3, 21), LocalTime())


@pytest.mark.slow
def test_the_backtest_applies_the_time_zone_and_the_holidays_of_a_settings_file(tmp_path: Path) -> None:
    values = temperature(WORKED, datetime(2026, 3, 30, 12, tzinfo=UTC))
    rows = [f"{MONDAY.timestamp() + 300 * place:.0f},{value}" for place, value in enumerate(values.tolist())]
    (tmp_path / "in.csv").write_text("\n".join(["timestamp,value", *rows]) + "\n")
    days = ", ".join(map(str, sorted(HOLIDAYS)))
    (tmp_path / "site.yaml").write_text(f"predictor:\n  time_zone: Europe/Berlin\n  holidays: [{days}]\n")
    (tmp_path / "none.yaml").write_text("predictor: {}\n")
    alerts = {}
    for name in ("site", "none"):
        output = tmp_path / f"{name}.csv"
        given = ["--metric", "DCGM_FI_DEV_GPU_TEMP", "--threshold", "87", "--calendar", str(tmp_path / f"{name}.yaml")]
        assert run_command(["backtest", str(tmp_path / "in.csv"), "--output", str(output), *given]) == 0
        found = list(csv.DictReader(output.read_text().splitlines()))
        alerts[name] = {row["alert"] for row in found[-DAY_BLOCKS // 2 :]}
    assert alerts == {"site": {"0"}, "none": {"0", "1"}}
