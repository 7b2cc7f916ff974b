"""nvidia-ml-py itself, on a libnvidia-ml in C: every call of the sampler with its real structures and types."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.exporter.nvml_library import environment

from kernelcast.exporter.nvml.sampling.fields import DEFAULT_ROWS
from kernelcast.wire.catalogue.devices import health

pytestmark = pytest.mark.service

HEALTH = {row.otlp_name for row in health.ROWS}
"""Of newer GPUs and drivers than those of this library."""

PROGRAM = """
import json, pynvml
from kernelcast.exporter.nvml.sampling.sampler import Sampler
sampler = Sampler(pynvml).start()
sampler.sample(10**9)
print(json.dumps(sampler.sample(2 * 10**9).to_json()))
sampler.close()
"""


def test_the_sampler_reads_every_default_row_through_nvidia_ml_py(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment(tmp_path, 2), capture_output=True, text=True, check=True)
    node = json.loads(done.stdout)
    assert (node["driver_version"], node["errors"]) == ("590.48.01", [])
    assert [gpu["uuid"][:12] for gpu in node["gpus"]] == ["GPU-00000000", "GPU-00000001"]
    for index, gpu in enumerate(node["gpus"]):
        asked = {name: reason for name, reason in gpu["absent"].items() if name not in HEALTH}
        assert asked == {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "not_supported"}
        assert gpu["values"].keys() == {*DEFAULT_ROWS} - gpu["absent"].keys()
        assert gpu["pci_bus_id"] == f"00000000:0{index}:00.0"
        assert gpu["values"]["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] == index
        memory = [gpu["values"][f"DCGM_FI_DEV_FB_{name}"] for name in ("USED", "FREE", "RESERVED")]
        assert sum(memory) == 141 * 1024
        assert [process["pid"] for process in gpu["processes"]] == [4_000_000 + index * 4 + one for one in range(4)]
