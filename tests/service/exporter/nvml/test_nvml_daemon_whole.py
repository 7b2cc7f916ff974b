"""The whole daemon with a recording in place of NVML, on the embedded broker."""

import os
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.exporter.nvml_double import write_node_with_xid_79
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.exporter import assembly
from kernelcast.exporter.nvml import control
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
    write_node_with_xid_79(path)
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
        with urllib.request.urlopen(f"{web.url}/metrics", timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own page
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


CAPTURE = """
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 10:00:00 2026
Driver Version                            : 595.80
Attached GPUs                             : 1
GPU 00000000:01:00.0
    GPU UUID                              : GPU-7
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 1
            Type                          : C
            Name                          : /opt/conda/bin/python3
            Used GPU Memory               : 5 MiB
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 2
            Type                          : G
            Name                          : [Not Found]
            Used GPU Memory               : 3 MiB
"""


def test_processes_of_a_capture_have_the_names_that_it_prints(tmp_path: Path, broker: EmbeddedBroker) -> None:
    capture = tmp_path / "smi.txt"
    capture.write_text(CAPTURE)
    lines = page_of(settings(tmp_path, broker, nvml_recording=capture))
    memory = [line for line in lines if line.startswith("kernelcast_gpu_process_memory_bytes{")]
    names = {re.findall(r'pid="(\d+)"', line)[0]: re.findall(r'process_name="(.*?)"', line) for line in memory}
    assert names == {"1": ["python3"], "2": []}


def test_the_daemon_writes_the_rows_of_its_table(tmp_path: Path, broker: EmbeddedBroker, recording: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\nDCGM_FI_DEV_POWER_VIOLATION, counter, Capped.\n")
    lines = page_of(settings(tmp_path, broker, nvml_recording=recording, counters_file=table, process_metrics=False))
    shown = {line.partition("{")[0] for line in lines if line.startswith("DCGM_FI_")}
    assert shown == {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_VIOLATION"}


def test_a_gpu_is_released_between_two_intervals_and_its_series_end(
    tmp_path: Path, broker: EmbeddedBroker, recording: Path
) -> None:
    made = settings(tmp_path, broker, nvml_recording=recording)
    assert made.state_directory is not None
    released: list[list[dict[str, str]]] = []
    request = {"do": control.RELEASE, "gpu": "0", "seconds": 600}
    with assembly.assembled(made, Shutdown()) as (daemon, web, _):
        daemon.interval()
        client = threading.Thread(
            target=lambda: released.append(control.ask(tmp_path / "state", request, timeout_seconds=LONGEST_SECONDS))
        )
        client.start()
        while client.is_alive():
            daemon.interval()
            client.join(0.1)
        with urllib.request.urlopen(f"{web.url}/metrics", timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own page
            lines = [line for line in answer.read().decode().splitlines() if "GPU-7" in line]
    assert released == [[{"index": "0", "uuid": "GPU-7", "device": "nvidia0"}]]
    states = [line for line in lines if line.startswith(("kernelcast_gpu_up{", "kernelcast_gpu_detached{"))]
    assert [line.endswith(" 1") and 'reason="released"' in line for line in states] == [True]
    assert not [line for line in lines if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]
