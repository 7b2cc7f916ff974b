"""Features of a GPU or of a program on it, as a table: the figures that rules about causes compare, and their origins.

The predictor computes them (`causes/features.py` and its neighbours); `cause_rules` compares them; a finding shows them
as evidence, with the metric in which a person can look the figure up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, gpu, nvlink
from kernelcast.wire.catalogue.model import Kind, Metric

THERMAL_MARGIN: Final = Metric(
    "DCGM_FI_DEV_GPU_TEMP_LIMIT",
    Kind.GAUGE,
    "Degrees below the nearest temperature at which the GPU slows down (T.limit); newer GPUs report it.",
)
"""dcgm-exporter's name of DCGM's field 153. kernelcast's exporter has no such row; a recording may have it."""


class Feature(StrEnum):
    """Names of the features. `now` is the mean or median of the last 5 minutes, unless a feature says otherwise."""

    GPU_UP = "gpu_up"
    SILENT_INTERVALS = "silent_intervals"
    NODE_SILENT_INTERVALS = "node_silent_intervals"
    METRICS_LOST = "metrics_lost"
    XID_CODE = "xid_code"
    XID_COUNT = "xid_count"
    RECOVERY_ACTION = "recovery_action"
    DOUBLE_BIT_ERRORS = "double_bit_errors"
    SINGLE_BIT_ERRORS = "single_bit_errors"
    SINGLE_BIT_RATIO = "single_bit_ratio"
    REMAP_FAILURE = "remap_failure"
    UNCORRECTABLE_REMAPS = "uncorrectable_remaps"
    CORRECTABLE_REMAPS = "correctable_remaps"
    PENDING_RETIREMENTS = "pending_retirements"
    NVLINKS_DOWN = "nvlinks_down"
    NVLINK_ERRORS = "nvlink_errors"
    PCIE_WIDTH_RATIO = "pcie_width_ratio"
    PCIE_GENERATION_RATIO = "pcie_generation_ratio"
    PCIE_REPLAYS = "pcie_replays"
    PCIE_REPLAY_RATIO = "pcie_replay_ratio"
    POWER_BRAKE_SHARE = "power_brake_share"
    HARDWARE_SLOWDOWN_SHARE = "hardware_slowdown_share"
    HARDWARE_THERMAL_SHARE = "hardware_thermal_share"
    SOFTWARE_THERMAL_SHARE = "software_thermal_share"
    POWER_CAP_SHARE = "power_cap_share"
    CLOCK_RATIO = "clock_ratio"
    POWER_CAP_RATIO = "power_cap_ratio"
    LIMIT_MARGIN = "limit_margin"
    THERMAL_MARGIN = "thermal_margin"
    HOURS_TO_LIMIT = "hours_to_limit"
    HEAT_CERTAINTY = "heat_certainty"
    POWER_RATIO = "power_ratio"
    UTILIZATION = "utilization"
    UTILIZATION_RATIO = "utilization_ratio"
    HOURS_TO_FULL = "hours_to_full"
    LEAK_CERTAINTY = "leak_certainty"
    MEMORY_FALL = "memory_fall"
    PROCESS_AGE = "process_age"
    DURATION_RATIO = "duration_ratio"
    DURATION_CERTAINTY = "duration_certainty"
    PEER_RATIO = "peer_ratio"
    FLEET_RATIO = "fleet_ratio"
    FLEET_CLOCK_RATIO = "fleet_clock_ratio"
    PROGRAMS = "programs"
    MOVED_SHARE = "moved_share"
    DEPLOY_RATIO = "deploy_ratio"
    BEYOND_LIMIT = "beyond_limit"


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """Origin of a feature.

    Attributes:
        metric: Series that a person looks up.
        help: Definition of the figure, with its unit.
        against: Kind of the reference: `limit`, `baseline`, `peers`, `before` or empty.
    """

    metric: Metric
    help: str
    against: str = ""


def _share(reason: str) -> FeatureSource:
    return FeatureSource(device.CLOCK_EVENT_REASONS, f"share of the last 5 minutes in which {reason} was active")


def _increase(metric: Metric, events: str) -> FeatureSource:
    return FeatureSource(metric, f"{events} within the last hour", "before")


FEATURES: Final[Mapping[Feature, FeatureSource]] = MappingProxyType(
    {
        Feature.GPU_UP: FeatureSource(gpu.GPU_UP, "whether the GPU answers: 1 or 0"),
        Feature.SILENT_INTERVALS: FeatureSource(gpu.GPU_UP, "intervals since the GPU's last sample", "peers"),
        Feature.NODE_SILENT_INTERVALS: FeatureSource(
            gpu.GPU_UP, "intervals since the last sample of the node's other GPUs", "peers"
        ),
        Feature.METRICS_LOST: FeatureSource(
            gpu.FIELD_ABSENT, "metrics that the GPU reported before and the node's other GPUs still report", "peers"
        ),
        Feature.XID_CODE: FeatureSource(device.XID_ERRORS, "number of the XID that occurred within the last hour"),
        Feature.XID_COUNT: _increase(gpu.XID_ERRORS, "XIDs"),
        Feature.RECOVERY_ACTION: FeatureSource(device.RECOVERY_ACTION, "action that the driver recommends; 0 for none"),
        Feature.DOUBLE_BIT_ERRORS: _increase(device.ECC_DBE_VOLATILE, "double-bit errors"),
        Feature.SINGLE_BIT_ERRORS: _increase(device.ECC_SBE_VOLATILE, "single-bit errors"),
        Feature.SINGLE_BIT_RATIO: FeatureSource(
            device.ECC_SBE_VOLATILE, "single-bit errors of the last hour by their usual rate, at least 1/h", "before"
        ),
        Feature.REMAP_FAILURE: FeatureSource(device.ROW_REMAP_FAILURE, "whether remapping of rows has failed"),
        Feature.UNCORRECTABLE_REMAPS: _increase(device.UNCORRECTABLE_REMAPPED_ROWS, "rows remapped for such errors"),
        Feature.CORRECTABLE_REMAPS: _increase(device.CORRECTABLE_REMAPPED_ROWS, "rows remapped for such errors"),
        Feature.PENDING_RETIREMENTS: FeatureSource(device.RETIRED_PENDING, "pages that wait for a reset to be retired"),
        Feature.NVLINKS_DOWN: FeatureSource(nvlink.UP, "links that were up before and are down", "before"),
        Feature.NVLINK_ERRORS: _increase(nvlink.ERRORS, "errors of all links"),
        Feature.PCIE_WIDTH_RATIO: FeatureSource(device.PCIE_LINK_WIDTH, "lanes in use by lanes possible", "limit"),
        Feature.PCIE_GENERATION_RATIO: FeatureSource(
            device.PCIE_LINK_GEN, "link generation by the one possible, while the GPU is busy", "limit"
        ),
        Feature.PCIE_REPLAYS: _increase(device.PCIE_REPLAY, "PCIe replays"),
        Feature.PCIE_REPLAY_RATIO: FeatureSource(
            device.PCIE_REPLAY, "PCIe replays of the last hour by their usual rate, at least 1/h", "before"
        ),
        Feature.POWER_BRAKE_SHARE: _share("the hardware power brake (0x80)"),
        Feature.HARDWARE_SLOWDOWN_SHARE: _share("hardware slowdown (0x8)"),
        Feature.HARDWARE_THERMAL_SHARE: _share("hardware thermal slowdown (0x40)"),
        Feature.SOFTWARE_THERMAL_SHARE: _share("software thermal slowdown (0x20)"),
        Feature.POWER_CAP_SHARE: _share("the software power cap (0x4)"),
        Feature.CLOCK_RATIO: FeatureSource(
            device.SM_CLOCK, "SM clock by its usual one at the same utilisation (10 points more or less)", "baseline"
        ),
        Feature.POWER_CAP_RATIO: FeatureSource(device.POWER_USAGE, "power by the power limit", "limit"),
        Feature.LIMIT_MARGIN: FeatureSource(device.GPU_TEMP, "degrees C below the slowdown temperature", "limit"),
        Feature.THERMAL_MARGIN: FeatureSource(THERMAL_MARGIN, "degrees C to the nearest slowdown (T.limit)", "limit"),
        Feature.HOURS_TO_LIMIT: FeatureSource(
            device.GPU_TEMP, "hours to the slowdown temperature, at the slope that power does not explain", "limit"
        ),
        Feature.HEAT_CERTAINTY: FeatureSource(
            device.GPU_TEMP, "slope of the temperature without the part of power, in standard errors", "before"
        ),
        Feature.POWER_RATIO: FeatureSource(device.POWER_USAGE, "power now by power 2 hours before", "before"),
        Feature.UTILIZATION: FeatureSource(device.GPU_UTIL, "utilisation in per cent"),
        Feature.UTILIZATION_RATIO: FeatureSource(device.GPU_UTIL, "utilisation now by its usual value", "before"),
        Feature.HOURS_TO_FULL: FeatureSource(device.FB_USED, "hours until memory is full, at its slope", "limit"),
        Feature.LEAK_CERTAINTY: FeatureSource(device.FB_USED, "slope of memory in standard errors", "before"),
        Feature.MEMORY_FALL: FeatureSource(device.FB_USED, "largest fall of memory in use, as a share of it", "before"),
        Feature.PROCESS_AGE: FeatureSource(kernel.PROBE_INFO, "seconds since the program's process began"),
        Feature.DURATION_RATIO: FeatureSource(kernel.DURATION, "duration by its own baseline", "baseline"),
        Feature.DURATION_CERTAINTY: FeatureSource(
            kernel.DURATION, "slope of the duration since the last step, in standard errors", "before"
        ),
        Feature.PEER_RATIO: FeatureSource(
            kernel.DURATION, "duration by the median of the same kernel on GPUs of the same model", "peers"
        ),
        Feature.FLEET_RATIO: FeatureSource(
            kernel.DURATION, "usual duration by that of the same kernel and configuration on other nodes", "peers"
        ),
        Feature.FLEET_CLOCK_RATIO: FeatureSource(device.SM_CLOCK, "usual SM clock by that of other nodes", "peers"),
        Feature.PROGRAMS: FeatureSource(kernel.PROBE_INFO, "programs on the GPU: its series, counted by program"),
        Feature.MOVED_SHARE: FeatureSource(
            kernel.DURATION, "share of the GPU's kernels that are 10 % slower", "before"
        ),
        Feature.DEPLOY_RATIO: FeatureSource(
            kernel.DURATION, "duration since the last change of version by that before it", "before"
        ),
        Feature.BEYOND_LIMIT: FeatureSource(kernel.DURATION, "whether the judged series is at or beyond its limit"),
    }
)
