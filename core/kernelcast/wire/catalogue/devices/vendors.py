"""What exporters of other vendors call the rows that all accelerators share, as a table: `exporter.scrape` reads pages.

Sources of names, units and labels:
AMD device-metrics-exporter 1.5.1 (afd0fe81), pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go; a site may set the prefix.
Intel XPU Manager 2.0.0-rc.0 (34c32c6e), xpumd/receiver/intelxpu/sysman/documentation.md, in Prometheus's spelling.
AWS neuron-monitor-prometheus.py, as open-telemetry/opentelemetry-collector-contrib (8e29fa0c) tests it.
Huawei ascend-npu-exporter (b2a7545), collector/npu_collector.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue.devices import accelerator as rows
from kernelcast.wire.catalogue.model import Metric

_MIB: Final = 2.0**20
_MEGA: Final = 1e6
_PERCENT: Final = 0.01
_MICRO: Final = 1e-6


@dataclass(frozen=True, slots=True)
class VendorSeries:
    """One metric of a vendor's exporter.

    Attributes:
        row: The row that it is.
        name: Its name on the page.
        factor: Of its values, for the row's unit.
        where: Labels that a series must have; an empty value: must not have.
        labels: Labels of the row.
        index: The label that numbers the device, where it is not the vendor's.
        zero: Whether 0 is a measurement; else a device without the sensor has it.
    """

    row: Metric
    name: str
    factor: float = 1.0
    where: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    index: str = ""
    zero: bool = True


@dataclass(frozen=True, slots=True)
class Vendor:
    """An exporter of a vendor.

    Attributes:
        accelerator: The label `accelerator` of its devices.
        series: What is read of its page.
        labels: Our label by the page's, the first that has a value; names of the page's in lower case.
        prefixes: Beginnings that its names may have.
        model: Name and label of the series that has the model of a device, by the same `UUID`; empty where labels do.
    """

    accelerator: str
    series: tuple[VendorSeries, ...]
    labels: Mapping[str, tuple[str, ...]]
    prefixes: tuple[str, ...] = ("",)
    model: tuple[str, str] = ("", "")


_AMD_CLOCKS: Final = (("system", "compute"), ("memory", "memory"))
_AMD: Final = Vendor(
    "gpu",
    (
        VendorSeries(rows.UTILIZATION, "gpu_gfx_activity", _PERCENT),
        VendorSeries(rows.MEMORY_USED, "gpu_used_vram", _MIB),
        VendorSeries(rows.MEMORY_TOTAL, "gpu_total_vram", _MIB, zero=False),
        *(
            VendorSeries(rows.POWER, name, zero=False)
            for name in ("gpu_package_power", "gpu_average_package_power", "gpu_power_usage")
        ),
        VendorSeries(rows.ENERGY, "gpu_energy_consumed", _MICRO, zero=False),
        *(
            VendorSeries(rows.TEMPERATURE, f"gpu_{name}_temperature", labels={"sensor": sensor}, zero=False)
            for name, sensor in (("edge", "chip"), ("junction", "hotspot"), ("memory", "memory"))
        ),
        *(
            VendorSeries(rows.CLOCK, "gpu_clock", _MEGA, {"clock_type": kind}, {"domain": domain})
            for word, domain in _AMD_CLOCKS
            for kind in (word, f"GPU_CLOCK_TYPE_{word.upper()}")
        ),
        *(
            VendorSeries(
                rows.THROTTLING, f"gpu_violation_{name}_residency_percentage", _PERCENT, labels={"reason": reason}
            )
            for name, reason in (
                ("ppt", "power"),
                ("socket_thermal", "heat"),
                ("hbm_thermal", "memory_heat"),
                ("vr_thermal", "regulator_heat"),
                ("processor_hot", "external"),
            )
        ),
        VendorSeries(rows.ERRORS, "gpu_ecc_correct_total", labels={"severity": "corrected"}),
        VendorSeries(rows.ERRORS, "gpu_ecc_uncorrect_total", labels={"severity": "uncorrected"}),
    ),
    {
        "index": ("gpu_id",),
        "UUID": ("gpu_uuid", "serial_number"),
        "modelName": ("card_series", "card_model"),
        "pod": ("pod",),
        "namespace": ("namespace",),
        "container": ("container",),
        "hpc_job": ("job_id",),
    },
    ("", "amd_"),
)
_INTEL: Final = Vendor(
    "gpu",
    (
        VendorSeries(rows.UTILIZATION, "hw_gpu_utilization_ratio", where={"hw_gpu_task": "all"}),
        VendorSeries(rows.MEMORY_USED, "hw_memory_usage_bytes", where={"hw_memory_location": "device"}),
        VendorSeries(rows.MEMORY_TOTAL, "hw_memory_size_bytes", where={"hw_memory_location": "device"}),
        VendorSeries(rows.POWER, "hw_power_watts", zero=False),
        VendorSeries(
            rows.ENERGY,
            "hw_energy_joules_total",
            where={"hw_sensor_location": "package", "com_intel_subdevice_id": ""},
            zero=False,
        ),
        *(
            VendorSeries(
                rows.TEMPERATURE,
                "hw_temperature_celsius",
                where={"hw_sensor_location": location},
                labels={"sensor": sensor},
                zero=False,
            )
            for location, sensor in (("gpu", "chip"), ("memory", "memory"))
        ),
        VendorSeries(
            rows.CLOCK,
            "hw_frequency_hertz",
            where={"hw_frequency_domain": "gpu", "aggregation": "avg"},
            labels={"domain": "compute"},
        ),
        VendorSeries(
            rows.THROTTLING,
            "hw_status",
            where={"hw_type": "frequency", "hw_state": "throttled"},
            labels={"reason": "any"},
        ),
        *(
            VendorSeries(rows.ERRORS, "hw_errors_total", where={"error_type": word}, labels={"severity": severity})
            for word, severity in (("correctable", "corrected"), ("uncorrectable", "uncorrected"))
        ),
    ),
    {"index": ("pci_bdf",), "UUID": ("hw_id",)},
    model=("hw_gpu_info", "hw_model"),
)
_NEURON: Final = Vendor(
    "neuron",
    (
        VendorSeries(rows.UTILIZATION, "neuroncore_utilization_ratio", index="neuroncore"),
        VendorSeries(rows.MEMORY_USED, "neuron_runtime_memory_used_bytes", where={"memory_location": "neuron_device"}),
        *(
            VendorSeries(
                rows.ERRORS,
                "hardware_ecc_events_total",
                where={"event_type": f"{memory}_ecc_{severity}"},
                labels={"severity": severity},
                index="neuron_device_index",
            )
            for memory in ("mem", "sram")
            for severity in ("corrected", "uncorrected")
        ),
    ),
    {"modelName": ("instance_type",)},
)
_ASCEND: Final = Vendor(
    "npu",
    (
        VendorSeries(rows.UTILIZATION, "npu_chip_info_utilization", _PERCENT),
        VendorSeries(rows.MEMORY_USED, "npu_chip_info_hbm_used_memory", _MIB),
        VendorSeries(rows.MEMORY_TOTAL, "npu_chip_info_hbm_total_memory", _MIB, zero=False),
        VendorSeries(rows.POWER, "npu_chip_info_power", zero=False),
        VendorSeries(rows.TEMPERATURE, "npu_chip_info_temperature", labels={"sensor": "chip"}, zero=False),
        VendorSeries(rows.CLOCK, "npu_chip_info_aicore_current_freq", _MEGA, labels={"domain": "compute"}, zero=False),
    ),
    {
        "index": ("id",),
        "UUID": ("vdie_id",),
        "modelName": ("model_name",),
        "pod": ("pod_name",),
        "namespace": ("namespace",),
        "container": ("container_name",),
    },
)
VENDORS: Final[Mapping[str, Vendor]] = MappingProxyType(
    {
        "AMD device-metrics-exporter": _AMD,
        "Intel XPU Manager 2": _INTEL,
        "AWS neuron-monitor": _NEURON,
        "Huawei npu-exporter": _ASCEND,
    }
)
"""By the name of the exporter."""
