"""A reading as series: reasons for absent rows, throttling by reason, labels of a GPU's users."""

from collections.abc import Mapping

import pynvml
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.nvml.samples import CounterStarts, to_samples
from kernelcast.exporter.nvml.sampling.fields import CLOCK_EVENTS
from kernelcast.exporter.nvml.sampling.reading import NEEDS_HOPPER, GpuReading, NodeReading, ProcessUse
from kernelcast.wire.catalogue.devices import device, profiling
from kernelcast.wire.catalogue.devices import gpu as rows
from kernelcast.wire.identity import REPLAYED


class OnePod:
    def labels_for(self, gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        return ({"pod": f"train-{gpu.index}"},)

    def owners_of(self, _gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        return ()

    def process_labels(self, _gpu: GpuReading, pid: int) -> Mapping[str, str]:
        return {"pod": f"train-{pid}"}


def series(one: GpuReading) -> list[tuple[str, dict[str, str], object]]:
    samples = to_samples(NodeReading(9, gpus=(one,)), hostname="node1", start_of=CounterStarts(1))
    return [(one.metric.prometheus_name, dict(one.attributes), one.value) for one in samples]


def test_absent_rows_have_a_reason() -> None:
    one = GpuReading("GPU-1", "0", absent={profiling.DRAM_ACTIVE.otlp_name: NEEDS_HOPPER})
    ((name, labels, value),) = series(one)
    assert (name, value) == ("kernelcast_gpu_field_absent", 1)
    assert labels["field"] == "DCGM_FI_PROF_DRAM_ACTIVE"
    assert labels["reason"] == "needs_hopper"


@given(st.integers(0, 2**9 - 1))
def test_each_reason_to_lower_the_clocks_is_a_series_of_its_own(mask: int) -> None:
    one = GpuReading("GPU-1", "0", values={device.CLOCK_EVENT_REASONS.otlp_name: mask})
    shown = {labels["reason"]: value for name, labels, value in series(one) if "clock_event_active" in name}
    bits = {
        "gpu_idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "applications_clocks_setting": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "sw_thermal_slowdown": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hw_thermal_slowdown": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "hw_power_brake_slowdown": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        "display_clock_setting": pynvml.nvmlClocksEventReasonDisplayClockSetting,
    }
    assert shown == {reason: int(bool(mask & bit)) for reason, bit in bits.items()}
    assert set(shown) == set(CLOCK_EVENTS)


def test_a_gpu_that_does_not_tell_of_its_clocks_has_no_such_series() -> None:
    assert series(GpuReading("GPU-1", "0")) == []


def test_those_who_use_a_gpu_and_its_source_are_on_every_series() -> None:
    one = GpuReading(
        "GPU-1",
        "0",
        values={device.GPU_UTIL.otlp_name: 5},
        absent={device.FB_USED.otlp_name: "error"},
        processes=(ProcessUse(7, "compute", 5),),
    )
    samples = to_samples(
        NodeReading(9, driver_version="590.48.01", gpus=(one,)),
        hostname="node1",
        start_of=CounterStarts(1),
        users=OnePod(),
        source=REPLAYED,
    )
    pods = {sample.metric.prometheus_name: dict(sample.attributes).get("pod") for sample in samples}
    assert pods == {
        "DCGM_FI_DEV_GPU_UTIL": "train-0",
        "kernelcast_accelerator_utilization_ratio": "train-0",
        "kernelcast_gpu_field_absent": None,
        "kernelcast_gpu_process_memory_bytes": "train-7",
    }
    for sample in samples:
        labels = dict(sample.attributes)
        assert labels["source"] == "replayed"
        assert sample.metric.prometheus_name.startswith("kernelcast_accelerator") or (
            labels["DCGM_FI_DRIVER_VERSION"] == "590.48.01"
        )
        assert list(sample.attributes) == sorted(sample.attributes)


def test_labels_of_every_series_are_in_the_catalogue() -> None:
    logged = {rows.KERNEL_LOG_XIDS.otlp_name, rows.KERNEL_LOG_XID_LAST.otlp_name}  # perhaps under another driver
    without_driver = {*logged, rows.OWNER.otlp_name}
    for row in rows.ROWS:
        assert ("DCGM_FI_DRIVER_VERSION" in row.labels) is (row.otlp_name not in without_driver)
