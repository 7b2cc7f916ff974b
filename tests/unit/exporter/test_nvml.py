import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from tests.unit.exporter.nvml_double import FakeGpu, FakeNvml, NVMLError

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.sampler import FIRST_RETRY_NS
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue import Kind, device
from kernelcast.wire.errors import DeviceError

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
BOOT_NS = 100 * SECOND_NS
MEBIBYTE = 2**20
CAPTURE = Path(__file__).parents[4] / "shared/data/nvidia-smi/nvidia-h200__590.48.01.txt"


def gpu(uuid: str = "GPU-1", **more: Any) -> FakeGpu:
    values: dict[str, Any] = {
        "clock1": 1980,
        "clock2": 3201,
        "temperature": 41,
        "memory_temperature": 47,
        "slowdown": 92,
        "memory": SimpleNamespace(free=100 * MEBIBYTE, used=20 * MEBIBYTE, reserved=5 * MEBIBYTE),
        "nvmlDeviceGetPowerUsage": 77_670,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetTotalEnergyConsumption": 123_456_789,
        "nvmlDeviceGetPcieReplayCounter": 3,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=44),
        "nvmlDeviceGetEncoderUtilization": [1, 167_000],
        "nvmlDeviceGetDecoderUtilization": [2, 167_000],
        "nvmlDeviceGetRemappedRows": (4, 5, 0, 1),
        "nvmlDeviceGetCurrentClocksEventReasons": 0x40,
    }
    return FakeGpu(uuid, values, **more)


class Errors:
    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def __call__(self, call: str, _error: str) -> None:
        self.counted[call] += 1


def source(nvml: FakeNvml, errors: Errors | None = None) -> NvmlSource:
    return NvmlSource(nvml, hostname="node1", boot_ns=BOOT_NS, on_error=errors or Errors()).start()


def rows(samples: tuple[Sample, ...], uuid: str = "GPU-1") -> dict[str, Any]:
    found = [sample for sample in samples if dict(sample.attributes)["UUID"] == uuid]
    return {sample.metric.prometheus_name.removeprefix("DCGM_FI_DEV_"): sample.value for sample in found}


def test_every_row_has_dcgms_value_in_dcgms_unit() -> None:
    assert rows(source(FakeNvml(gpu())).poll(NOW_NS).samples) == {
        "SM_CLOCK": 1980,
        "MEM_CLOCK": 3201,
        "MEMORY_TEMP": 47,
        "GPU_TEMP": 41,
        "SLOWDOWN_TEMP": 92,
        "POWER_USAGE": 77.67,
        "POWER_MGMT_LIMIT": 700.0,
        "TOTAL_ENERGY_CONSUMPTION": 123_456_789,
        "PCIE_REPLAY_COUNTER": 3,
        "GPU_UTIL": 87,
        "MEM_COPY_UTIL": 44,
        "ENC_UTIL": 1,
        "DEC_UTIL": 2,
        "FB_FREE": 100.0,
        "FB_USED": 20.0,
        "FB_RESERVED": 5.0,
        "CORRECTABLE_REMAPPED_ROWS": 4,
        "UNCORRECTABLE_REMAPPED_ROWS": 5,
        "ROW_REMAP_FAILURE": 1,
        "CLOCKS_EVENT_REASONS": 0x40,
    }


def test_every_row_of_the_catalogue_is_read_and_stamped() -> None:
    samples = source(FakeNvml(gpu())).poll(NOW_NS).samples
    assert {sample.metric for sample in samples} == set(device.ROWS)
    assert {sample.time_ns for sample in samples} == {NOW_NS}
    assert {sample.start_ns for sample in samples if sample.metric.kind is Kind.COUNTER} == {BOOT_NS}
    assert {sample.start_ns for sample in samples if sample.metric.kind is Kind.GAUGE} == {0}


def test_labels_are_dcgm_exporters() -> None:
    sample = source(FakeNvml(gpu())).poll(NOW_NS).samples[0]
    assert dict(sample.attributes) == {
        "Hostname": "node1",
        "UUID": "GPU-1",
        "device": "nvidia0",
        "gpu": "0",
        "modelName": "NVIDIA H200",
        "pci_bus_id": "00000000:00:00.0",
        "DCGM_FI_DRIVER_VERSION": "590.48.01",
    }


def test_what_a_gpu_does_not_support_is_absent_and_no_error() -> None:
    errors = Errors()
    old = FakeGpu("GPU-1", {"temperature": 41, "memory_temperature": None})
    assert rows(source(FakeNvml(old), errors).poll(NOW_NS).samples) == {"GPU_TEMP": 41}
    assert not errors.counted


def test_a_memory_temperature_that_is_none_is_dropped() -> None:
    hot = FakeGpu("GPU-1", {"memory_temperature": 0x7FFFFFF0})
    assert source(FakeNvml(hot)).poll(NOW_NS).samples == ()


def test_an_error_is_counted_by_call_and_costs_only_its_own_rows() -> None:
    errors, bad = Errors(), gpu()
    bad.values["nvmlDeviceGetPowerUsage"] = NVMLError(FakeNvml.NVML_ERROR_UNKNOWN)
    shown = rows(source(FakeNvml(bad), errors).poll(NOW_NS).samples)
    assert "POWER_USAGE" not in shown
    assert shown["GPU_TEMP"] == 41
    assert errors.counted == {"nvmlDeviceGetPowerUsage": 1}


def test_a_gpu_that_vanishes_stops_and_is_found_again_when_it_returns() -> None:
    errors, first, second = Errors(), gpu("GPU-1"), gpu("GPU-2")
    polled = source(FakeNvml(first, second), errors)
    second.lost = True
    samples = polled.poll(NOW_NS).samples
    assert rows(samples, "GPU-1")
    assert not rows(samples, "GPU-2")
    assert errors.counted.total() == 1
    assert not rows(polled.poll(NOW_NS + FIRST_RETRY_NS).samples, "GPU-2")
    second.lost = False
    assert not rows(polled.poll(NOW_NS + FIRST_RETRY_NS + SECOND_NS).samples, "GPU-2")
    assert rows(polled.poll(NOW_NS + 3 * FIRST_RETRY_NS).samples, "GPU-2")


def test_looking_for_a_lost_gpu_becomes_rare() -> None:
    errors, lost = Errors(), gpu()
    polled = source(FakeNvml(lost), errors)
    lost.lost = True
    for second in range(600):
        polled.poll(NOW_NS + second * SECOND_NS)
    assert errors.counted["nvmlDeviceGetHandleByIndex"] <= 8


def test_a_counter_that_falls_has_a_new_start() -> None:
    card = gpu()
    polled = source(FakeNvml(card))
    polled.poll(NOW_NS)
    card.values["nvmlDeviceGetTotalEnergyConsumption"] = 5
    for seconds in (10, 20):
        samples = polled.poll(NOW_NS + seconds * SECOND_NS).samples
        (energy,) = [sample for sample in samples if sample.metric is device.TOTAL_ENERGY]
        assert (energy.value, energy.start_ns) == (5, NOW_NS + 10 * SECOND_NS)


def test_a_counter_that_is_less_after_its_gpu_was_gone_has_a_new_start() -> None:
    card = gpu()
    polled = source(FakeNvml(card))
    polled.poll(NOW_NS)
    card.lost = True
    polled.poll(NOW_NS + SECOND_NS)
    card.lost = False
    card.values["nvmlDeviceGetTotalEnergyConsumption"] = 5
    back_ns = NOW_NS + SECOND_NS + FIRST_RETRY_NS
    samples = polled.poll(back_ns).samples
    (energy,) = [sample for sample in samples if sample.metric is device.TOTAL_ENERGY]
    assert (energy.value, energy.start_ns) == (5, back_ns)


def test_a_gpu_without_a_device_file_is_read_all_the_same() -> None:
    card = gpu()
    card.device_file = False
    samples = source(FakeNvml(card)).poll(NOW_NS).samples
    assert rows(samples)["GPU_TEMP"] == 41
    assert not [sample for sample in samples if "device" in dict(sample.attributes)]


def test_mig_instances_show_their_memory_under_their_parents_uuid() -> None:
    instance = FakeGpu("MIG-1", {"memory": gpu().values["memory"]}, name="NVIDIA H100 MIG 1g.10gb", gi_id=9)
    twin = FakeGpu("MIG-2", instance.values, name="NVIDIA H100 MIG 1c.1g.10gb", gi_id=9)
    samples = source(FakeNvml(gpu(instances=[instance, twin]))).poll(NOW_NS).samples
    own = [sample for sample in samples if dict(sample.attributes).get("GPU_I_ID") == "9"]
    assert {sample.metric for sample in own} == {device.FB_FREE, device.FB_USED, device.FB_RESERVED}
    assert {dict(sample.attributes)["GPU_I_PROFILE"] for sample in own} == {"1g.10gb"}
    assert {dict(sample.attributes)["UUID"] for sample in own} == {"GPU-1"}


def test_without_a_driver_the_error_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match=r"install the NVIDIA driver.*exporter\.nvml to off"):
        source(FakeNvml(driver=False))


def test_the_double_has_pynvmls_constants_and_only_its_calls() -> None:
    for name in dir(FakeNvml):
        if name.startswith(("NVML_", "nvmlMemory")):
            assert getattr(pynvml, name) == getattr(FakeNvml, name), name
        if name.startswith("nvml"):
            assert hasattr(pynvml, name), name
    for name in gpu().values:
        assert not name.startswith("nvml") or hasattr(pynvml, name), name


def test_nvml_is_released_once() -> None:
    nvml = FakeNvml(gpu())
    polled = source(nvml)
    polled.close()
    polled.close()
    assert nvml.opened == 0


@pytest.mark.skipif(not CAPTURE.exists(), reason=f"the capture {CAPTURE.name} is not on this machine")
def test_a_captured_h200_under_load_reads_as_nvidia_smi_shows_it() -> None:
    text = CAPTURE.read_text().rpartition("# $ nvidia-smi -q\n")[2]
    query = text.partition("# $ nvidia-smi --query-gpu")[0]

    def number(name: str) -> float:
        found = re.search(rf"^ *{name} *: ([\d.]+)", query, re.MULTILINE)
        assert found, name
        return float(found[1])

    free, used, reserved = number("Free"), number("Used"), number("Reserved")
    card = gpu(name="NVIDIA H200")
    card.values |= {
        "temperature": int(number("GPU Current Temp")),
        "nvmlDeviceGetPowerUsage": round(number("Average Power Draw") * 1000),
        "memory": SimpleNamespace(
            free=int(free * MEBIBYTE), used=int(used * MEBIBYTE), reserved=int(reserved * MEBIBYTE)
        ),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=int(number("GPU")), memory=int(number("Memory"))),
    }
    shown = rows(source(FakeNvml(card)).poll(NOW_NS).samples)
    assert shown["FB_FREE"] + shown["FB_USED"] + shown["FB_RESERVED"] == pytest.approx(number("Total"), abs=2)
    assert 0 < shown["POWER_USAGE"] <= number("Current Power Limit") * 1.1
    assert shown["GPU_TEMP"] == number("GPU Current Temp")
