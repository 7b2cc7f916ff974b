"""Words and units of the metrics that forecasts and alerts are about: panels show them in place of metrics' names."""

from collections.abc import Iterator
from typing import Final

from kernelcast.grafana.model.panels import Json, Placed, States
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, gpu, nvlink, profiling
from kernelcast.wire.catalogue.model import Metric

_WORDS: Final[tuple[tuple[Metric, str, str], ...]] = (
    (device.GPU_TEMP, "GPU temperature", "celsius"),
    (device.MEMORY_TEMP, "Memory temperature", "celsius"),
    (device.POWER_USAGE, "Power draw", "watt"),
    (device.FB_USED, "GPU memory used", "mbytes"),
    (device.FB_FREE, "GPU memory free", "mbytes"),
    (device.GPU_UTIL, "GPU utilisation", "percent"),
    (device.SM_CLOCK, "SM clock (MHz)", "none"),
    (device.CLOCK_EVENT_REASONS, "Reasons for reduced clocks", "none"),
    (device.PCIE_LINK_GEN, "PCIe generation", "none"),
    (device.PCIE_LINK_WIDTH, "PCIe lanes", "none"),
    (device.PCIE_REPLAY, "PCIe retries", "eps"),
    (device.ECC_SBE_VOLATILE, "Corrected memory errors", "eps"),
    (device.ECC_DBE_VOLATILE, "Uncorrectable memory errors", "eps"),
    (device.UNCORRECTABLE_REMAPPED_ROWS, "Rows remapped, uncorrectable", "none"),
    (device.CORRECTABLE_REMAPPED_ROWS, "Rows remapped, correctable", "none"),
    (device.ROW_REMAP_FAILURE, "Failed row remap", "none"),
    (device.ROW_REMAP_PENDING, "Row remap that waits for a reset", "none"),
    (device.RETIRED_PENDING, "Pages to retire", "none"),
    (device.XID_ERRORS, "Last XID", "none"),
    (device.RECOVERY_ACTION, "Recovery action", "none"),
    (profiling.PIPE_TENSOR_ACTIVE, "Tensor pipe busy", "percentunit"),
    (profiling.DRAM_ACTIVE, "Memory interface busy", "percentunit"),
    (nvlink.UP, "NVLink up", "none"),
    (nvlink.ERRORS, "NVLink errors", "eps"),
    (gpu.GPU_UP, "GPU answers", "none"),
    (kernel.DURATION, "Kernel duration", "s"),
    (kernel.MEMCPY_SECONDS, "Copy time", "percentunit"),
    (kernel.SYNC_WAIT, "Threads waiting", "none"),
    (kernel.LAUNCHES, "Launches a second", "none"),
)

LOADER: Final = (
    "First double its DataLoader's num_workers, up to the CPU cores per GPU, then set prefetch_factor=4; where the "
    "CPUs or the storage are busy already, that does not help."
)
"""First step for a program whose steps wait for data."""
METRICS: Final[States] = {metric.prometheus_name: (words, "") for metric, words, _ in _WORDS}
"""For the cells of a column with metrics' names."""


def renamed(placed: Placed) -> Placed:
    """The panel with words instead of the names of metrics in its legend."""
    placed.panel.transformations = [
        {"id": "renameByRegex", "options": {"regex": f"^{name}(.*)$", "renamePattern": f"{words}$1"}}
        for name, (words, _) in METRICS.items()
    ]
    return placed


def units(suffix: str) -> Iterator[Json]:
    """An override for each unit, for series whose name is a metric's words and the suffix."""
    by_unit: dict[str, list[str]] = {}
    for _, words, unit in _WORDS:
        by_unit.setdefault(unit, []).append(words.replace("(", r"\(").replace(")", r"\)"))
    for unit, names in by_unit.items():
        yield {
            "matcher": {"id": "byRegexp", "options": f"/^({'|'.join(names)}){suffix}$/"},
            "properties": [{"id": "unit", "value": unit}],
        }


def worded(expr: str) -> str:
    """The results with the label `words`: the words of the metric in their label `metric`, or its name."""
    expr = f'label_replace({expr}, "words", "$1", "metric", "(.+)")'
    for name, (words, _) in METRICS.items():
        expr = f'label_replace({expr}, "words", "{words}", "metric", "{name}")'
    return expr
