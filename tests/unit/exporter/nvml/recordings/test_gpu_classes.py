"""Which rows a GPU of each class has, as docs/exporter.md says."""

import re
from pathlib import Path

import pytest
from tests.support.exporter.gpu_classes import FAILING, GPU_CLASSES

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.nvidia_smi import read_capture
from kernelcast.exporter.nvml.sampling.fields import DEFAULT_ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler

DOCUMENT = Path(__file__).parents[5] / "docs/exporter.md"
ROWS = {
    "memory": "DCGM_FI_DEV_FB_USED",
    "utilisation": "DCGM_FI_DEV_GPU_UTIL",
    "clocks": "DCGM_FI_DEV_SM_CLOCK",
    "temperature": "DCGM_FI_DEV_GPU_TEMP",
    "power": "DCGM_FI_DEV_POWER_USAGE",
    "limit": "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "PCIe": "DCGM_FI_DEV_PCIE_LINK_WIDTH",
}


def read(text: str, path: Path) -> GpuReading:
    path.write_text(text)
    sampler = Sampler(RecordedNvml(read_capture(path), clock=lambda: 0)).start()
    (gpu,) = sampler.sample(10**12).gpus
    sampler.close()
    return gpu


def documented() -> dict[str, dict[str, bool]]:
    """The table of classes: by class, whether it has each row."""
    section = DOCUMENT.read_text().partition("### Classes of GPUs\n")[2].partition("\n### ")[0]
    head, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\|.*$", section, re.MULTILINE)
    )
    columns = [column for column in head if column in ROWS]
    return {line[0]: {column: line[head.index(column)] == "yes" for column in columns} for line in lines}


@pytest.mark.parametrize("kind", GPU_CLASSES)
def test_a_class_has_the_rows_of_the_document_and_a_reason_for_each_other(kind: str, tmp_path: Path) -> None:
    gpu = read(GPU_CLASSES[kind], tmp_path / "smi.txt")
    assert {column: row in gpu.values for column, row in ROWS.items()} == documented()[kind]
    assert {*gpu.values, *gpu.absent} >= set(DEFAULT_ROWS)
    assert {gpu.absent[row] for row in ROWS.values() if row in gpu.absent} <= {"not_supported"}
    assert gpu.device == ("" if kind == "WSL2" else "nvidia0")


def test_what_the_driver_cannot_read_is_an_error_and_the_rest_has_values(tmp_path: Path) -> None:
    gpu = read(FAILING, tmp_path / "smi.txt")
    assert gpu.absent["DCGM_FI_DEV_POWER_USAGE"] == "error"
    assert gpu.values["DCGM_FI_DEV_FB_USED"] == 2000
