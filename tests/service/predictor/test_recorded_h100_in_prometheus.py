"""The recorded H100 under dcgm-exporter's names in a real Prometheus, without its slowdown temperature.

The recording of seven minutes is played round and round for six hours that end now.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.require import binary
from tests.service.servers import PrometheusServer, get, stopping, wait_for
from tests.support.ports import free_ports

from kernelcast.exporter.exposition import render
from kernelcast.exporter.nvml.devices import KnownGpus
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.any_format import read_any
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.predictor.explain_command import PATH

pytestmark = pytest.mark.service

SHARED = Path(os.environ.get("KERNELCAST_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
RECORDING = SHARED / "gpu/h100-2026-11-27/h100.jsonl.gz"
MODEL = "NVIDIA H100 80GB HBM3"
SLOWDOWN = "DCGM_FI_DEV_SLOWDOWN_TEMP"
STEP_SECONDS, HOURS = 15, 6


def lines(end_seconds: int) -> Iterator[tuple[str, str, int]]:
    """Series, value and time of what dcgm-exporter's default table has."""
    now_ns = 0
    sampler = Sampler(RecordedNvml(read_any(RECORDING), clock=lambda: now_ns))
    source = NvmlSource(sampler, hostname="h100", boot_ns=1)
    known = KnownGpus(source.start(), lambda: True)
    begin = end_seconds - HOURS * 3600
    for at in range(begin, end_seconds, STEP_SECONDS):
        now_ns = (at - begin) * 1_000_000_000
        for line in render(known.poll(at * 1_000_000_000).samples).decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.startswith("DCGM_") and not series.startswith(SLOWDOWN):
                yield series, value, at
    known.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    if not RECORDING.exists():
        pytest.skip("the recording of the H100 is not beside this checkout")
    directory = tmp_path_factory.mktemp("h100")
    by_name: dict[str, list[str]] = {}
    for series, value, at in lines(int(time.time()) // STEP_SECONDS * STEP_SECONDS):
        by_name.setdefault(series.partition("{")[0], []).append(f"{series} {value} {at}")
    history = directory / "history.txt"
    history.write_text("\n".join([*(line for found in by_name.values() for line in found), "# EOF", ""]))
    create = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", str(history)]
    subprocess.run([*create, str(directory / "tsdb")], check=True, capture_output=True)
    configuration = directory / "prometheus.yml"
    configuration.write_text("global: {scrape_interval: 1h}\n")
    server = PrometheusServer(directory, configuration, options=["--storage.tsdb.retention.time=30d"])
    with stopping(server):
        yield server.run()


def explained(directory: Path, prometheus: PrometheusServer, **more: object) -> tuple[dict[str, object], str]:
    """Run the command until its first cycles are over; the explanation of the temperature, and its metrics."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    settings = {"sweep_every_seconds": 1.0, "prometheus": {"delay_seconds": 1, **more}}
    (directory / "kernelcast.yaml").write_text(json.dumps({"predictor": settings}))
    command = [sys.executable, "-m", "kernelcast.cli", "predictor", "--prometheus", prometheus.url]
    given = ["--config", str(directory / "kernelcast.yaml"), "--web.listen-address", f"127.0.0.1:{port}"]

    def page(path: str) -> str:
        try:
            return get(f"{url}{path}", 5)
        except OSError:
            return ""

    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, *given], stdout=log, stderr=log)
    try:
        swept = "kernelcast_predictor_sweeps_total "
        wait_for(
            "three cycles",
            lambda: any(
                line.startswith(swept) and float(line.rpartition(" ")[2]) >= 3 for line in page("/metrics").splitlines()
            ),
            90,
        )
        query = urllib.parse.urlencode({"series": 'DCGM_FI_DEV_GPU_TEMP{Hostname="h100"}'})
        (found,) = json.loads(page(f"{PATH}?{query}"))["series"]
        return found, page("/metrics")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_the_recorded_gpu_has_the_limit_that_its_own_nvml_gave_and_no_finding(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    found, metrics = explained(tmp_path, prometheus)
    assert "89" in json.dumps(found["limit"])
    assert "kernelcast_degradation_alert{" not in metrics
    assert "kernelcast_predictor_candidate_since_timestamp_seconds{" not in metrics
    assert "kernelcast_predictor_gpus_without_limit{" not in metrics


def test_a_limit_of_the_settings_that_the_recorded_gpu_has_passed_is_a_finding_in_the_first_cycles(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    _, metrics = explained(tmp_path, prometheus, slowdown_temperatures={MODEL: 45.0})
    alerts = [line for line in metrics.splitlines() if line.startswith("kernelcast_degradation_alert{")]
    assert len(alerts) == 1
    assert 'metric="DCGM_FI_DEV_GPU_TEMP"' in alerts[0]
    assert 'state="passed"' in alerts[0]
    assert 'cause="thermal"' in alerts[0]
    assert "kernelcast_predictor_finding_opened_timestamp_seconds{" in metrics
