"""Range queries of a real Prometheus, whose history is written before it starts."""

import csv
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.service.require import binary
from tests.service.servers import PrometheusServer, stopping

from kernelcast.cli.app import run
from kernelcast.predictor.prometheus import PrometheusClient, TimeRange
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.state.past import Past
from kernelcast.wire.errors import PrometheusError

pytestmark = pytest.mark.service

START = 1_760_000_000
STEP = 5
POINTS = 12_000
METRIC = "DCGM_FI_DEV_GPU_TEMP"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus with 17 hours of two GPUs; the second one has values in the first hour alone."""
    directory = tmp_path_factory.mktemp("prometheus")
    lines = [f"# TYPE {METRIC} gauge"]
    for gpu, count in (("0", POINTS), ("1", 720)):
        lines += [f'{METRIC}{{gpu="{gpu}"}} {70 + at % 7} {START + STEP * at}' for at in range(count)]
    history = directory / "history.txt"
    history.write_text("\n".join([*lines, "# EOF", ""]))
    create = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", str(history)]
    subprocess.run([*create, str(directory / "tsdb")], check=True, capture_output=True)
    configuration = directory / "prometheus.yml"
    configuration.write_text("global: {scrape_interval: 1h}\n")
    server = PrometheusServer(directory, configuration, options=["--storage.tsdb.retention.time=50y"])
    with stopping(server):
        yield server.run()


def test_a_range_above_the_limit_of_one_answer_arrives_whole(prometheus: PrometheusServer) -> None:
    client = PrometheusClient(prometheus.url)
    first, second = client.query_range(METRIC, TimeRange(START, START + STEP * (POINTS - 1), STEP))

    assert first.labels == (("__name__", METRIC), ("gpu", "0"))
    assert np.array_equal(first.seconds, START + STEP * np.arange(POINTS))
    assert np.array_equal(first.values, 70 + np.arange(POINTS) % 7)
    assert second.seconds[-1] < START + 720 * STEP + 300
    found = client.series([METRIC], start_seconds=START + 40_000, end_seconds=START + 50_000)
    assert (("__name__", METRIC), ("gpu", "0")) in found


def test_a_series_that_kafka_has_just_given_gets_its_past(prometheus: PrometheusServer) -> None:
    end = START + STEP * POINTS // 300 * 300
    windows = Windows(interval_ns=15 * 10**9, points=240, max_series=10)
    lock = threading.RLock()
    histories = Histories(windows, lock)
    row = np.array([windows.admit(Subject(METRIC, Form.LEVEL, (("gpu", "0"),)), owner=0)])
    windows.put_levels(row, np.array([end * 10**9]), np.array([70.0]), now_seconds=0.0)
    past = Past(
        lambda points: PrometheusClient(prometheus.url, points_per_page=points),
        windows,
        histories,
        lock,
        filled=lambda _: None,
    )

    assert past.fill(float(end)) == 1
    mean, _ = histories.blocks(row)
    known = mean[0][np.isfinite(mean[0])]
    assert len(known) >= STEP * POINTS // 300 - 3
    np.testing.assert_allclose(known[1:], 73.0, atol=0.2)
    assert np.isfinite(windows.matrix(row)).sum() > 200
    assert np.isfinite(histories.hours(row)).sum() >= 14


def test_prometheus_reason_for_a_refusal_is_passed_on(prometheus: PrometheusServer) -> None:
    with pytest.raises(PrometheusError, match=r"status 400: .*parse error"):
        PrometheusClient(prometheus.url).query_range("rate(", TimeRange(START, START, STEP))


def test_a_backtest_of_a_range_has_the_rows_of_a_backtest_of_a_file(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    recorded = tmp_path / "recorded.csv"
    rows = [f"{START + 60 * at},{70 + 12 * at % 7},{METRIC},0" for at in range(120)]
    recorded.write_text("\n".join(["timestamp,value,__name__,gpu", *rows]) + "\n")
    outputs = [tmp_path / "range.csv", tmp_path / "file.csv"]
    query = ["--query", f'{METRIC}{{gpu="0"}}', "--start", str(START), "--end", str(START + 60 * 119)]
    common = ["--metric", METRIC, "--threshold", "80"]

    assert run(["backtest", "--prometheus", prometheus.url, *query, *common, "--output", str(outputs[0])]) == 0
    assert run(["backtest", str(recorded), *common, "--output", str(outputs[1])]) == 0
    ranged, filed = (list(csv.DictReader(path.read_text().splitlines())) for path in outputs)
    assert len(ranged) == 120
    assert ranged == filed
