"""Input of `kernelcast backtest`: forms of times, order of rows, and input that is refused."""

import csv
import gzip
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.support.predictor.backtests import START, backtest, lines, written

from kernelcast.cli.app import run
from kernelcast.predictor.backtest.output import time_text
from kernelcast.predictor.backtest.table import unix_seconds
from kernelcast.predictor.passage.trend import estimate


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_recording_without_a_whole_block_has_rows_and_no_probability(tmp_path: Path, count: int) -> None:
    found = backtest(tmp_path, written(tmp_path / "in.csv", lines(count)), "--threshold", "80")

    assert [(row["breach_probability"], row["alert"]) for row in found] == [("", "0")] * count


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("1700000000.25", "1700000060.25"),
        ("1700000000", "1700000060"),
        ("2023-11-14T23:13:20+01:00", "2023-11-14T23:14:20+01:00"),
        ("2023-11-14T22:13:20.500Z", "2023-11-14T22:14:20.500000Z"),
        ("2023-11-14 22:13:20.5", "2023-11-14 22:14:20.500000"),
        ("2023-11-14 23:13:20+01:00", "2023-11-14 23:14:20+01:00"),
    ],
)
def test_a_later_time_is_written_as_the_input_writes_its_own(text: str, later: str) -> None:
    assert time_text(unix_seconds(text) + 60, text) == later
    assert unix_seconds(later) == unix_seconds(text) + 60


def test_the_horizon_begins_after_the_newest_row_of_a_series_whose_rows_are_in_no_order(tmp_path: Path) -> None:
    ordered = lines(60)
    sorted_file, mixed_file = (
        written(tmp_path / name, rows)
        for name, rows in (("sorted.csv", ordered), ("mixed.csv", ordered[40:] + ordered[:40]))
    )
    sorted_rows = backtest(tmp_path, sorted_file, "--horizon", "3")
    mixed = backtest(tmp_path, mixed_file, "--horizon", "3")

    assert [int(row["timestamp"]) for row in mixed[-3:]] == [START + 60 * (60 + lead) for lead in range(3)]
    assert mixed[-3:] == sorted_rows[-3:]


@pytest.mark.parametrize(
    ("rows", "header", "problem"),
    [
        (["1700000000000,1"], "timestamp,value", "line 2: timestamp '1700000000000' is no"),
        (["1_700_000_000,1"], "timestamp,value", "line 2: timestamp '1_700_000_000' is no"),
        (["1700000000,1_0"], "timestamp,value", "line 2: value '1_0' is no number"),
        (["1,2,a,b"], "timestamp,value,host,host", "needs one column host"),
        (["1,2,a"], "timestamp,value,alert", "the label alert has the name of a column"),
        (['1,2,"a', 'b"', "3,x,c"], "timestamp,value,host", "line 4: value 'x' is no number"),
        (["1,2,a", '2,3,"b', "3,4,c"], "timestamp,value,host", "in.csv, line 4: unexpected end of data"),
        (["1,2,a", '2,3,"b"c', "3,4,c"], "timestamp,value,host", "in.csv, line 3: ',' expected after"),
        ([f"{1_700_000_000 + at / 3000:.6f},1" for at in range(9)], "timestamp,value", "less than a millisecond; give"),
    ],
)
def test_input_that_would_be_misread_or_lose_a_label_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[str], header: str, problem: str
) -> None:
    backtest(tmp_path, written(tmp_path / "in.csv", rows, header), code=2)

    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--threshold", text] for text in ("nan", "inf")),
        *([option, "999999d"] for option in ("--horizon", "--ahead")),
        *([option, "9" * 400 + "h"] for option in ("--ahead", "--season", "--for", "--interval", "--horizon")),
    ],
)
def test_numbers_without_a_meaning_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    backtest(tmp_path, written(tmp_path / "in.csv", lines(5)), *arguments, code=2)

    assert arguments[0] in capsys.readouterr().err


def test_no_input_is_replaced_by_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    companions = written(tmp_path / "companions.csv", [f"{START},x,1"], "timestamp,metric,value")
    path = written(tmp_path / "in.csv", lines(5))
    before = {one: one.read_text() for one in (path, companions)}

    for one in before:
        arguments = ["backtest", str(path), "--companions", str(companions), "--output", str(one)]
        assert run(arguments) == 2
        assert f"--output {one} is an input too" in capsys.readouterr().err
    assert {one: one.read_text() for one in before} == before


@pytest.mark.parametrize("name", [".", "missing/out.csv", "x" * 256, "pipe/out.csv"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("kernelcast.predictor.backtest.command.Backtest", None)
    output = tmp_path / name
    os.mkfifo(tmp_path / "pipe")

    assert run(["backtest", str(written(tmp_path / "in.csv", lines(5))), "--output", str(output)]) == 2
    assert f"--output {output} cannot be written" in capsys.readouterr().err


def test_an_output_may_be_a_pipe_or_a_link_or_have_a_long_name(tmp_path: Path) -> None:
    path = written(tmp_path / "in.csv", lines(5))
    expected = backtest(tmp_path, path)
    pipe, link, longest = tmp_path / "pipe", tmp_path / "link.csv", tmp_path / ("x" * 255)
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "target.csv")
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(pipe.read_text)
        for output in (pipe, link, longest):
            assert run(["backtest", str(path), "--output", str(output)]) == 0
        texts = [reading.result(), (tmp_path / "target.csv").read_text(), longest.read_text()]
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert [list(csv.DictReader(text.splitlines())) for text in texts] == [expected] * 3


def test_forecasts_after_the_year_9999_are_refused_and_leave_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"9999-12-31 23:{minute:02}:00,{minute % 3}" for minute in range(20, 55)]
    backtest(tmp_path, written(tmp_path / "in.csv", rows), "--horizon", "10m", code=2)
    assert "--horizon ends after the year 9999" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["in.csv"]


def test_a_companion_without_a_metric_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    companions = written(tmp_path / "companions.csv", [f"{START},,1"], "timestamp,metric,value")
    backtest(tmp_path, written(tmp_path / "in.csv", lines(5)), "--companions", companions, code=2)
    assert "companions.csv has rows with an empty metric" in capsys.readouterr().err


def test_near_quantiles_have_columns_of_their_own(tmp_path: Path) -> None:
    path = written(tmp_path / "in.csv", lines(120))
    found = backtest(tmp_path, path, "--quantiles", "0.2000001,0.2")
    assert {"q0.2000001", "q0.2"} <= set(found[-1])


def test_a_recording_of_hours_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seasonal naive forecast beside it needs a day; before that it is the last value."""
    backtest(tmp_path, written(tmp_path / "in.csv", lines(300)), "--report")
    found = capsys.readouterr().out.splitlines()
    assert next(line for line in found if line.startswith("rows scored")).split()[-1] != "0"


def test_only_rows_are_counted_as_abstained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(200)
    path = written(tmp_path / "in.csv", rows[:20] + rows[170:])
    found = backtest(tmp_path, path, "--threshold", "90", "--report")
    said = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("abstained")]
    assert sum(int(words[1]) for words in said) == sum(row["breach_probability"] == "" for row in found)


def test_a_limit_of_zero_beside_two_configurations_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, settings = written(tmp_path / "in.csv", lines(5)), tmp_path / "kernelcast.yaml"
    settings.write_text("predictor: {}\n")
    for arguments in (["--threshold", "0"], ["--ahead", "5m"]):
        backtest(tmp_path, path, "--compare", settings, settings, *arguments, "--metric", "x", code=2)
        assert f"{arguments[0]} has no meaning beside --compare" in capsys.readouterr().err


def test_the_report_says_what_came_of_probabilities_and_alerts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rise = np.maximum(np.arange(12 * 40) / 12 - 24, 0) * 2.0 + np.random.default_rng(3).normal(70, 0.7, 12 * 40)
    path = written(tmp_path / "in.csv", [f"{START + 300 * at},{value:.0f}" for at, value in enumerate(rise)])
    backtest(tmp_path, path, "--threshold", "87", "--metric", "DCGM_FI_DEV_GPU_TEMP", "--report")
    found = capsys.readouterr().out.splitlines()

    assert "alerts                 1: 1 right, 0 false, 0 undecided, precision 1.000" in found
    assert "false alarms           0.0000 a series-day" in found
    assert "abstained              17 rows: fewer than 18 blocks" in found
    assert any(line.startswith("breaches               1, 1 alerted before; median lead") for line in found)
    brier = next(line for line in found if line.startswith("Brier score"))
    assert float(brier.split("skill")[1].split()[0]) > 0.7
    assert any(line.startswith("said 0.95 to 1.00      mean 0.9") for line in found)


def test_a_trend_over_a_gap_has_no_slope() -> None:
    """No point of the line is known: the first known one, from which hinges are searched, is none."""
    values = np.random.default_rng(1).normal(1, 0.01, (2, 600))
    values[1, -96:] = np.nan
    trend = estimate(values, np.zeros(2, np.int64), resolution=np.zeros(2), settling=np.zeros(2, np.int64))

    assert trend.slope[1] == 0
    assert np.isinf(trend.error[1])


def test_a_probability_within_a_day_is_scored_by_the_breaches_within_a_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No probability reaches further than a day, whatever the horizon of the forecasts."""
    values = [*np.random.default_rng(5).normal(50, 1, 600), *[100.0] * 200]
    path = written(tmp_path / "in.csv", [f"{START + 300 * at},{value:.2f}" for at, value in enumerate(values)])
    reports = []
    for horizon in ("1d", "2d"):
        backtest(tmp_path, path, "--threshold", "80", "--horizon", horizon, "--report")
        reports.append([line for line in capsys.readouterr().out.splitlines() if line.startswith(("said", "Brier"))])

    assert reports[0]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("lasting", ["999999999", "999999999999w"])
def test_a_mean_over_more_than_the_recording_is_not_known(tmp_path: Path, lasting: str) -> None:
    path = written(tmp_path / "in.csv", lines(30))
    found = backtest(tmp_path, path, "--threshold", "40", "--for", lasting, "--report")
    assert {(row["breach_probability"], row["alert"]) for row in found} == {("", "0")}


def test_the_letters_of_rfc_3339_may_be_small(tmp_path: Path) -> None:
    path = written(tmp_path / "in.csv", [f"2023-11-14t22:{minute:02}:20z,1" for minute in range(30)])
    found = backtest(tmp_path, path, "--horizon", "1")

    assert [row["timestamp"] for row in found[-2:]] == ["2023-11-14t22:29:20z", "2023-11-14T22:30:20Z"]


@pytest.mark.parametrize("pack", [gzip.compress, lambda text: text.decode().encode("utf-16")])
def test_a_file_that_is_no_text_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(pack(b"timestamp,value\n1,2\n"))
    backtest(tmp_path, path, code=2)
    assert "in.csv is no UTF-8 text" in capsys.readouterr().err


def test_infinite_values_count_as_missing_and_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(200)
    for at, text in ((150, "+Inf"), (151, "-inf"), (152, "Infinity"), (153, "NaN")):
        rows[at] = rows[at].rsplit(",", 1)[0] + f",{text}"
    found = backtest(tmp_path, written(tmp_path / "in.csv", rows), "--threshold", "1000000")
    assert "3 of 200 values are infinite: they count as missing, and as no breach" in capsys.readouterr().err
    assert {row["alert"] for row in found} == {"0"}
