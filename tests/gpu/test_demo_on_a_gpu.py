"""The demo on a machine with a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.service.stack import kernelcast


@pytest.mark.timeout(300)
def test_the_demo_says_that_the_gpu_is_live(nvml: Any, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    done = kernelcast(
        *("demo", "--source", "nvml", "--duration", "20", "--no-servers"),
        *("--directory", str(tmp_path / "demo"), "--summary", str(summary)),
        timeout_seconds=240,
    )
    assert done.returncode == 0, done.stderr
    name = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0))
    assert f"LIVE GPU: {nvml.nvmlDeviceGetCount()} x {name}" in done.stdout
    content = json.loads(summary.read_text())
    assert content["source"] == {"kind": "nvml", "path": None, "label": ""}
    assert content["kernels"]["launches"] > 0
    assert content["dead_letters"] == 0
