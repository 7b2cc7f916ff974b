"""Values that no GPU has: left out with a reason and counted; and the values of GPUs without memory of their own."""

from typing import Any

import pynvml
import pytest
from prometheus_client import CollectorRegistry
from tests.support.exporter.nvml_double import gpu, node, playing

from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.nvml.sampling.reading import IMPLAUSIBLE, NOT_SUPPORTED, GpuReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.catalogue.devices import device

TEMPERATURE = f"nvmlDeviceGetTemperature:{pynvml.NVML_TEMPERATURE_GPU}"
SLOWDOWN = f"nvmlDeviceGetTemperatureThreshold:{pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN}"
SM_CLOCK = f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_SM}"
NO_MEMORY = {"total": 0, "reserved": 0, "free": 0, "used": 0}
LINK = ("PCIE_LINK_GEN", "PCIE_LINK_WIDTH", "PCIE_MAX_LINK_GEN", "PCIE_MAX_LINK_WIDTH")


def read(**answers: Any) -> GpuReading:
    return Sampler(playing(node(gpu(**answers)))).start().sample(10**18).gpus[0]


@pytest.mark.parametrize(
    ("call", "number", "row"),
    [
        ("nvmlDeviceGetPowerUsage", 3_689_342_859_416_540, device.POWER_USAGE),
        ("nvmlDeviceGetEnforcedPowerLimit", 2**32 - 2, device.POWER_LIMIT),
        (TEMPERATURE, 511, device.GPU_TEMP),
        (SLOWDOWN, 65_535, device.SLOWDOWN_TEMP),
        (SM_CLOCK, 808_334_905, device.SM_CLOCK),
    ],
)
def test_a_value_that_no_gpu_has_is_left_out_and_counted(call: str, number: int, row: object) -> None:
    registry, answers = CollectorRegistry(), dict[str, Any]({call: number})
    nvml = playing(node(gpu(**answers)))
    source = NvmlSource(Sampler(nvml), hostname="n", boot_ns=1, on_error=Instruments(registry).nvml_error).start()
    written = {sample.metric for sample in source.poll(10**18).samples}
    assert row not in written
    assert registry.get_sample_value(rows.NVML_IMPLAUSIBLE.prometheus_name) == 1
    assert IMPLAUSIBLE in read(**answers).absent.values()


def test_a_gpu_that_has_the_hosts_memory_has_no_memory_and_no_pcie_link() -> None:
    reading = read(nvmlDeviceGetMemoryInfo=NO_MEMORY, nvmlDeviceGetCurrPcieLinkWidth=1)
    for name in ("FB_FREE", "FB_USED", "FB_RESERVED", *LINK):
        assert reading.absent[f"DCGM_FI_DEV_{name}"] == NOT_SUPPORTED
    assert reading.values["DCGM_FI_DEV_GPU_UTIL"] == 87
