"""Outputs of `amd-smi metric --json` as recordings, in the forms of its versions."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.exporter.nvml.recordings.test_rocm_smi import gpus, value

from kernelcast.exporter.nvml.recordings.any_format import read_any, read_capture
from kernelcast.wire.errors import TraceError


def reading(value: Any, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def metrics(number: int, celsius: int = 45) -> dict[str, Any]:
    return {
        "gpu": number,
        "usage": {"gfx_activity": reading(42, "%"), "umc_activity": reading(12, "%"), "vcn_activity": ["N/A"]},
        "power": {"socket_power": reading(542, "W"), "throttle_status": "N/A"},
        "clock": {"gfx_0": {"clk": reading(2100, "MHz")}, "gfx_1": {"clk": "N/A"}, "mem_0": {"clk": "N/A"}},
        "temperature": {"edge": "N/A", "hotspot": reading(celsius, "C"), "mem": reading(58, "C")},
        "pcie": {"width": 16, "speed": reading(32, "GT/s"), "replay_count": 3},
        "fan": "N/A",
        "mem_usage": {"total_vram": reading(196592, "MB"), "used_vram": reading(49148, "MB")},
    }


@pytest.mark.parametrize("listed", [lambda gpus: gpus, lambda gpus: {"gpu_data": gpus}])
def test_each_gpu_has_the_rows_that_it_prints(tmp_path: Path, listed: Any) -> None:
    path = tmp_path / "amd.json"
    path.write_text(json.dumps(listed([metrics(0), metrics(1)]), indent=4))
    first, second = gpus(path)
    assert (first.uuid, second.uuid, first.model_name) == ("AMD-0", "AMD-1", "AMD GPU")
    fields = ("GPU_UTIL", "MEM_COPY_UTIL", "POWER_USAGE", "SM_CLOCK", "GPU_TEMP", "MEMORY_TEMP", "FB_USED", "FB_FREE")
    assert [value(first, field) for field in fields] == [42, 12, 542, 2100, 45, 58, 49148, 147444]
    assert (value(first, "PCIE_LINK_GEN"), value(first, "PCIE_LINK_WIDTH")) == (5, 16)
    assert [value(first, field) for field in ("PCIE_REPLAY_COUNTER", "FAN_SPEED", "MEM_CLOCK")] == [3, None, None]


@pytest.mark.parametrize("lost", [300, 2200])
def test_a_watch_is_moments_and_a_cut_one_leaves_the_others(tmp_path: Path, lost: int) -> None:
    """ROCm/rocm-systems issue 2720: a line stands before the first."""
    path = tmp_path / "amd.json"
    outputs = [json.dumps([metrics(0, celsius), metrics(1, celsius)], indent=4) for celsius in (40, 41, 42)]
    path.write_text("'CTRL' + 'C' to stop watching output:\n" + "\n".join(outputs)[:-lost])
    recording = read_any(path)
    assert [moment.at_ns for moment in recording.moments] == [0, 10**9]
    assert recording.note == "outputs that are cut, and left out: 1"


@pytest.mark.parametrize(
    "text",
    [
        '{"gpu_data": []}',
        '{"gpu_data": null}',
        '{"gpu_data": 7}',
        '[\n{"gpu": "N/A"}]',
        '{"gpu_data": [1, {"gpu": null}]}',
    ],
)
def test_json_without_a_gpu_is_refused_with_the_command(tmp_path: Path, text: str) -> None:
    path = tmp_path / "amd.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="amd-smi metric --json"):
        read_capture(path)
