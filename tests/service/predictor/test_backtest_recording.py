"""Input of `kernelcast backtest` from a Prometheus."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_double import answer_with, server

from kernelcast.cli.app import run

pytestmark = pytest.mark.service

START = 1_700_000_000


def answer(*found: tuple[dict[str, str], list[tuple[float, str]]]) -> bytes:
    result: list[Any] = [{"metric": labels, "values": values} for labels, values in found]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def backtest(url: str, output: Path, *arguments: str, code: int = 0) -> list[dict[str, str]]:
    assert run(["backtest", "--prometheus", url, "--query", "x", "--output", str(output), *arguments]) == code
    return list(csv.DictReader(output.read_text().splitlines())) if code == 0 else []


def test_points_of_a_range_are_rows_with_their_labels(tmp_path: Path) -> None:
    body = answer(
        ({"gpu": "0"}, [(START, "71"), (START + 60, "71.25"), (START + 180, "NaN")]),
        ({"host": "b"}, [(START + 60, "1e-9")]),
    )
    with server(answer_with(200, body)) as url:
        found = backtest(url, tmp_path / "out.csv", "--start", "2023-11-14T22:13:20Z", "--end", str(START + 180))

    assert [(row["timestamp"], row["gpu"], row["host"], row["value"]) for row in found] == [
        ("2023-11-14T22:13:20Z", "0", "", "71"),
        ("2023-11-14T22:14:20Z", "0", "", "71.25"),
        ("2023-11-14T22:16:20Z", "0", "", ""),
        ("2023-11-14T22:14:20Z", "", "b", "1e-09"),
    ]
    assert list(found[0])[:5] == ["timestamp", "gpu", "host", "value", "anomaly_score"]


def test_the_step_is_the_interval_although_most_points_are_absent(tmp_path: Path) -> None:
    body = answer(({}, [(START + 600 * at, "1") for at in range(5)]))
    with server(answer_with(200, body)) as url:
        found = backtest(url, tmp_path / "out.csv", "--start", str(START), "--step", "5m", "--horizon", "1")

    assert found[-1]["timestamp"] == str(START + 2400 + 300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prometheus", "http://127.0.0.1:9"], "--prometheus needs --query and --start beside it"),
        (["--query", "up"], "--query needs --prometheus and --start beside it"),
        ([], "there is no input; give files, or --prometheus URL"),
        (
            ["--prometheus", "http://127.0.0.1:9", "--query", "up", "--start", "yesterday"],
            "--start is 'yesterday'; write YYYY-MM-DD",
        ),
        (
            ["--prometheus", "http://127.0.0.1:9", "--query", "up", "--start", "1", "--step", "5"],
            "--step is '5'; write it with a unit",
        ),
        (["--prometheus", "prom:9090", "--query", "up", "--start", "1", "--end", "2"], "write it as http://HOST:PORT"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["backtest", *arguments, "--output", str(tmp_path / "out.csv")]) == 2
    assert message in capsys.readouterr().err


def test_files_and_a_prometheus_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = tmp_path / "in.csv"
    recorded.write_text("timestamp,value\n1,2\n")
    assert run(["backtest", str(recorded), "--query", "up", "--output", str(tmp_path / "out.csv")]) == 2
    assert "are both given; choose files or a Prometheus" in capsys.readouterr().err


def test_a_query_without_values_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(answer_with(200, answer())) as url:
        backtest(url, tmp_path / "out.csv", "--start", "1700000000", "--end", "1700000060", code=2)
    assert "--query x has no values between 1700000000 and 1700000060" in capsys.readouterr().err


def test_a_label_that_is_a_column_of_the_output_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(answer_with(200, answer(({"value": "high"}, [(START, "1")])))) as url:
        backtest(url, tmp_path / "out.csv", "--start", str(START), code=2)
    assert "the label value, which is a column of the output" in capsys.readouterr().err


def test_a_refused_query_ends_with_prometheus_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"status": "error", "error": "parse error: unexpected end of input"}).encode()
    with server(answer_with(400, body)) as url:
        backtest(url, tmp_path / "out.csv", "--start", str(START), code=1)
    assert "status 400: parse error: unexpected end of input" in capsys.readouterr().err


def test_an_output_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("timestamp,value,host\n1700000000,1,nœud\n", encoding="utf-8")
    command = [sys.executable, "-X", "utf8=0", "-m", "kernelcast.cli", "backtest", str(path)]
    environ = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([*command, "--output", str(tmp_path / "out.csv")], check=True, env=environ)
    assert "nœud" in (tmp_path / "out.csv").read_text(encoding="utf-8")
