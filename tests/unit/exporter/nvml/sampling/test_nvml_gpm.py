"""Profiling rows, and everything that can be wrong with them."""

import math
from typing import Any

import pynvml
import pytest
from tests.support.exporter.nvml_double import NOT_SUPPORTED, divided, gpm, gpu, instance, node, playing

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.sampling import reading
from kernelcast.exporter.nvml.sampling.fields import GPM_METRICS, ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading
from kernelcast.exporter.nvml.sampling.sampler import RELIST_NS, Sampler, SamplerOptions
from kernelcast.wire.catalogue.devices import profiling

SECOND_NS = 1_000_000_000
NAMES = {row.otlp_name for row in profiling.DEFAULT_ROWS}


def sampler(nvml: RecordedNvml) -> Sampler:
    return Sampler(nvml).start()


def profiled(made: Sampler, *times_ns: int) -> GpuReading:
    for time_ns in times_ns[:-1]:
        made.sample(time_ns)
    return made.sample(times_ns[-1]).gpus[-1]


def reasons(gpu_reading: GpuReading) -> set[str]:
    assert not NAMES & set(gpu_reading.values)
    return {gpu_reading.absent[name] for name in NAMES}


def test_one_look_says_nothing_and_two_say_what_happened_in_between() -> None:
    made = sampler(playing(node(gpu())))
    assert reasons(profiled(made, SECOND_NS)) == {reading.NO_DATA}
    assert set(profiled(made, 2 * SECOND_NS).values) >= NAMES


def test_looks_too_near_to_each_other_say_nothing_and_do_not_spoil_the_next() -> None:
    made = sampler(playing(node(gpu())))
    assert reasons(profiled(made, SECOND_NS, SECOND_NS + 1)) == {reading.NO_DATA}
    assert set(profiled(made, 2 * SECOND_NS).values) >= NAMES


def test_rows_that_are_asked_for_later_are_the_right_metrics() -> None:
    answers: dict[str, Any] = {f"nvmlGpmMetricsGet:{metric.metric_id}": metric.metric_id / 10 for metric in GPM_METRICS}
    made = sampler(playing(node(gpu(**answers))))
    second = SECOND_NS
    made.sample(second)
    for rows in (GPM_METRICS[3:5], GPM_METRICS[1:9], GPM_METRICS[5:6], GPM_METRICS):
        made.change(SamplerOptions(rows=tuple(metric.row.otlp_name for metric in rows)))
        second += SECOND_NS
        assert profiled(made, second).values == {
            metric.row.otlp_name: pytest.approx(metric.metric_id / 10 * metric.factor) for metric in rows
        }


def test_every_profiling_row_is_the_metric_that_nvml_says_it_is() -> None:
    names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_GPM_METRIC_")}
    words = {
        "GR_ENGINE": "GRAPHICS_UTIL",
        "SM_ACTIVE": "SM_UTIL",
        "SM_OCCUPANCY": "SM_OCCUPANCY",
        "PIPE_INT": "INTEGER_UTIL",
        "PIPE_TENSOR_ACTIVE": "ANY_TENSOR_UTIL",
        "DFMA": "DFMA_TENSOR_UTIL",
        "HMMA": "HMMA_TENSOR_UTIL",
        "IMMA": "IMMA_TENSOR_UTIL",
        "DRAM": "DRAM_BW_UTIL",
        "FP64": "FP64_UTIL",
        "FP32": "FP32_UTIL",
        "FP16": "FP16_UTIL",
        "PCIE_TX": "PCIE_TX_PER_SEC",
        "PCIE_RX": "PCIE_RX_PER_SEC",
        "NVLINK_RX": "NVLINK_TOTAL_RX_PER_SEC",
        "NVLINK_TX": "NVLINK_TOTAL_TX_PER_SEC",
        **{f"NVDEC{index}": f"NVDEC_{index}_UTIL" for index in range(8)},
    }
    for metric in GPM_METRICS:
        (word,) = [word for word in words if word in metric.row.otlp_name]
        assert names[metric.metric_id] == f"NVML_GPM_METRIC_{words[word]}"
    assert {metric.row for metric in GPM_METRICS} == set(profiling.ROWS)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (math.nan, reading.NO_DATA),
        (math.inf, reading.NO_DATA),
        (150.0, reading.IMPLAUSIBLE),
        ({"error": pynvml.NVML_ERROR_NOT_SUPPORTED}, reading.NOT_SUPPORTED),
        ({"error": pynvml.NVML_ERROR_NO_PERMISSION}, reading.NO_PERMISSION),
    ],
    ids=["nan", "infinite", "above 100 %", "not supported", "no permission"],
)
def test_a_metric_without_a_value_is_absent_alone(answer: Any, reason: str) -> None:
    shown = profiled(sampler(playing(node(gpu(**{"nvmlGpmMetricsGet:10": answer})))), SECOND_NS, 2 * SECOND_NS)
    assert shown.absent[profiling.DRAM_ACTIVE.otlp_name] == reason
    assert shown.values[profiling.GR_ENGINE_ACTIVE.otlp_name] == 0.5


def test_all_zero_on_a_busy_gpu_is_not_believed() -> None:
    assert reasons(profiled(sampler(playing(node(gpu(**gpm(0.0, 0.0))))), SECOND_NS, 2 * SECOND_NS)) == {
        reading.IMPLAUSIBLE
    }


def test_all_zero_on_an_idle_gpu_is_zero() -> None:
    idle = gpu(**gpm(0.0, 0.0), nvmlDeviceGetUtilizationRates={"gpu": 0, "memory": 0})
    shown = profiled(sampler(playing(node(idle))), SECOND_NS, 2 * SECOND_NS)
    assert {shown.values[name] for name in NAMES} == {0.0}


@pytest.mark.parametrize("support", [{"isSupportedDevice": 0}, NOT_SUPPORTED], ids=["said", "no such call"])
def test_an_older_gpu_says_that_it_needs_hopper(support: Any) -> None:
    old = gpu(nvmlGpmQueryDeviceSupport=support)
    assert reasons(profiled(sampler(playing(node(old))), SECOND_NS, 2 * SECOND_NS)) == {reading.NEEDS_HOPPER}


def test_a_divided_gpu_leaves_profiling_to_its_instances() -> None:
    nvml = playing(divided(instance("1g.10gb", 9, "MIG-1")))

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    nvml.inject("nvmlGpmSampleGet", refuse)
    made = sampler(nvml)
    made.sample(SECOND_NS)
    whole, part = made.sample(2 * SECOND_NS).gpus
    assert reasons(whole) == {reading.MIG}
    assert set(part.values) >= NAMES


def test_where_no_profiling_row_is_asked_for_none_is_looked_at() -> None:
    nvml = playing(node(gpu()))
    made = Sampler(nvml, SamplerOptions(rows=("DCGM_FI_DEV_GPU_UTIL",))).start()
    made.sample(SECOND_NS)
    assert nvml.gpm_samples == {}


def test_the_memory_of_an_instance_that_is_gone_is_freed() -> None:
    nvml = playing(divided(instance("1g.10gb", 9, "MIG-1"), instance("1g.10gb", 10, "MIG-2")))
    made = sampler(nvml)
    made.sample(SECOND_NS)
    assert len(nvml.gpm_samples) == 6
    del nvml.answers["0/1"]
    made.sample(SECOND_NS + RELIST_NS)
    assert len(nvml.gpm_samples) == 4


def test_memory_that_is_not_to_be_had_is_an_error_and_leaves_none_behind() -> None:
    nvml, asked = playing(node(gpu())), []

    def refuse_the_second() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_MEMORY)

    nvml.inject("nvmlGpmSampleAlloc", refuse_the_second)
    made = sampler(nvml)
    sampled = made.sample(SECOND_NS)
    assert reasons(sampled.gpus[0]) == {reading.ERROR}
    assert sampled.errors == (("nvmlGpmSampleGet", "Memory"),)
    assert nvml.gpm_samples == {}


def test_options_name_rows_that_exist() -> None:
    assert set(SamplerOptions().rows) <= set(ROWS)
