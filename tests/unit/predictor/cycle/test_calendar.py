"""Holidays and maintenance of the calendar are neither learnt nor alarmed."""

import csv
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.unit.predictor.conftest import START_SECONDS, Fleet, fast, kernel_subject

from kernelcast.cli.app import run
from kernelcast.predictor.cycle.predictions import Abstention
from kernelcast.predictor.explain import explain
from kernelcast.predictor.series.calendar import overlaps
from kernelcast.predictor.settings import CalendarSettings, PredictorSettings
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.findings import Finding

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


def hot_from(begin: int, end: int) -> Callable[[int], float]:
    rng = np.random.default_rng(5)
    return lambda second: (95.0 if begin <= second < end else 60.0) + float(rng.normal(0, 0.3))


def fast_from(begin: int, end: int) -> Callable[[int], float]:
    rng = np.random.default_rng(6)
    return lambda second: (0.5 if begin <= second < end else 1.0) * (1 + float(rng.normal(0, 0.01)))


MAINTENANCE, HOLIDAY, CHANGED_SECONDS = (300, 420), (100, 400), 480
LISTED = {"maintained": MAINTENANCE, "hot afterwards": MAINTENANCE, "holiday": HOLIDAY}
"""Hosts with a period in the calendar; `not listed` and `working` have none until it changes."""


class Site:
    """GPUs that are hot and kernels that are fast in a period, with and without an entry in the calendar.

    Attributes:
        fleet: After the run; the calendar changed in second `CHANGED_SECONDS`.
        baselines: Of the kernels by host, before this change.
    """

    def __init__(self) -> None:
        settings = fast()
        periods = tuple(period(*span, labels={"Hostname": host}) for host, span in LISTED.items())
        self.fleet = Fleet(settings.model_copy(update={"calendar": periods}))
        for host, end in (("maintained", 420), ("not listed", 420), ("hot afterwards", 600)):
            self.fleet.device(TEMPERATURE, hot_from(300, end), host=host)
            self.fleet.device(device.SLOWDOWN_TEMP.prometheus_name, lambda _second: 87.0, host=host)
        for host in ("holiday", "working"):
            self.fleet.add(kernel_subject("gemm", program=host, host=host), fast_from(*HOLIDAY))
        self.fleet.run(CHANGED_SECONDS)
        explained = explain(self.fleet.cycle, self.fleet.windows, "cuda_kernel_duration_seconds")
        self.baselines = {one["labels"]["Hostname"]: one["baseline"] for one in explained}
        self.fleet.cycle.change(settings.model_copy(update={"calendar": (period(300, 600),)}))
        self.fleet.run(20)

    def findings(self, host: str, begin: int, end: int) -> list[Finding]:
        """Findings of a host in the cycles of some seconds."""
        reports = self.fleet.reports[begin // 5 : end // 5]
        return [one for report in reports for one in report.candidates if dict(one.labels)["Hostname"] == host]

    def predicted(self, host: str) -> bool:
        """Whether a degradation of a host was published before the change."""
        found = (one for report in self.fleet.reports[: CHANGED_SECONDS // 5] for one in report.predictions)
        return any(one.degradation is not None and one.subject.label("Hostname") == host for one in found)


@pytest.fixture(scope="module")
def site() -> Site:
    return Site()


@pytest.mark.slow
@pytest.mark.parametrize("host", ["maintained", "not listed"])
def test_a_limit_that_is_passed_in_a_maintenance_is_no_finding(site: Site, host: str) -> None:
    assert bool(site.findings(host, 0, CHANGED_SECONDS)) is (host not in LISTED)
    assert site.predicted(host) is (host not in LISTED)
    assert not any(report.abstentions[Abstention.CALENDAR] for report in site.fleet.reports[: CHANGED_SECONDS // 5])


def test_a_limit_that_is_passed_after_a_maintenance_is_a_finding(site: Site) -> None:
    assert not site.findings("hot afterwards", 0, 420)
    assert site.findings("hot afterwards", 420, CHANGED_SECONDS)


def test_a_kernel_that_is_fast_in_a_holiday_keeps_its_baseline(site: Site) -> None:
    """Without the calendar, the blocks of the holiday would be the greater part of its history."""
    assert site.baselines["holiday"] == pytest.approx(1.0, rel=0.02)
    assert site.baselines["working"] is None or site.baselines["working"] < 0.9


def test_changed_periods_apply_with_the_next_cycle(site: Site) -> None:
    assert site.findings("hot afterwards", CHANGED_SECONDS - 5, CHANGED_SECONDS)
    assert not site.fleet.reports[-1].candidates
    (found,) = explain(site.fleet.cycle, site.fleet.windows, f'{TEMPERATURE}{{Hostname="hot afterwards"}}')
    assert found["decided"].startswith("abstains (calendar)")


@pytest.mark.slow
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


def test_settings_that_change_while_a_series_is_silent_stop_neither_cycles_nor_its_explanation() -> None:
    hosts = ("first", "second", "silent")
    own = {"labels": {"Hostname": "silent"}, "metric": TEMPERATURE, "horizons_seconds": (60.0,)}
    settings = PredictorSettings.model_validate(
        fast().model_dump()
        | {
            "calendar": [period(0, 10, labels={"Hostname": host}) for host in hosts],
            "publish": [{"metric": TEMPERATURE}],
            "limits": [own],
        }
    )
    fleet, noise = Fleet(settings), hot_from(0, 0)
    for host in hosts:
        fleet.device(device.SM_CLOCK.prometheus_name, noise, host=host)
    for host in hosts:
        fleet.device(TEMPERATURE, lambda second: noise(second) if second < 60 else np.nan, host=host)
    fleet.run(80)
    fleet.cycle.change(settings.model_copy(update={"calendar": settings.calendar[:1], "limits": ()}))
    fleet.run(10)
    (explained,) = explain(fleet.cycle, fleet.windows, f'{TEMPERATURE}{{Hostname="silent"}}')
    assert explained["cause_of_a_breach"] == "thermal"
    assert explained["history_blocks"] > 0
    assert explained["season"] == "unknown"
