"""The probe's CUPTI method on a real GPU, in a process of its own: CUPTI serves one client a process."""

import json
import subprocess
import sys
from typing import Any

import pytest

LAUNCHES = 2_000
COPIES = 20
COPY_BYTES = 1 << 20
LEAST_REGISTERS = 16
"""Registers of a thread in CUPTI's records on an H100, where a kernel's own attribute has fewer (8 for this one)."""

PROGRAM = f"""
import json, time
import cupy, numpy
from kernelcast.probe.cupti.method import ActivityMethod
from kernelcast.probe.recording.recorder import Recorder

SPIN = r'''extern "C" __global__ void spin(long long cycles) {{
    long long began = clock64();
    while (clock64() - began < cycles) {{}}
}}'''
cupy.zeros(1)
kernel = cupy.RawKernel(SPIN, "spin")
kernel((1,), (64,), (50_000,))
cupy.cuda.Device().synchronize()
recorder = Recorder()
method = ActivityMethod(recorder)
if not method.start():
    print(json.dumps({{"reason": method.reason}}))
    raise SystemExit
began, ended = cupy.cuda.Event(), cupy.cuda.Event()
began.record()
for _ in range({LAUNCHES}):
    kernel((1,), (64,), (50_000,))
ended.record()
host, device = cupy.cuda.alloc_pinned_memory({COPY_BYTES}), cupy.cuda.alloc({COPY_BYTES})
for _ in range({COPIES}):
    device.copy_from_host(host.ptr, {COPY_BYTES})
cupy.random.random((512, 512), dtype=cupy.float32) @ cupy.ones((512, 512), dtype=cupy.float32)
cupy.cuda.Device().synchronize()
time.sleep(1.5)
method.stop()
cells = {{cell.signature: cell for cell in recorder.cells(0)}}
spin = cells["spin"]
print(json.dumps({{
    "reason": "",
    "launches": spin.launches,
    "mean_ns": spin.durations.sum_ns / spin.durations.count,
    "each_ns": cupy.cuda.get_elapsed_time(began, ended) * 1e6 / {LAUNCHES},
    "name": [spin.name().grid, spin.name().block, spin.name().registers, spin.name().occupancy],
    "registers": kernel.num_regs,
    "copies": recorder.counters(0, dropped_frames=0).memcpy,
    "others": sorted(set(cells) - {{"spin"}}),
    "lost": recorder.dropped_records,
}}))
"""


@pytest.fixture(scope="module")
def program_output() -> dict[str, Any]:
    """The program's output; if its GPU or CuPy is missing, each test's own fixtures have skipped before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["reason"]:
        pytest.skip(f"CUPTI cannot be used here: {found['reason']}")
    return found


@pytest.fixture
def measured(cupy: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Only asked for where there is a GPU."""
    assert cupy.cuda.is_available()
    found: dict[str, Any] = request.getfixturevalue("program_output")
    return found


def test_every_launch_is_there_and_lasts_as_long_as_an_event_pair_around_all_says(measured: dict[str, Any]) -> None:
    assert measured["launches"] == LAUNCHES
    assert measured["lost"] == 0
    # Events time the gaps between the kernels too, which are small beside kernels of some 30 microseconds.
    assert 0.8 * measured["each_ns"] < measured["mean_ns"] <= 1.01 * measured["each_ns"]


def test_a_launch_has_its_configuration(measured: dict[str, Any]) -> None:
    grid, block, registers, occupancy = measured["name"]
    assert (grid, block) == ("1x1x1", "64x1x1")
    assert registers in {measured["registers"], max(measured["registers"], LEAST_REGISTERS)}
    assert 0 < occupancy <= 1


def test_copies_are_reported_to_the_byte_by_kind_and_pinned_memory(measured: dict[str, Any]) -> None:
    pinned = {tuple(row[:2]): row[2:4] for row in measured["copies"]}
    assert pinned["h2d", "true"] == [COPIES * COPY_BYTES, COPIES]


def test_kernels_of_libraries_are_seen_too(measured: dict[str, Any]) -> None:
    assert any("gemm" in name.lower() or "cutlass" in name.lower() for name in measured["others"]), measured["others"]
