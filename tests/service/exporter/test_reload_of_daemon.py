"""A running daemon takes over new settings."""

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.exporter.nvml_double import gpu
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.exporter.assembly import assembled
from kernelcast.exporter.attribution import attribution
from kernelcast.exporter.daemon import Daemon
from kernelcast.exporter.nvml import dcgm_watch
from kernelcast.exporter.nvml.recordings.recording import NODE, RecordedChanges, write
from kernelcast.exporter.reloading import RELOADED, Changeable
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.reloading import reload
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import ConfigurationError

Page = Callable[[], str]


def settings(**flags: object) -> ExporterSettings:
    return load("exporter", ExporterSettings, path=None, flags=flags, environ={})


class Running:
    """A daemon with a recorded GPU, and its settings as a file that a test can rewrite."""

    def __init__(self, directory: Path) -> None:
        recording = directory / "node.jsonl"
        answers = {"nvmlDeviceGetCount": 1, "nvmlSystemGetDriverVersion": "590.48.01"}
        card = gpu("GPU-7", nvmlDeviceGetComputeRunningProcesses=[{"pid": 4242, "usedGpuMemory": 5}])
        write(recording, (RecordedChanges(0, {NODE: answers, "0": card}),))
        self.flags: dict[str, object] = {
            "socket_path": directory / "probe.sock",
            "state_directory": directory / "state",
            "web.listen_address": "127.0.0.1:0",
            "nvml_recording": recording,
            "nvml_timeout_seconds": 60,
            "device_metrics": "on",
            "kubernetes": "off",
            "to_kafka": "off",
        }
        self.started = settings(**self.flags)

    @contextmanager
    def daemon(self) -> Iterator[Page]:
        with assembled(self.started, Shutdown()) as (daemon, web, self.parts):

            def page() -> str:
                daemon.interval()
                with urllib.request.urlopen(f"{web.url}/metrics", timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own page
                    return str(answer.read().decode())

            yield page

    def change(self, **flags: object) -> None:
        """Write other settings, and send SIGHUP."""
        self.flags |= flags
        reload(self.started, lambda: settings(**self.flags), self.parts.change, reloaded=RELOADED)

    parts: Changeable


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_processes_come_and_go_without_a_restart(running: Running) -> None:
    series = "kernelcast_gpu_process_memory_bytes{"
    with running.daemon() as page:
        assert series in page()
        running.change(process_metrics=False)
        without = page()
        assert series not in without
        assert "DCGM_FI_DEV_POWER_USAGE{" in without
        running.change(process_metrics=True)
        assert series in page()


def test_device_metrics_can_be_left_to_others_without_a_restart(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = 'kernelcast_exporter_device_metrics_off{reason="%s"} 1.0'
    monkeypatch.setattr(dcgm_watch, "_fetch", lambda url: b"DCGM_FI_" if url.endswith("9401/metrics") else b"")
    with running.daemon() as page:
        assert "DCGM_FI_DEV_POWER_USAGE{" in page()
        running.change(device_metrics="off")
        assert off % "setting" in page()
        running.change(device_metrics="auto", dcgm_exporter_url="http://127.0.0.1:9401/metrics")
        assert off % "dcgm_exporter" in page()
        running.change(dcgm_exporter_url="http://127.0.0.1:9400/metrics")
        assert "kernelcast_exporter_device_metrics_off{" not in page()


def test_jobs_are_looked_for_where_the_new_settings_say(running: Running, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "0").write_text("4711\n")
    age = 'kernelcast_exporter_attribution_age_seconds{source="jobs"}'
    with running.daemon() as page:
        assert age not in page()
        running.change(job_mapping_directory=tmp_path / "jobs")
        assert age in page()


def test_the_interval_and_the_time_limit_are_taken_over(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[float] = []
    monkeypatch.setattr(Daemon, "change_interval", lambda _self, seconds: intervals.append(seconds))
    with running.daemon():
        running.change(nvml_timeout_seconds=2.5, interval_seconds=7)
        assert (running.parts.sampler.timeout_seconds, intervals) == (2.5, [7])


def test_wrong_settings_change_nothing(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(_socket: Path) -> None:
        raise ConfigurationError("grpcio is not installed")

    monkeypatch.setattr(attribution, "PodResources", not_installed)
    with running.daemon() as page:
        for wrong in ({"kubernetes": "on"}, {"kubernetes": "off", "nvml_timeout_seconds": 0}):
            running.change(process_metrics=False, **wrong)
            assert "kernelcast_gpu_process_memory_bytes{" in page()
        assert running.parts.sampler.timeout_seconds == 60
