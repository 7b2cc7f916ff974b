"""Row by row against dcgm-exporter's own default table, so that its dashboards and alerts work on our series.

Source of the table: NVIDIA/dcgm-exporter, etc/default-counters.csv and the active rows of etc/dcp-metrics-included.csv
that it lacks, tag 4.5.3-4.8.2 (Apache-2.0).
"""

import pytest
from tests.support.exporter.nvml_double import DRIVER, gpu, node, playing

from kernelcast.columnar import Sample
from kernelcast.exporter.exposition import render
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME
from kernelcast.wire.catalogue.devices import device, profiling

PCIE = "over the PCIe bus - including both protocol headers and data payloads - in bytes per second."
TABLE = f"""
DCGM_FI_DEV_SM_CLOCK|gauge|SM clock frequency (in MHz).
DCGM_FI_DEV_MEM_CLOCK|gauge|Memory clock frequency (in MHz).
DCGM_FI_DEV_MEMORY_TEMP|gauge|Memory temperature (in C).
DCGM_FI_DEV_GPU_TEMP|gauge|GPU temperature (in C).
DCGM_FI_DEV_POWER_USAGE|gauge|Power draw (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION|counter|Total energy consumption since boot (in mJ).
DCGM_FI_DEV_PCIE_REPLAY_COUNTER|counter|Total number of PCIe retries.
DCGM_FI_DEV_GPU_UTIL|gauge|GPU utilization (in %).
DCGM_FI_DEV_MEM_COPY_UTIL|gauge|Memory utilization (in %).
DCGM_FI_DEV_ENC_UTIL|gauge|Encoder utilization (in %).
DCGM_FI_DEV_DEC_UTIL|gauge|Decoder utilization (in %).
DCGM_FI_DEV_XID_ERRORS|gauge|Value of the last XID error encountered.
DCGM_FI_DEV_FB_FREE|gauge|Framebuffer memory free (in MiB).
DCGM_FI_DEV_FB_USED|gauge|Framebuffer memory used (in MiB).
DCGM_FI_DEV_FB_RESERVED|gauge|Framebuffer memory reserved (in MiB).
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL|counter|Total number of NVLink bandwidth counters for all lanes
DCGM_FI_DEV_VGPU_LICENSE_STATUS|gauge|vGPU License status
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS|counter|Number of remapped rows for uncorrectable errors
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS|counter|Number of remapped rows for correctable errors
DCGM_FI_DEV_ROW_REMAP_FAILURE|gauge|Whether remapping of rows has failed
DCGM_FI_DRIVER_VERSION|label|Driver Version
DCGM_FI_PROF_GR_ENGINE_ACTIVE|gauge|Ratio of time the graphics engine is active.
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE|gauge|Ratio of cycles the tensor (HMMA) pipe is active.
DCGM_FI_PROF_DRAM_ACTIVE|gauge|Ratio of cycles the device memory interface is active sending or receiving data.
DCGM_FI_PROF_PCIE_TX_BYTES|gauge|The rate of data transmitted {PCIE}
DCGM_FI_PROF_PCIE_RX_BYTES|gauge|The rate of data received {PCIE}
"""
ROWS = [tuple(line.split("|")) for line in TABLE.split("\n") if line]
LABELS = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"}
SECOND_NS = 1_000_000_000
DEVICE = {*device.ROWS, *profiling.ROWS}


@pytest.fixture(scope="module")
def samples() -> tuple[Sample, ...]:
    source = NvmlSource(Sampler(playing(node(gpu()))), hostname="node1", boot_ns=SECOND_NS).start()
    source.poll(2 * SECOND_NS)
    made = source.poll(3 * SECOND_NS).samples
    source.close()
    return made


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 26


@pytest.mark.parametrize(("name", "kind", "text"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_has_dcgms_name_type_help_and_labels(
    samples: tuple[Sample, ...], name: str, kind: str, text: str
) -> None:
    if kind == "label":
        assert {dict(one.attributes)[name] for one in samples if one.metric in DEVICE} == {DRIVER}
        return
    row = BY_PROMETHEUS_NAME[name]
    assert (row.otlp_name, row.kind.value, row.unit) == (name, kind, "")
    assert row.help == text
    (sample,) = [sample for sample in samples if sample.metric is row]
    own = {"err_code", "err_msg"} if name == "DCGM_FI_DEV_XID_ERRORS" else set()
    assert {label for label, _value in sample.attributes} == LABELS | own
    page = render([sample]).decode()
    assert f"# TYPE {name} {kind}\n" in page
    assert f"# HELP {name} {text}" in page
