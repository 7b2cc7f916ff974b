"""The probe in a process that uses a GPU, and the example program's CuPy path."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.service.servers import wait_for
from tests.service.stack import Stack

from kernelcast.probe.process import driver
from kernelcast.probe.stencil import GpuPlate, best_plate
from kernelcast.runtime.kafka.embedded import EmbeddedBroker

CELLS = 1024
SWEEPS = 20

CLAIMS_AROUND_A_CONTEXT = """
from kernelcast.probe.process import driver
before = driver.claims("")
import cupy
cupy.zeros(1)
cupy.cuda.Device().synchronize()
for claim in (*before, *driver.claims("")):
    print(claim.uuid)
"""
"""In a process of its own: once a context is made, the one before it cannot be seen any more."""


def mig_is_on(nvml: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0))
    except nvml.NVMLError:
        return False
    return bool(current)


def test_the_probe_finds_nvmls_uuids_once_the_program_uses_cuda_and_none_before(nvml: Any, cupy: Any) -> None:
    if mig_is_on(nvml):
        pytest.skip("MIG is on: CUDA sees an instance, not the GPU")
    environ = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environ.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", CLAIMS_AROUND_A_CONTEXT]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
    before, *after = done.stdout.split("\n")[:-1]
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    assert before == driver.UNKNOWN.uuid
    assert after == [nvml.nvmlDeviceGetUUID(handle) for handle in handles]


def test_the_plate_is_a_gpus_and_it_times_its_sweeps_itself(cupy: Any) -> None:
    plate = best_plate()
    assert isinstance(plate, GpuPlate)
    assert (plate.source, plate.method) == ("", "manual")
    sweep = plate.sweep(128)
    assert 1_000 < sweep.duration_ns < 1_000_000_000
    assert (sweep.grid, sweep.block) == (f"{4096 * 4096 // 128}x1x1", "128x1x1")
    assert sweep.registers > 0


def test_the_block_size_changes_the_time_and_not_the_result(cupy: Any) -> None:
    heats = []
    for block_size in (32, 48, 256):
        plate = GpuPlate(cupy, cells=CELLS)
        for _ in range(SWEEPS):
            plate.sweep(block_size)
        heats.append(plate.heat())
    assert heats[0] == heats[1] == heats[2] > 0


def test_a_bad_block_size_costs_time_on_the_device(cupy: Any) -> None:
    plate = GpuPlate(cupy)
    plate.sweep(48)
    fastest_ns = {size: min(plate.sweep(size).duration_ns for _ in range(SWEEPS)) for size in (48, 256)}
    assert fastest_ns[48] > fastest_ns[256]


@pytest.mark.timeout(420)
def test_the_example_reports_its_gpu_and_keeps_the_hinted_block_size(nvml: Any, cupy: Any, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        live = {"exporter": {"nvml": "on", "device_metrics": "on"}}
        with Stack(tmp_path, broker.bootstrap_servers, live) as stack:
            for name in ("bridge", "exporter", "predictor"):
                stack.service(name)
            example = (sys.executable, "-m", "kernelcast.probe.example", "--program", "tuned")
            stack.background("example", *example, environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
            launches = wait_for(
                "kernels", lambda: stack.exposed("cuda_kernel_launches_total", program="tuned"), timeout_seconds=90
            )
            labels = dict(next(iter(launches)))
            assert labels["UUID"] == nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))
            assert "source" not in labels
            wait_for("an outcome", lambda: stack.exposed("kernelcast_hint_outcomes_total", state="kept"), 240)
            assert 0 < stack.total("kernelcast_hint_measured_ratio", program="tuned") < 1
            (value,) = {dict(found)["value"] for found in stack.exposed("kernelcast_tunable_info", program="tuned")}
            assert int(value) % 32 == 0
