"""Device metrics under OpenTelemetry's names, beside DCGM's: `exporter.naming: both`. They are no rows of `CATALOGUE`.

In line with the semantic conventions 1.44.0, model/hardware, where all of them are in development. There
`hw.gpu.memory.limit`, `hw.gpu.memory.usage` and `hw.status` are UpDownCounters; here they are gauges.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import kafka_metric

ID, TYPE, NAME, MODEL, VENDOR = "hw.id", "hw.type", "hw.name", "hw.model", "hw.vendor"
DRIVER_VERSION: Final = "hw.driver_version"
TASK, SENSOR, STATE = "hw.gpu.task", "hw.sensor_location", "hw.state"
DIRECTION, ERROR = "network.io.direction", "error.type"
_LABELS: Final = ("Hostname", ID, TYPE, NAME, MODEL, VENDOR, DRIVER_VERSION, "source")
OK, DEGRADED, FAILED = "ok", "degraded", "failed"


def _metric(name: str, kind: Kind, help: str, unit: str, source: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return kafka_metric(f"hw.{name}", kind, help, unit=unit, labels=(*_LABELS, *labels), source=source)


IO: Final = _metric(
    "gpu.io",
    Kind.COUNTER,
    "Bytes that the GPU has received and transmitted over PCIe, since the exporter started.",
    "By",
    "DCGM_FI_PROF_PCIE_RX_BYTES, DCGM_FI_PROF_PCIE_TX_BYTES, times the interval",
    DIRECTION,
)
MEMORY_LIMIT: Final = _metric(
    "gpu.memory.limit",
    Kind.GAUGE,
    "Size of the GPU memory.",
    "By",
    "(DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED) * 2^20",
)
MEMORY_USAGE: Final = _metric("gpu.memory.usage", Kind.GAUGE, "GPU memory used.", "By", "DCGM_FI_DEV_FB_USED * 2^20")
MEMORY_UTILIZATION: Final = _metric(
    "gpu.memory.utilization", Kind.GAUGE, "Fraction of GPU memory used.", "1", "hw.gpu.memory.usage / limit"
)
UTILIZATION: Final = _metric(
    "gpu.utilization",
    Kind.GAUGE,
    "Fraction of time spent in a task: general, encoder or decoder.",
    "1",
    "DCGM_FI_DEV_GPU_UTIL, DCGM_FI_DEV_ENC_UTIL, DCGM_FI_DEV_DEC_UTIL, / 100",
    TASK,
)
POWER: Final = _metric(
    "power", Kind.GAUGE, "Instantaneous power consumed by the component.", "W", "DCGM_FI_DEV_POWER_USAGE"
)
ENERGY: Final = _metric(
    "energy", Kind.COUNTER, "Energy consumed by the component.", "J", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION / 1000"
)
TEMPERATURE: Final = _metric(
    "temperature",
    Kind.GAUGE,
    "Temperature in degrees Celsius: of the sensor gpu or memory.",
    "Cel",
    "DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_MEMORY_TEMP",
    SENSOR,
)
ERRORS: Final = _metric(
    "errors",
    Kind.COUNTER,
    "Errors of the GPU's memory since the driver was loaded: corrected or uncorrected.",
    "{error}",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    ERROR,
)
STATUS: Final = _metric(
    "status",
    Kind.GAUGE,
    "1 for the state that the GPU is in, 0 for the others. failed: it is gone, a row cannot be remapped, or the driver "
    "asks for a reset or reboot. degraded: heat, power brake or hardware slow it down, or its P2P is to be drained.",
    "",
    "kernelcast_gpu_up, DCGM_FI_DEV_ROW_REMAP_FAILURE, DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, "
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    STATE,
)
ROWS: Final = (
    IO,
    MEMORY_LIMIT,
    MEMORY_USAGE,
    MEMORY_UTILIZATION,
    UTILIZATION,
    POWER,
    ENERGY,
    TEMPERATURE,
    ERRORS,
    STATUS,
)
