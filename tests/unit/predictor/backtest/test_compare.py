"""`kernelcast backtest --compare OLD.yaml NEW.yaml`: alerts gained, lost, earlier or later."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kernelcast.cli.app import run
from kernelcast.predictor.backtest.compare import AlertChange, Episode, matched
from kernelcast.predictor.backtest.output import time_text

START = 1_700_000_000
HOUR = 3600
METRIC = "DCGM_FI_DEV_GPU_TEMP"
DATE = "2023-11-14T22:13:20Z"


def settings(path: Path, text: str) -> Path:
    path.write_text(f"predictor:\n{text}")
    return path


def thresholds(path: Path, limit: float, metric: str = METRIC) -> Path:
    return settings(path, f"  judge: {{thresholds: {{{metric}: {limit}}}}}\n")


def recording(path: Path, interval_seconds: int = 300, /, **temperatures: Sequence[float]) -> Path:
    """A value every five minutes, or at another interval, by host."""
    rows = [
        f"{START + interval_seconds * at},{value:.1f},{host}"
        for host, found in temperatures.items()
        for at, value in enumerate(found)
    ]
    path.write_text("\n".join(["timestamp,value,host", *rows]) + "\n")
    return path


def plateau(base: float, top: float, begin: int = 300, length: int = 60) -> list[float]:
    values = base + np.random.default_rng(5).normal(0, 0.3, begin + length + 24)
    values[begin : begin + length] += top - base
    return [float(value) for value in values]


def ramp(slope_an_hour: float, hours: int = 36) -> list[float]:
    noise = np.random.default_rng(3).normal(70, 0.7, 12 * hours)
    return [float(value) for value in noise + np.maximum(np.arange(12 * hours) / 12 - 24, 0) * slope_an_hour]


def compare(tmp_path: Path, old: Path, new: Path, *arguments: str | Path, code: int = 0) -> list[dict[str, str]]:
    output = tmp_path / "changes.csv"
    assert run(["backtest", "--compare", str(old), str(new), *map(str, arguments), "--output", str(output)]) == code
    return list(csv.DictReader(output.read_text().splitlines())) if code == 0 else []


@pytest.mark.slow
def test_a_higher_threshold_loses_the_alert_below_it_and_delays_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.csv", warm=plateau(70, 88), cool=plateau(60, 61), rising=ramp(0.7, 50))
    old, new = thresholds(tmp_path / "old.yaml", 85), thresholds(tmp_path / "new.yaml", 92)
    found = compare(tmp_path, old, new, path, "--metric", METRIC)

    (lost,) = [row for row in found if row["host"] == "warm"]
    assert lost["change"] == "lost"
    assert START + 300 * 300 <= int(lost["old_begin"]) <= START + 300 * 303
    assert lost["new_begin"] == lost["new_end"] == lost["shift_seconds"] == ""
    moved = [row for row in found if row["host"] == "rising"]
    assert {row["change"] for row in moved} == {"later"}
    assert int(moved[0]["new_begin"]) - int(moved[0]["old_begin"]) == float(moved[0]["shift_seconds"]) > HOUR
    assert len(moved) + len([lost]) == len(found)
    counts = f"0 gained, 1 lost, 0 earlier, {len(moved)} later, 0 same"
    assert capsys.readouterr().out.splitlines()[-1] == counts


def test_times_are_written_as_the_file_of_the_series_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = recording(tmp_path / "seconds.csv", first=plateau(70, 88))
    dates = recording(tmp_path / "dates.csv", second=plateau(70, 88))
    header, *rows = dates.read_text().splitlines()
    cells = [row.split(",", 1) for row in rows]
    dates.write_text("\n".join([header, *(f"{time_text(float(time), DATE)},{rest}" for time, rest in cells)]))
    old, new = thresholds(tmp_path / "old.yaml", 85), thresholds(tmp_path / "new.yaml", 92)
    first, second = compare(tmp_path, old, new, seconds, dates, "--metric", METRIC)

    begin, end = (time_text(float(first[name]), DATE) for name in ("old_begin", "old_end"))
    assert (second["old_begin"], second["old_end"]) == (begin, end)
    assert f'lost {{host="second"}} {begin} until {end}' in capsys.readouterr().out


@pytest.mark.slow
def test_the_other_way_round_the_alerts_are_gained_and_earlier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.csv", warm=plateau(70, 88), rising=ramp(0.7, 50))
    old, new = thresholds(tmp_path / "old.yaml", 92), thresholds(tmp_path / "new.yaml", 85)
    found = compare(tmp_path, old, new, path, "--metric", METRIC)

    assert {(row["host"], row["change"]) for row in found} == {("warm", "gained"), ("rising", "earlier")}
    out = capsys.readouterr().out
    assert 'gained {host="warm"}' in out
    assert 'earlier {host="rising"} by ' in out


@pytest.mark.slow
def test_a_configuration_compared_with_itself_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.csv", warm=plateau(70, 88))
    same = thresholds(tmp_path / "same.yaml", 85)

    assert compare(tmp_path, same, same, path, "--metric", METRIC) == []
    assert capsys.readouterr().out == "0 gained, 0 lost, 0 earlier, 0 later, 1 same\n"


@pytest.mark.slow
def test_shorter_horizons_delay_an_alert(tmp_path: Path) -> None:
    path = recording(tmp_path / "in.csv", rising=ramp(2.0))
    old = thresholds(tmp_path / "old.yaml", 87)
    new = settings(tmp_path / "new.yaml", f"  horizons_seconds: [300]\n  judge: {{thresholds: {{{METRIC}: 87}}}}\n")
    (found,) = compare(tmp_path, old, new, path, "--metric", METRIC)

    assert found["change"] == "later"
    assert float(found["shift_seconds"]) > 2 * HOUR


@pytest.mark.slow
def test_the_ratio_of_a_slow_kernel_is_that_of_each_configuration(tmp_path: Path) -> None:
    path = recording(tmp_path / "in.csv", a=plateau(100, 130))
    old = settings(tmp_path / "old.yaml", "  judge: {kernel_slowdown_ratio: 0.2}\n")
    new = settings(tmp_path / "new.yaml", "  judge: {kernel_slowdown_ratio: 0.5}\n")
    (found,) = compare(tmp_path, old, new, path, "--metric", "cuda_kernel_duration_seconds")

    assert found["change"] == "lost"


@pytest.mark.slow
def test_a_metric_of_the_users_own_needs_a_threshold_alone(tmp_path: Path) -> None:
    path = recording(tmp_path / "in.csv", a=plateau(70, 88))
    old, new = (thresholds(tmp_path / f"{limit}.yaml", limit, "queue_length") for limit in (200, 80))

    assert [row["change"] for row in compare(tmp_path, old, new, path, "--metric", "queue_length")] == ["gained"]


def test_horizons_beyond_those_of_short_blocks_count_as_the_longest_one(tmp_path: Path) -> None:
    path = recording(tmp_path / "in.csv", 60, rising=ramp(0.7, 50))
    new = settings(tmp_path / "new.yaml", f"  horizons_seconds: [43200]\n  judge: {{thresholds: {{{METRIC}: 85}}}}\n")
    old = thresholds(tmp_path / "old.yaml", 200)
    found = compare(tmp_path, old, new, path, "--metric", METRIC, "--for", "1m")

    # The limit is passed in the 46th hour, of which each has 12 minutes here.
    first = min(int(row["new_begin"]) for row in found)
    assert {row["change"] for row in found} == {"gained"}
    assert START + 24 * 720 < first < START + 45 * 720


def test_differences_that_a_backtest_does_not_apply_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.csv", a=plateau(70, 70)[:40])
    old = thresholds(tmp_path / "old.yaml", 85)
    new = settings(
        tmp_path / "new.yaml",
        f"  group_id: other\n  judge: {{memory_full_ratio: 0.9, thresholds: {{{METRIC}: 85}}}}\n",
    )
    compare(tmp_path, old, new, path, "--metric", METRIC)

    assert capsys.readouterr().err == "predictor.judge.memory_full_ratio differs; a backtest does not apply it\n"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("  judge: {threshold: 1}\n", ["--metric", METRIC], "old.yaml: predictor.judge.threshold"),
        ("  judge: {}\n", ["--metric", METRIC], f"no limit; write predictor.judge.thresholds.{METRIC} into it"),
        ("  horizons_seconds: [200000]\n", ["--metric", METRIC], "an alert looks ahead at most 86400 s"),
        ("  judge: {}\n", [], "--compare needs --metric NAME"),
        ("  judge: {}\n", ["--metric", METRIC, "--report"], "--report has no meaning beside --compare"),
        ("  judge: {}\n", ["--metric", METRIC, "--threshold", "80"], "limits come from the two settings files"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], message: str
) -> None:
    path = recording(tmp_path / "in.csv", a=plateau(70, 70)[:40])
    old = settings(tmp_path / "old.yaml", text)
    compare(tmp_path, old, old, path, *arguments, code=2)

    assert message in capsys.readouterr().err


def test_a_settings_file_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path / "in.csv", a=plateau(70, 70)[:40])
    present = thresholds(tmp_path / "new.yaml", 85)
    compare(tmp_path, tmp_path / "old.yaml", present, path, "--metric", METRIC, code=2)

    assert "old.yaml" in capsys.readouterr().err


def test_episodes_that_overlap_are_one_alert() -> None:
    old = [Episode(0, 10), Episode(20, 30), Episode(50, 60)]
    new = [Episode(5, 25), Episode(60, 70), Episode(80, 90)]

    assert [(one.change, one.old, one.new) for one in matched((0, ()), old, new)] == [
        (AlertChange.LATER, Episode(0, 30), Episode(5, 25)),
        (AlertChange.LOST, Episode(50, 60), None),
        (AlertChange.GAINED, None, Episode(60, 70)),
        (AlertChange.GAINED, None, Episode(80, 90)),
    ]


@pytest.mark.parametrize("lasting", ["1m", "10m"])
def test_default_horizons_alert_as_the_same_ones_written_out(tmp_path: Path, lasting: str) -> None:
    path = recording(tmp_path / "in.csv", 60, rising=ramp(1.2, 48))
    limit = f"  judge: {{thresholds: {{{METRIC}: 87}}}}\n"
    old = settings(tmp_path / "old.yaml", limit)
    new = settings(tmp_path / "new.yaml", f"  horizons_seconds: [300, 900, 3600, 14400, 86400]\n{limit}")
    assert compare(tmp_path, old, new, path, "--metric", METRIC, "--for", lasting) == []
