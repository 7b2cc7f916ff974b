"""Input, output and errors of `kernelcast backtest`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.predictor.backtests import START, backtest, lines, written

from kernelcast.predictor.backtest.companions import Companion, Companions
from kernelcast.predictor.backtest.durations import parse_duration
from kernelcast.predictor.backtest.grid import GridOptions, batches, inferred_interval
from kernelcast.predictor.backtest.output import time_text
from kernelcast.predictor.backtest.table import read, unix_seconds
from kernelcast.predictor.forecasting.combination import LeadForecast, forecast
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.path import forecast_path, own_leads
from kernelcast.wire.errors import ConfigurationError

NAMES = [
    "anomaly_score",
    "anomaly_onset",
    "mean",
    "lower",
    "upper",
    "breach_probability",
    "seconds_to_threshold",
    "alert",
    "cause",
]


def test_every_row_comes_back_in_order_with_its_own_text(tmp_path: Path) -> None:
    rows = ["1700000060,1.50", "1700000000,2", "1700000060,7e0", "1700000180,", "1700000240,3"]
    found = backtest(tmp_path, written(tmp_path / "in.csv", rows), "--interval", "60s")

    assert [f"{row['timestamp']},{row['value']}" for row in found] == rows
    assert list(found[0]) == ["timestamp", "value", *NAMES]


def test_rows_of_several_series_and_files_keep_their_labels(tmp_path: Path) -> None:
    mixed = [
        f"{host},{line}"
        for pair in zip(lines(40), lines(40, seed=2), strict=True)
        for host, line in zip("ab", pair, strict=True)
    ]
    first = written(tmp_path / "first.csv", mixed, "host,timestamp,value")
    second = written(tmp_path / "second.csv", lines(40))
    found = backtest(tmp_path, first, second)
    alone = backtest(tmp_path, written(tmp_path / "alone.csv", lines(40)))

    assert [row["host"] for row in found] == ["a", "b"] * 40 + [""] * 40
    assert [row["mean"] for row in found if row["host"] == "a"] == [row["mean"] for row in alone]
    assert [row["upper"] for row in found[80:]] == [row["upper"] for row in alone]


def test_a_row_is_judged_from_the_rows_before_it_alone(tmp_path: Path) -> None:
    whole = backtest(tmp_path, written(tmp_path / "whole.csv", lines(300)))
    part = backtest(tmp_path, written(tmp_path / "part.csv", lines(200)))

    assert whole[:200] == part


def test_a_forecast_further_ahead_is_an_earlier_one(tmp_path: Path) -> None:
    changed = lines(100)
    changed[90] = changed[90].partition(",")[0] + ",99999"
    found = [backtest(tmp_path, written(tmp_path / "in.csv", rows), "--ahead", "5m") for rows in (lines(100), changed)]

    same = [
        before["mean"] == after["mean"] and before["upper"] == after["upper"]
        for before, after in zip(*found, strict=True)
    ]
    assert all(same[:95])


def test_the_horizon_follows_the_last_row_of_each_series(tmp_path: Path) -> None:
    path = written(
        tmp_path / "in.csv", [f"{line},{host}" for host in "ab" for line in lines(60)], "timestamp,value,host"
    )
    found = backtest(tmp_path, path, "--horizon", "3", "--quantiles", "0.1,0.9")

    after = [row for row in found if not row["value"]]
    assert [(row["host"], int(row["timestamp"])) for row in after] == [
        (host, START + 60 * (60 + lead)) for host in "ab" for lead in range(3)
    ]
    assert [row["host"] for row in found] == ["a"] * 63 + ["b"] * 63
    for row in after:
        bounds = [float(row[name]) for name in ("lower", "q0.1", "mean", "q0.9", "upper")]
        assert bounds == sorted(bounds)


def test_intervals_cover_what_they_say(tmp_path: Path) -> None:
    found = backtest(tmp_path, written(tmp_path / "in.csv", lines(2000)))
    later = [row for row in found[200:] if row["lower"]]

    share = np.mean([float(row["lower"]) <= float(row["value"]) <= float(row["upper"]) for row in later])
    assert len(later) == 1800
    assert 0.92 < share < 0.97


def rising(hours: int, slope_an_hour: float) -> list[str]:
    """A temperature in whole degrees, every five minutes, that rises after a day."""
    noise = np.random.default_rng(3).normal(70, 0.7, 12 * hours)
    drift = np.maximum(np.arange(12 * hours) / 12 - 24, 0) * slope_an_hour
    return [f"{START + 300 * index},{value:.0f}" for index, value in enumerate(noise + drift)]


def test_a_rise_is_announced_hours_before_it_reaches_the_threshold_with_its_cause(tmp_path: Path) -> None:
    path = written(tmp_path / "in.csv", rising(36, 2.0))
    found = backtest(tmp_path, path, "--threshold", "87", "--metric", "DCGM_FI_DEV_GPU_TEMP")
    alert = [row["alert"] for row in found]

    first, passed = alert.index("1"), 12 * 24 + int(12 * 17 / 2)
    assert 12 * 24 < first < passed - 12 * 2
    assert all(row["alert"] == "0" for row in found[:first])
    assert {row["cause"] for row in found if row["alert"] == "1"} == {"thermal"}
    assert all(row["breach_probability"] == "1" and row["seconds_to_threshold"] == "0" for row in found[passed + 12 :])
    later = [float(row["seconds_to_threshold"]) for row in found[first : passed - 12] if row["seconds_to_threshold"]]
    assert later[0] > later[-1]


def test_a_steady_series_below_its_threshold_has_no_alert(tmp_path: Path) -> None:
    found = backtest(tmp_path, written(tmp_path / "in.csv", rising(36, 0.0)), "--threshold", "87")

    assert {row["alert"] for row in found} == {"0"}
    assert all(float(row["breach_probability"] or 0) < 0.05 for row in found)


def test_a_day_ahead_is_said_nothing_before_a_day_is_known_as_by_the_live_predictor(tmp_path: Path) -> None:
    path = written(tmp_path / "in.csv", rising(30, 0.0))
    found = backtest(tmp_path, path, "--threshold", "73", "--horizon", "1d", "--report")
    near = backtest(tmp_path, path, "--threshold", "73")

    assert {row["breach_probability"] for row in found[: 24 * 12 - 1]} == {""}
    assert all(row["breach_probability"] for row in found[24 * 12 - 1 : 30 * 12])
    assert all(row["breach_probability"] for row in near[18:])
    times = [float(row["seconds_to_threshold"] or 0) for row in near]
    assert max(times[: 24 * 12 - 1]) <= 4 * 3600 < max(times)


def test_a_steep_rise_has_a_probability_for_eight_times_its_history_at_most(tmp_path: Path) -> None:
    values = 40 + np.arange(60) / 12 * 4 + np.random.default_rng(3).normal(0, 0.3, 60)
    rows = [f"{START + 300 * index},{value:.0f}" for index, value in enumerate(values)]
    options = ("--threshold", "150", "--metric", "DCGM_FI_DEV_GPU_TEMP", "--horizon", "1d")
    found = backtest(tmp_path, written(tmp_path / "in.csv", rows), *options)

    assert {row["breach_probability"] for row in found[:35]} == {""}
    assert all(row["breach_probability"] for row in found[35:60])


def test_a_day_ahead_is_said_nothing_until_a_day_after_a_gap_of_more_than_two(tmp_path: Path) -> None:
    rows = rising(30, 0.0)
    later = [f"{START + 86_400 * 4 + 300 * index},{row.partition(',')[2]}" for index, row in enumerate(rows)]
    path = written(tmp_path / "in.csv", rows + later)
    found = backtest(tmp_path, path, "--threshold", "73", "--horizon", "1d")[len(rows) :]

    assert {row["breach_probability"] for row in found[: 24 * 12 - 1]} == {""}
    assert all(row["breach_probability"] for row in found[24 * 12 - 1 : 30 * 12])


def test_blocks_without_a_value_do_not_count_towards_the_eighteen_that_a_probability_needs(tmp_path: Path) -> None:
    rows = rising(24, 0.0)
    gap = [row.partition(",")[0] + "," for row in rows[10:60]]
    found = backtest(tmp_path, written(tmp_path / "in.csv", [*rows[:10], *gap, *rows[60:]]), "--threshold", "87")

    first = 60 + 18 - 10 - 1
    assert {row["breach_probability"] for row in found[:first]} == {""}
    assert all(row["breach_probability"] for row in found[first:])


def test_without_a_limit_nothing_is_said_of_breaches(tmp_path: Path) -> None:
    found = backtest(tmp_path, written(tmp_path / "in.csv", lines(100)))

    assert {(row["breach_probability"], row["seconds_to_threshold"], row["alert"], row["cause"]) for row in found} == {
        ("", "", "0", "")
    }


def companions(tmp_path: Path, rows: Sequence[str]) -> Path:
    return written(tmp_path / "companions.csv", rows, "timestamp,metric,value,host")


def test_a_companion_gives_each_series_its_own_limit(tmp_path: Path) -> None:
    rows = [f"{line},{host}" for host in ("hot", "cool") for line in rising(36, 2.0)]
    path = written(tmp_path / "in.csv", rows, "timestamp,value,host")
    limits = [f"{START},DCGM_FI_DEV_SLOWDOWN_TEMP,{limit},{host}" for host, limit in (("hot", 85), ("cool", 200))]
    found = backtest(tmp_path, path, "--metric", "DCGM_FI_DEV_GPU_TEMP", "--companions", companions(tmp_path, limits))

    assert {row["host"] for row in found if row["alert"] == "1"} == {"hot"}


def test_a_companion_fits_a_series_whose_file_has_no_such_label_or_an_empty_one(tmp_path: Path) -> None:
    limits = written(
        tmp_path / "limits.csv", [f"{START},DCGM_FI_DEV_SLOWDOWN_TEMP,a,45"], "timestamp,metric,Hostname,value"
    )
    plain = written(tmp_path / "plain.csv", [f"{line},0" for line in lines(100)], "timestamp,value,gpu")
    named = written(
        tmp_path / "named.csv",
        [f"{line},{host}" for host in ("a", "b", "") for line in lines(100)],
        "timestamp,value,Hostname",
    )
    found = backtest(tmp_path, plain, named, "--metric", "DCGM_FI_DEV_GPU_TEMP", "--companions", limits)

    judged = {(row["gpu"], row["Hostname"]) for row in found if row["breach_probability"]}
    assert judged == {("0", ""), ("", "a"), ("", "")}


class CountedLabels(dict[str, str]):
    """Labels that count how often they are read."""

    count = 0

    def items(self) -> Any:
        CountedLabels.count += 1
        return super().items()


def test_the_companions_of_a_series_are_found_without_comparing_it_with_those_of_all_series(tmp_path: Path) -> None:
    compared = []
    for gpus in (4, 16):
        rows = [f"{START},1,{gpu},a" for gpu in range(gpus)]
        table = read([written(tmp_path / "in.csv", rows, "timestamp,value,gpu,host")])
        (batch,) = batches(table, GridOptions())
        labels = [{"gpu": str(gpu), "name": "x"} for gpu in range(gpus)]
        found = [
            Companion(metric, CountedLabels(own), np.array([START]), np.array([float(own["gpu"])]))
            for metric in ("m0", "m1")
            for own in labels
        ]
        # Of two that fit, the first one counts, whatever labels they have.
        found.append(Companion("m0", CountedLabels(host="a"), np.array([START]), np.array([99.0])))
        found.insert(0, Companion("m1", CountedLabels(host="a"), np.array([START]), np.array([99.0])))
        companions = Companions(table, found)
        CountedLabels.count = 0
        values = companions.metrics(batch)
        assert values["m0"].tolist() == [[float(gpu)] for gpu in range(gpus)]
        assert values["m1"].tolist() == [[99.0]] * gpus
        compared.append(CountedLabels.count / gpus)
    assert compared[1] <= compared[0]


def test_a_rise_that_power_explains_is_no_drift(tmp_path: Path) -> None:
    """Power rises in small steps all day, the temperature by a tenth of a degree for each watt."""
    hours = np.arange(12 * 40) / 12
    power = 200 + 40 * np.sin(hours * np.pi / 12) + np.maximum(hours - 36, 0) * 10
    heat = 60 + 0.1 * (power - 200) + np.random.default_rng(1).normal(0, 0.3, len(hours))
    path = written(tmp_path / "in.csv", [f"{START + 300 * at},{value:.0f}" for at, value in enumerate(heat)])
    watts = [f"{START + 300 * at},DCGM_FI_DEV_POWER_USAGE,{value:.1f},a" for at, value in enumerate(power)]
    found = backtest(
        tmp_path,
        path,
        "--metric",
        "DCGM_FI_DEV_GPU_TEMP",
        "--threshold",
        "85",
        "--companions",
        companions(tmp_path, watts),
    )

    assert {row["alert"] for row in found} == {"0"}


DEPLOYED = START + 300 * 12 * 30


def alerts_of_slower_kernels(tmp_path: Path, **companions_of: tuple[str, ...]) -> dict[str, list[int]]:
    """Times of the alerts of a kernel that takes 1.4 times as long since 30 h, by host; each with its companions."""
    noise = np.random.default_rng(2).normal(1.0, 0.02, 12 * 33)
    values = np.where(np.arange(12 * 33) < 12 * 30, noise, 1.4 * noise)
    path = written(
        tmp_path / "in.csv",
        [f"{START + 300 * at},{value:.4f},{host}" for host in companions_of for at, value in enumerate(values)],
        "timestamp,value,host",
    )
    rows = [row if row.count(",") == 3 else f"{row},{host}" for host, each in companions_of.items() for row in each]
    found = backtest(
        tmp_path, path, "--metric", "cuda_kernel_duration_seconds", "--companions", companions(tmp_path, rows)
    )
    return {
        host: [int(row["timestamp"]) for row in found if row["alert"] == "1" and row["host"] == host]
        for host in companions_of
    }


def process(at: int) -> str:
    return f"{at},process_start_time_seconds,{at}"


def version(at: int, number: int, of: str = "code_version") -> str:
    return f"{at},{of},{number}"


SAME = (version(START, 7), version(DEPLOYED, 7))


def test_a_kernel_that_is_slower_since_a_deploy_has_a_new_baseline(tmp_path: Path) -> None:
    processes = (process(START), process(DEPLOYED))
    known = (*processes, version(START, 7), version(DEPLOYED, 8))
    found = alerts_of_slower_kernels(tmp_path, known=known, unknown=processes, same=SAME)
    assert found.pop("same")[0] == DEPLOYED
    assert found == {"known": [], "unknown": []}


@pytest.mark.slow
def test_another_image_cuda_or_driver_is_a_deploy_although_the_code_is_the_same(tmp_path: Path) -> None:
    changed = {
        of: (version(START, 550, of), version(DEPLOYED, 560, of)) for of in ("image", "cuda_version", "driver_version")
    }
    with_code = {f"{of} with the same code": (*SAME, *rows) for of, rows in changed.items()}
    found = alerts_of_slower_kernels(tmp_path, same=SAME, **changed, **with_code)
    assert found.pop("same")[0] == DEPLOYED
    assert {host: alerts for host, alerts in found.items() if alerts} == {}


def test_a_kernel_that_is_slower_in_the_same_version_alerts_after_the_first_minutes_of_its_process(
    tmp_path: Path,
) -> None:
    other = tuple(f"{process(at)},other" for at in (START, DEPLOYED))
    found = alerts_of_slower_kernels(
        tmp_path,
        one_process=(process(START), *SAME),
        new_process=(process(START), process(DEPLOYED), *SAME),
        process_of_another_host=other,
    )
    first = {host: alerts[0] for host, alerts in found.items()}
    assert first == {"one_process": DEPLOYED, "new_process": DEPLOYED + 600, "process_of_another_host": DEPLOYED}


def test_companions_without_their_columns_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "in.csv", lines(5))
    backtest(tmp_path, path, "--companions", written(tmp_path / "c.csv", lines(5)), code=2)

    assert "needs the columns timestamp,metric,value" in capsys.readouterr().err


def test_a_lower_limit_is_one(tmp_path: Path) -> None:
    falling = [f"{line.split(',')[0]},{140 - int(line.split(',')[1])}" for line in rising(36, 2.0)]
    found = backtest(tmp_path, written(tmp_path / "in.csv", falling), "--threshold", "53", "--below")

    assert found[-1]["alert"] == "1"
    assert {row["alert"] for row in found[: 12 * 24]} == {"0"}


def test_an_anomaly_is_scored_and_opens_one_episode(tmp_path: Path) -> None:
    rows = lines(1500)
    for index in range(1200, 1260):
        rows[index] = f"{START + 60 * index},150"
    found = backtest(tmp_path, written(tmp_path / "in.csv", rows))
    onsets = [index for index, row in enumerate(found) if float(row["anomaly_onset"]) >= 1]

    assert len(onsets) == 1
    assert 1200 <= onsets[0] < 1203
    assert float(found[1205]["anomaly_score"]) >= 1


def test_the_report_scores_forecasts_beside_naive_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backtest(tmp_path, written(tmp_path / "in.csv", lines(3000)), "--report")
    text = capsys.readouterr().out

    skill = float(text.split("skill")[1].split()[0])
    assert 0.2 < skill < 0.35  # of a mean against the last value, for white noise: 1 - 1/sqrt(2)
    assert "coverage of 95% bounds 0.9" in text


def test_the_report_changes_no_row_and_costs_no_second_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "in.csv", lines(200))
    alone = backtest(tmp_path, path, "--quantiles", "0.9,0.3")
    levels: list[Sequence[float]] = []

    def counted(
        panel: Panel, lead: int, wanted: Sequence[float], seasons: Sequence[int], fitted: FittedPanel | None
    ) -> LeadForecast:
        levels.append(wanted)
        return forecast(panel, lead, wanted, seasons, fitted)

    for module in ("run", "engine"):
        monkeypatch.setattr(f"kernelcast.predictor.backtest.{module}.forecast", counted, raising=False)
    reported = backtest(tmp_path, path, "--quantiles", "0.9,0.3", "--report")

    assert reported == alone
    assert levels == [[0.025, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 0.975]]


@pytest.mark.parametrize(
    ("rows", "header", "problem"),
    [
        (["1,2"], "time,value", "needs one column timestamp"),
        (["yesterday,2"], "timestamp,value", "line 2: timestamp 'yesterday'"),
        (["1,2", "2,much"], "timestamp,value", "line 3: value 'much' is no number"),
        (["1,2,3"], "timestamp,value", "line 2: 3 columns, the header has 2"),
        ([], "timestamp,value", "has no rows"),
        (["1,2", "2,2", "9999999999,3"], "timestamp,value", "give a longer --interval"),
    ],
)
def test_bad_input_is_refused_with_its_place_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[str], header: str, problem: str
) -> None:
    (tmp_path / "out.csv").write_text("kept")
    backtest(tmp_path, written(tmp_path / "in.csv", rows, header), code=2)

    assert problem in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == "kept"


@pytest.mark.parametrize(
    "arguments",
    [["--ahead", "soon"], ["--horizon", "0"], ["--interval", "5"], ["--quantiles", "0.5,2"], ["--metric", "x"]],
)
def test_bad_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    backtest(tmp_path, written(tmp_path / "in.csv", lines(5)), *arguments, code=2)

    assert arguments[0] in capsys.readouterr().err


def test_durations_are_seconds_or_intervals() -> None:
    assert parse_duration("--x", "1.5h").intervals(60) == 90
    assert parse_duration("--x", "12").intervals(300) == 12
    assert parse_duration("--x", "12").seconds(300) == 3600
    with pytest.raises(ConfigurationError, match="--x is '5y'"):
        parse_duration("--x", "5y")


def test_three_spellings_of_a_time_are_one() -> None:
    spellings = ["2023-11-14 22:13:20", "2023-11-14T23:13:20+01:00", "2023-11-14T22:13:20Z", "1700000000"]

    assert {unix_seconds(text) for text in spellings} == {float(START)}
    assert [time_text(START, text) for text in spellings[:1] + spellings[2:]] == spellings[:1] + spellings[2:]


def test_an_interval_is_inferred_though_rows_are_missing_and_late() -> None:
    times = np.array([0, 300, 600, 1500, 1800, 1801, 2100, 2400.0])

    assert inferred_interval(times) == 300


@pytest.mark.parametrize("jitter_seconds", [0.3, 2.0, 5.0])
@pytest.mark.parametrize("places", [0, 3, 6])
def test_the_interval_of_jittered_rows_is_their_mean_distance(jitter_seconds: float, places: int) -> None:
    rng = np.random.default_rng(4)
    times = START + 60.0 * np.arange(300) + rng.uniform(-jitter_seconds, jitter_seconds, 300)
    kept = np.array([round(one, places) for one in np.delete(times, slice(100, 130))])
    assert inferred_interval(kept) == pytest.approx(60, abs=0.1)


def test_two_rows_a_millisecond_apart_do_not_make_an_interval_of_a_millisecond() -> None:
    rng = np.random.default_rng(4)
    times = [START + 60.0 * at + rng.uniform(-5, 5) for at in range(31)]
    assert inferred_interval(np.array([*times, times[7] + 0.001])) == pytest.approx(60, abs=2)


def test_the_interval_of_a_grid_of_which_most_rows_are_missing_is_that_of_the_grid() -> None:
    rng = np.random.default_rng(4)
    assert inferred_interval(np.array([START + 15.0 * at for at in range(2000) if rng.random() < 0.3])) == 15


def test_a_path_is_the_forecast_of_each_lead() -> None:
    values = np.random.default_rng(1).normal(size=(3, 200)).cumsum(axis=1)
    panel = Panel(values, 0, 1, np.zeros(3, np.int64))
    center, quantiles = forecast_path(panel, 5, [0.1, 0.9], [10])

    for lead in range(1, 6):
        alone = forecast(panel, lead, [0.1, 0.9], [10])
        np.testing.assert_allclose(center[:, lead - 1], alone.center[:, -1])
        np.testing.assert_allclose(quantiles[:, :, lead - 1], alone.quantiles[:, :, -1])


def test_a_long_path_is_whole_and_its_bounds_hold_between_leads() -> None:
    values = np.random.default_rng(1).normal(size=(2, 400))
    center, quantiles = forecast_path(Panel(values, 0, 1, np.zeros(2, np.int64)), 200, [0.1, 0.9], [24])

    assert own_leads(200)[-1] == 200
    assert not np.isnan(center).any()
    assert (quantiles[0] <= center).all()
    assert math.isclose(float(np.mean(quantiles[1] - quantiles[0])), 2.56, rel_tol=0.15)
