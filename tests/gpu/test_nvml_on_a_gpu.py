"""The NVML source against the real NVML."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.devices import boot_time_ns
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue import CATALOGUE, Kind, Metric
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.devices.device import DRIVER_VERSION_LABEL
from kernelcast.wire.identity import Device, Labels

LIMITS: dict[Metric, tuple[float, float]] = {
    device.GPU_UTIL: (0, 100),
    device.MEM_COPY_UTIL: (0, 100),
    device.SM_CLOCK: (1, 10_000),
    device.GPU_TEMP: (1, 120),
    device.POWER_USAGE: (1, 3_000),
    device.FB_USED: (0, 2**20),
    device.FB_FREE: (0, 2**20),
}
"""Values that every data-centre GPU reports, in DCGM's units: percent, MHz, degrees, watts, MiB."""


@pytest.fixture
def source(nvml: Any) -> Iterator[NvmlSource]:
    """Started; no call may fail in another way than by not being supported."""
    failed: list[tuple[str, str]] = []
    started = NvmlSource(
        Sampler(nvml),
        hostname="node1",
        boot_ns=boot_time_ns(),
        on_error=lambda call, error: failed.append((call, error)),
    ).start()
    yield started
    started.close()
    assert failed == []


def rows(source: NvmlSource, gpu: Device) -> dict[Metric, Sample]:
    samples = source.poll(time.time_ns()).samples
    return {sample.metric: sample for sample in samples if without_version(sample) == gpu.device_labels()}


def without_version(sample: Sample) -> Labels:
    return tuple(pair for pair in sample.attributes if pair[0] != DRIVER_VERSION_LABEL)


def number(sample: Sample) -> float:
    assert isinstance(sample.value, int | float)
    return sample.value


def test_every_gpu_is_found_under_nvmls_own_uuid_and_name(nvml: Any, source: NvmlSource) -> None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    whole = {gpu.uuid: gpu.model_name for gpu in source.devices if not gpu.gi_id}
    assert whole == {nvml.nvmlDeviceGetUUID(handle): nvml.nvmlDeviceGetName(handle) for handle in handles}


def test_the_rows_are_the_catalogues_and_plausible(source: NvmlSource) -> None:
    for gpu in (gpu for gpu in source.devices if not gpu.gi_id):
        found = rows(source, gpu)
        assert set(found) <= set(CATALOGUE)
        assert all(metric.prometheus_name.startswith("DCGM_FI_DEV_") for metric in found)
        missing = [metric.prometheus_name for metric in LIMITS if metric not in found]
        assert missing == [], f"{gpu.model_name} does not tell them"
        for metric, (low, high) in LIMITS.items():
            assert low <= number(found[metric]) <= high, metric.prometheus_name


def test_the_memory_rows_add_up_to_the_gpus_memory(nvml: Any, source: NvmlSource) -> None:
    found = rows(source, source.devices[0])
    total_mebibytes = sum(number(found[row]) for row in (device.FB_FREE, device.FB_USED, device.FB_RESERVED))
    told_bytes = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).total
    assert total_mebibytes == pytest.approx(told_bytes / 2**20, rel=0.01)


def test_counters_never_fall_and_keep_their_start(source: NvmlSource) -> None:
    gpu = source.devices[0]
    before = rows(source, gpu)
    time.sleep(1.0)
    after = rows(source, gpu)
    counters = [metric for metric in before if metric.kind is Kind.COUNTER]
    assert counters
    for metric in counters:
        assert number(after[metric]) >= number(before[metric]), metric.prometheus_name
        assert after[metric].start_ns == before[metric].start_ns > 0
