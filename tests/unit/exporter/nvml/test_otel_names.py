"""Rows under OpenTelemetry's names.

Source: open-telemetry/semantic-conventions 1.44.0, model/hardware/{gpu,common,temperature}-metrics.yaml.
"""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.exporter.nvml_double import DRIVER, divided, field, gpu, instance, node, playing

from kernelcast.columnar import Sample
from kernelcast.exporter.exposition import render
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.otel_names import SOURCE_ROWS, OtelNames
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.samples import CounterStarts
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue.devices import device, otel, profiling
from kernelcast.wire.identity import LIVE

SECOND_NS = 1_000_000_000
MIB = 2**20
COMMON = {
    "hw.id": "GPU-1", "hw.type": "gpu", "hw.name": "GPU 0", "hw.model": "NVIDIA H200", "hw.vendor": "NVIDIA",
    "hw.driver_version": DRIVER,
}  # fmt: skip


def polled(nvml: RecordedNvml, table: Path | None = None) -> tuple[Sample, ...]:
    """Two intervals of a source with both names."""
    counters = CountersFile(table, sources=SOURCE_ROWS)
    source = NvmlSource(Sampler(nvml, counters.options), hostname="node1", boot_ns=SECOND_NS, counters=counters)
    source.name_as_opentelemetry()
    source.start().poll(2 * SECOND_NS)
    samples = source.poll(4 * SECOND_NS).samples
    source.close()
    return samples


def named(samples: tuple[Sample, ...], row: Any, label: str = "") -> dict[str, Any]:
    return {dict(one.attributes).get(label, ""): one.value for one in samples if one.metric is row}


def test_the_values_are_ours_in_the_conventions_units() -> None:
    samples = polled(playing(node(gpu() | field(3, 7) | field(4, 2))))
    assert named(samples, otel.UTILIZATION, otel.TASK).keys() == {"general", "encoder", "decoder"}
    (power,), (watt,) = named(samples, otel.POWER).values(), named(samples, device.POWER_USAGE).values()
    assert power == watt == 77.67
    assert named(samples, otel.ENERGY) == {"": pytest.approx(123_456.789)}
    assert named(samples, otel.TEMPERATURE, otel.SENSOR)["gpu"] == 41
    assert named(samples, otel.ERRORS, otel.ERROR) == {"corrected": 7, "uncorrected": 2}
    (used,), (limit,) = named(samples, otel.MEMORY_USAGE).values(), named(samples, otel.MEMORY_LIMIT).values()
    memory = [named(samples, row)[""] * MIB for row in (device.FB_USED, device.FB_FREE, device.FB_RESERVED)]
    assert (used, limit) == (memory[0], sum(memory))
    assert named(samples, otel.MEMORY_UTILIZATION) == {"": pytest.approx(used / limit)}
    assert named(samples, otel.IO, otel.DIRECTION) == {"receive": 2 * 3 * MIB, "transmit": 2 * 3 * MIB}, "3 MiB/s, 2 s"


def test_each_has_the_conventions_attributes_and_the_pages_spelling() -> None:
    samples = tuple(one for one in polled(playing(node(gpu()))) if one.metric in otel.ROWS)
    for sample in samples:
        assert COMMON.items() <= dict(sample.attributes).items()
        assert {name for name, _ in sample.attributes} <= set(sample.metric.labels)
    families = {family.name: family for family in text_string_to_metric_families(render(samples).decode())}
    assert {"hw_gpu_memory_usage_bytes", "hw_gpu_utilization_ratio", "hw_power_watts", "hw_energy_joules"} <= set(
        families
    )
    assert families["hw_temperature_celsius"].samples[0].labels["hw_id"] == "GPU-1"


def test_rows_that_only_feed_them_are_not_written(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, Clock\n")
    samples = polled(playing(node(gpu())), table)
    names = {one.metric.otlp_name for one in samples}
    assert {name for name in names if name.startswith("DCGM_")} == {"DCGM_FI_DEV_SM_CLOCK"}
    assert {row.otlp_name for row in otel.ROWS} <= names | {otel.ERRORS.otlp_name}
    assert not [one for one in samples if dict(one.attributes).get("field", "").startswith("DCGM_FI_DEV_ECC")]


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, "ok"),
        ({device.CLOCK_EVENT_REASONS.otlp_name: 0x4}, "ok"),
        ({device.CLOCK_EVENT_REASONS.otlp_name: 0x44}, "degraded"),
        ({device.ROW_REMAP_FAILURE.otlp_name: 1}, "failed"),
        ({device.RECOVERY_ACTION.otlp_name: 1}, "failed"),
        ({device.RECOVERY_ACTION.otlp_name: 3}, "degraded"),
    ],
)
def test_the_state_is_one_of_three(values: dict[str, int], state: str) -> None:
    made = OtelNames("node1", LIVE, CounterStarts(1))
    shown = tuple(made.samples(NodeReading(5, gpus=(GpuReading("GPU-1", "0", values=values),))))
    assert named(shown, otel.STATUS, otel.STATE) == {one: int(one == state) for one in ("ok", "degraded", "failed")}


def test_a_gpu_that_is_gone_has_failed_under_the_same_labels() -> None:
    made = OtelNames("node1", LIVE, CounterStarts(1))
    before = tuple(made.samples(NodeReading(5, "590", (GpuReading("GPU-1", "0", model_name="H200"),))))
    after = tuple(made.samples(NodeReading(6, "590", (GpuReading("GPU-1", "0"),), missing=("GPU-1",))))
    assert named(after, otel.STATUS, otel.STATE) == {"ok": 0, "degraded": 0, "failed": 1}
    assert [one.attributes for one in after] == [one.attributes for one in before if one.metric is otel.STATUS]


def test_bytes_are_sums_over_the_time_between_readings_and_a_clock_that_is_set_back_adds_nothing() -> None:
    made = OtelNames("node1", LIVE, CounterStarts(1))
    one = GpuReading("GPU-1", "0", values={profiling.PCIE_RX_BYTES.otlp_name: 100.0})
    totals = [
        named(tuple(made.samples(NodeReading(second * SECOND_NS, gpus=(one,)))), otel.IO, otel.DIRECTION)["receive"]
        for second in (10, 11, 5, 7)
    ]
    assert totals == [0, 100, 100, 300]


def test_a_mig_instance_has_none() -> None:
    samples = polled(playing(divided(instance("1g.18gb", 1, "MIG-1"))))
    assert {dict(one.attributes)["hw.id"] for one in samples if one.metric in otel.ROWS} == {"GPU-1"}
