"""Holidays and maintenance of the calendar are neither learnt nor alarmed."""

import csv
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.unit.predictor.conftest import START_SECONDS, Fleet, kernel_subject

from kernelcast.cli.app import run
from kernelcast.predictor.cycle.predictions import Abstention
from kernelcast.predictor.explain import explain
from kernelcast.predictor.series.calendar import overlaps
from kernelcast.predictor.settings import CalendarSettings, PredictorSettings
from kernelcast.wire.catalogue.devices import device

HOUR_NS = 3600 * 1_000_000_000
START = datetime.fromtimestamp(START_SECONDS, UTC)
TEMPERATURE = device.GPU_TEMP.prometheus_name


def period(begin: int, end: int, **others: object) -> CalendarSettings:
    """Seconds after the start."""
    fields = {"begin": START + timedelta(seconds=begin), "end": START + timedelta(seconds=end), **others}
    return CalendarSettings.model_validate(fields)


def overlapped(one: CalendarSettings, hours: Sequence[float]) -> list[bool]:
    begin_ns = np.array([START_SECONDS * 1_000_000_000 + round(hour * HOUR_NS) for hour in hours])
    return [bool(each) for each in overlaps([one], begin_ns, HOUR_NS)]


def test_a_period_overlaps_every_span_that_reaches_into_it() -> None:
    assert overlapped(period(7200, 10_800), [0, 1, 1.5, 2, 2.5, 3]) == [False, False, True, True, True, False]


def test_a_period_recurs_after_its_first_begin_and_not_before() -> None:
    weekly = period(0, 3600, every_seconds=7 * 86_400)
    week = 7 * 24.0

    assert overlapped(weekly, [-week, 0, week - 1, week - 0.5, week + 0.5, 3 * week]) == [
        False,
        True,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(("begin", "end", "every"), [(0, 0, None), (60, 0, None), (0, 7200, 3600)])
def test_a_period_has_a_length_and_ends_before_it_recurs(begin: int, end: int, every: float | None) -> None:
    with pytest.raises(ValueError, match="it must last a second at least"):
        period(begin, end, every_seconds=every)


def of_calendar(settings: PredictorSettings, *periods: CalendarSettings) -> Fleet:
    return Fleet(settings.model_copy(update={"calendar": periods}))


def hot_from(begin: int, end: int) -> Callable[[int], float]:
    rng = np.random.default_rng(5)
    return lambda second: (95.0 if begin <= second < end else 60.0) + float(rng.normal(0, 0.3))


@pytest.mark.parametrize("host", ["n1", "n2"])
def test_a_limit_that_is_passed_in_a_maintenance_is_no_finding(fast_settings: PredictorSettings, host: str) -> None:
    listed = host == "n1"
    fleet = of_calendar(fast_settings, period(300, 420, labels={"Hostname": host}))
    fleet.device(TEMPERATURE, hot_from(300, 420))
    fleet.device(device.SLOWDOWN_TEMP.prometheus_name, lambda _second: 87.0)
    reports = fleet.run(420)

    assert any(report.findings for report in reports) is not listed
    assert (Abstention.CALENDAR in fleet.abstentions()) is False or listed
    assert any(one.degradation for report in reports for one in report.predictions) is not listed


def test_a_limit_that_is_passed_after_a_maintenance_is_a_finding(fast_settings: PredictorSettings) -> None:
    fleet = of_calendar(fast_settings, period(300, 420))
    fleet.device(TEMPERATURE, hot_from(300, 600))
    fleet.device(device.SLOWDOWN_TEMP.prometheus_name, lambda _second: 87.0)
    fleet.run(420)
    assert not any(report.findings for report in fleet.reports)

    after = fleet.run(60)
    assert any(report.findings for report in after)


def test_a_kernel_that_is_fast_in_a_holiday_keeps_its_baseline(fast_settings: PredictorSettings) -> None:
    """Without the calendar, the blocks of the holiday would be the greater part of its history."""
    rng = np.random.default_rng(6)

    def duration(second: int) -> float:
        return (0.5 if 100 <= second < 600 else 1.0) * (1 + float(rng.normal(0, 0.01)))

    baselines = []
    for periods in ((), (period(100, 600),)):
        fleet = of_calendar(fast_settings, *periods)
        fleet.add(kernel_subject("gemm"), duration)
        fleet.run(700)
        explained = explain(fleet.cycle, fleet.windows, "cuda_kernel_duration_seconds")
        baselines.append(explained[0]["baseline"])

    assert baselines[1] == pytest.approx(1.0, rel=0.02)
    assert baselines[0] is None or baselines[0] < 0.9


def test_changed_periods_apply_with_the_next_cycle(fast_settings: PredictorSettings) -> None:
    fleet = of_calendar(fast_settings)
    fleet.device(TEMPERATURE, hot_from(300, 600))
    fleet.device(device.SLOWDOWN_TEMP.prometheus_name, lambda _second: 87.0)
    fleet.run(400)
    assert fleet.reports[-1].findings

    fleet.cycle.change(fast_settings.model_copy(update={"calendar": (period(300, 600),)}))
    assert not fleet.run(20)[-1].findings
    found = explain(fleet.cycle, fleet.windows, TEMPERATURE)
    assert found[0]["decided"].startswith("abstains (calendar)")


def test_the_backtest_neither_alarms_in_a_period_nor_learns_it(tmp_path: Path) -> None:
    hot = {"a": range(600, 700), "b": range(600, 700)}
    rng = np.random.default_rng(1)
    rows = [
        f"{START_SECONDS + 300 * at},{95 if at in hot[host] else rng.normal(60, 1):.2f},{host}"
        for host in hot
        for at in range(900)
    ]
    (tmp_path / "in.csv").write_text("\n".join(["timestamp,value,Hostname", *rows]) + "\n")
    begin, end = (START + timedelta(seconds=300 * at) for at in (600, 700))
    entry = f"begin: {begin:%Y-%m-%dT%H:%M:%SZ}, end: {end:%Y-%m-%d %H:%M:%S}, labels: {{Hostname: a}}"
    (tmp_path / "kernelcast.yaml").write_text(f"predictor:\n  calendar:\n    - {{{entry}}}\n")
    output = tmp_path / "out.csv"
    arguments = ["--output", str(output), "--threshold", "87", "--calendar", str(tmp_path / "kernelcast.yaml")]
    assert run(["backtest", str(tmp_path / "in.csv"), *arguments]) == 0
    found = list(csv.DictReader(output.read_text().splitlines()))

    quiet, loud = ([row for row in found if row["Hostname"] == host] for host in hot)
    assert len(found) == len(rows)
    assert [row["value"] for row in quiet[600:700]] == ["95.00"] * 100
    assert {(row["alert"], row["anomaly_score"], row["breach_probability"]) for row in quiet[600:700]} == {
        ("0", "0", "")
    }
    assert {row["alert"] for row in quiet} == {"0"}
    assert {row["alert"] for row in loud[606:700]} == {"1"}
    assert float(quiet[700]["upper"]) < 70 < float(loud[700]["upper"])


def test_a_calendar_that_is_no_settings_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_text("timestamp,value\n1,2\n")
    wrong = tmp_path / "kernelcast.yaml"
    wrong.write_text("predictor: {calendar: [{begin: yesterday, end: 2026-12-24}]}\n")
    arguments = ["backtest", str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv"), "--calendar", str(wrong)]

    assert run(arguments) == 2
    assert f"--calendar {wrong}: predictor.calendar" in capsys.readouterr().err
