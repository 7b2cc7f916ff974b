"""The daemon with a recording in place of NVML, and with a counters table of its user's own."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.support.exporter.nvml_double import field, gpu, node, playing
from typer.testing import CliRunner

from kernelcast.exporter import assembly
from kernelcast.exporter.command import exporter
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.recordings.recording import NODE, Event, Moment, write
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import load

SECOND_NS = 1_000_000_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "node.jsonl.gz"
    node_answers = {
        "nvmlDeviceGetCount": 1,
        "nvmlSystemGetDriverVersion": "590.48.01",
    }
    card = gpu("GPU-7", nvmlDeviceGetComputeRunningProcesses=[{"pid": os.getpid(), "usedGpuMemory": 5}])
    write(path, (Moment(0, {NODE: node_answers, "0": card}), Moment(SECOND_NS, {}, (Event("0", 8, 79),))))
    return path


def settings(tmp_path: Path, broker: EmbeddedBroker, **flags: object) -> ExporterSettings:
    own = {
        "socket_path": tmp_path / "probe.sock",
        "state_directory": tmp_path / "state",
        "web": {"listen_address": "127.0.0.1:0"},
        "device_metrics": "on",
        "kubernetes": "off",
        "kafka": {"bootstrap_servers": broker.bootstrap_servers},
        "nvml_timeout_seconds": 60,
    }
    return load("exporter", ExporterSettings, path=None, flags={**own, **flags}, environ={})


def page_of(made: ExporterSettings) -> list[str]:
    with assembly.assembled(made, Shutdown()) as (daemon, web, _):
        daemon.interval()
        with urllib.request.urlopen(f"{web.url}/metrics", timeout=10) as answer:  # noqa: S310  our own page
            return [line for line in answer.read().decode().splitlines() if "GPU-7" in line]


def test_the_whole_daemon_runs_from_a_recording(tmp_path: Path, broker: EmbeddedBroker, recording: Path) -> None:
    lines = page_of(settings(tmp_path, broker, nvml_recording=recording))
    assert all('source="replayed"' in line for line in lines)
    assert [line for line in lines if line.startswith("kernelcast_gpu_up{") and line.endswith(" 1")]
    (power,) = [line for line in lines if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]
    assert power.endswith(" 77.67")
    assert 'DCGM_FI_DRIVER_VERSION="590.48.01"' in power


def test_processes_of_a_recording_have_no_names_of_this_machine(
    tmp_path: Path, broker: EmbeddedBroker, recording: Path
) -> None:
    lines = page_of(settings(tmp_path, broker, nvml_recording=recording))
    (memory,) = [line for line in lines if line.startswith("kernelcast_gpu_process_memory_bytes{")]
    assert f'pid="{os.getpid()}"' in memory
    assert "process_name" not in memory
    assert "user=" not in memory


def test_the_daemon_writes_the_rows_of_its_table(tmp_path: Path, broker: EmbeddedBroker, recording: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\nDCGM_FI_DEV_POWER_VIOLATION, counter, Capped.\n")
    lines = page_of(settings(tmp_path, broker, nvml_recording=recording, counters_file=table, process_metrics=False))
    shown = {line.partition("{")[0] for line in lines if line.startswith("DCGM_FI_")}
    assert shown == {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_VIOLATION"}


def test_a_changed_table_changes_the_rows_and_their_help(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\n")
    counters = CountersFile(table)
    nvml = playing(node(gpu(**field(74, 5))))
    made = NvmlSource(Sampler(nvml, counters.options), hostname="n", boot_ns=1, counters=counters).start()

    def poll(second: int) -> dict[str, str]:
        samples = made.poll(second * SECOND_NS).samples
        return {
            sample.metric.otlp_name: sample.metric.help
            for sample in samples
            if sample.metric.otlp_name.startswith("DCGM") and sample.value is not None
        }

    assert poll(1) == {"DCGM_FI_DEV_GPU_TEMP": "Heat."}
    table.write_text("DCGM_FI_DEV_POWER_VIOLATION, counter, Capped by power.\n")
    assert poll(2) == {"DCGM_FI_DEV_POWER_VIOLATION": "Capped by power."}
    table.write_text("nonsense")
    assert poll(3) == {"DCGM_FI_DEV_POWER_VIOLATION": "Capped by power."}
    made.close()


def check(tmp_path: Path, **lines: object) -> tuple[int, str]:
    config = tmp_path / "kernelcast.yaml"
    config.write_text("exporter:\n" + "".join(f"  {name}: {value}\n" for name, value in lines.items()))
    app = typer.Typer(add_completion=False)
    app.command()(exporter)
    done = CliRunner().invoke(app, ["--check-config", "--config", str(config)])
    return done.exit_code, done.output


def test_check_config_names_the_line_of_an_unknown_field(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("# ours\nGPU_UTIL, gauge, Busy\n")
    code, output = check(tmp_path, counters_file=table)
    assert code == 2
    assert "counters.csv:2: 'GPU_UTIL' is no field of DCGM's" in output.replace("\n", " ")


def test_check_config_says_what_of_a_table_is_left_out(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_BAR1_USED, gauge, Fans\n")
    code, output = check(tmp_path, counters_file=table)
    assert code == 0
    assert "counters.csv:1: DCGM_FI_DEV_BAR1_USED is not given through NVML" in output.replace("\n", " ")
    assert "configuration is valid" in output


def test_check_config_looks_into_the_recording(tmp_path: Path, recording: Path) -> None:
    assert check(tmp_path, nvml_recording=recording)[0] == 0
    recording.write_bytes(b"no recording")
    code, output = check(tmp_path, nvml_recording=recording)
    assert code == 2
    assert "exporter.nvml_recording" in output
