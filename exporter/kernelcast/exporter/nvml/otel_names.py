"""Makes the rows under OpenTelemetry's names from a reading of the GPUs; `NvmlSource.poll` calls it once an interval.

MIG instances have none: the conventions have no place for them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.catalogue.devices import device, otel, profiling
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import Labels, labels

BYTES_PER_MEBIBYTE: Final = 2**20
PERCENT: Final = 0.01
JOULES_PER_MILLIJOULE: Final = 0.001
_PLAIN: Final = (
    (otel.UTILIZATION, device.GPU_UTIL, PERCENT, (otel.TASK, "general")),
    (otel.UTILIZATION, device.ENC_UTIL, PERCENT, (otel.TASK, "encoder")),
    (otel.UTILIZATION, device.DEC_UTIL, PERCENT, (otel.TASK, "decoder")),
    (otel.POWER, device.POWER_USAGE, 1, None),
    (otel.ENERGY, device.TOTAL_ENERGY, JOULES_PER_MILLIJOULE, None),
    (otel.TEMPERATURE, device.GPU_TEMP, 1, (otel.SENSOR, "gpu")),
    (otel.TEMPERATURE, device.MEMORY_TEMP, 1, (otel.SENSOR, "memory")),
    (otel.ERRORS, device.ECC_SBE_VOLATILE, 1, (otel.ERROR, "corrected")),
    (otel.ERRORS, device.ECC_DBE_VOLATILE, 1, (otel.ERROR, "uncorrected")),
)
"""Row, the row that it is read from, the factor of its values, and its own label."""
_DIRECTIONS: Final = ((profiling.PCIE_RX_BYTES, "receive"), (profiling.PCIE_TX_BYTES, "transmit"))
SOURCE_ROWS: Final = tuple(
    row.otlp_name
    for row in (
        *(source for _row, source, _factor, _label in _PLAIN),
        *(source for source, _direction in _DIRECTIONS),
        *(device.FB_USED, device.FB_FREE, device.FB_RESERVED),
        *(device.ROW_REMAP_FAILURE, device.RECOVERY_ACTION, device.CLOCK_EVENT_REASONS),
    )
)
"""OTLP names of the rows that are sampled for these."""
_SLOWED: Final = 0x8 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, heat as software and hardware see it, power brake: nvml.h, nvmlClocksEventReasons."""
_RESET: Final = frozenset({1, 2, 4})
"""Reset, reboot, drain and reset: nvml.h, nvmlDeviceGpuRecoveryAction_t."""
_DRAIN: Final = 3
StartOf = Callable[[GpuReading, str, float, int], int]


class OtelNames:
    """Rows under OpenTelemetry's names. Only the daemon's thread uses it.

    Args:
        hostname: The node's name.
        source: One of `wire.identity.SOURCES`.
        start_of: Start times of counters; see `samples.StartOf`.
    """

    def __init__(self, hostname: str, source: str, start_of: StartOf) -> None:
        self._hostname, self._source, self._start_of = hostname, source, start_of
        self._labels: dict[str, Mapping[str, str]] = {}
        self._read_at: dict[str, int] = {}
        self._bytes: dict[tuple[str, str], float] = {}

    def samples(self, node: NodeReading) -> Iterator[Sample]:
        """Every sample of a reading."""
        for gpu in node.gpus:
            if not gpu.gi_id and gpu.uuid not in node.missing:
                self._labels[gpu.uuid] = self._labels_of(gpu, node.driver_version)
                for row, value, more in (*_plain(gpu.values), *_memory(gpu.values), *self._traffic(gpu, node.time_ns)):
                    yield self._sample(gpu, row, value, node.time_ns, more)
                yield from self._status(gpu.uuid, _state(gpu.values), node.time_ns)
        for uuid in node.missing:
            yield from self._status(uuid, otel.FAILED, node.time_ns)

    def _labels_of(self, gpu: GpuReading, driver_version: str) -> Mapping[str, str]:
        return {
            "Hostname": self._hostname,
            "source": self._source,
            otel.ID: gpu.uuid,
            otel.TYPE: "gpu",
            otel.NAME: f"GPU {gpu.index}",
            otel.MODEL: gpu.model_name,
            otel.VENDOR: "NVIDIA",
            otel.DRIVER_VERSION: driver_version,
        }

    def _sample(self, gpu: GpuReading, row: Metric, value: float, time_ns: int, more: Mapping[str, str]) -> Sample:
        start_ns = 0
        if row.kind is Kind.COUNTER:
            start_ns = self._start_of(gpu, " ".join((row.otlp_name, *more.values())), value, time_ns)
        return Sample(row, _joined(self._labels[gpu.uuid], more), time_ns, value, start_ns)

    def _status(self, uuid: str, state: str, time_ns: int) -> Iterator[Sample]:
        own = self._labels.get(uuid, {"Hostname": self._hostname, otel.ID: uuid, otel.TYPE: "gpu"})
        for one in (otel.OK, otel.DEGRADED, otel.FAILED):
            yield Sample(otel.STATUS, _joined(own, {otel.STATE: one}), time_ns, int(one == state))

    def _traffic(self, gpu: GpuReading, time_ns: int) -> Iterator[tuple[Metric, float, Mapping[str, str]]]:
        """Sums of bytes: GPM gives means over the time since its last sample."""
        before_ns = self._read_at.get(gpu.uuid, time_ns)
        self._read_at[gpu.uuid] = time_ns
        for row, direction in _DIRECTIONS:
            rate = gpu.values.get(row.otlp_name)
            if rate is not None:
                passed_seconds = max(time_ns - before_ns, 0) / NANOSECONDS_PER_SECOND
                total = self._bytes.get((gpu.uuid, direction), 0.0) + rate * passed_seconds
                self._bytes[gpu.uuid, direction] = total
                yield otel.IO, round(total), {otel.DIRECTION: direction}


def _plain(values: Mapping[str, int | float]) -> Iterator[tuple[Metric, float, Mapping[str, str]]]:
    for row, source, factor, label in _PLAIN:
        value = values.get(source.otlp_name)
        if value is not None:
            yield row, value * factor, dict((label,) if label else ())


def _memory(values: Mapping[str, int | float]) -> Iterator[tuple[Metric, float, Mapping[str, str]]]:
    used, free, reserved = (values.get(row.otlp_name) for row in (device.FB_USED, device.FB_FREE, device.FB_RESERVED))
    if used is None:
        return
    yield otel.MEMORY_USAGE, used * BYTES_PER_MEBIBYTE, {}
    if free is not None:
        whole = used + free + (reserved or 0)
        yield otel.MEMORY_LIMIT, whole * BYTES_PER_MEBIBYTE, {}
        if whole:
            yield otel.MEMORY_UTILIZATION, used / whole, {}


def _state(values: Mapping[str, int | float]) -> str:
    """The state of a GPU that answers; what it does not say is taken to be in order."""
    action = values.get(device.RECOVERY_ACTION.otlp_name)
    if values.get(device.ROW_REMAP_FAILURE.otlp_name) or action in _RESET:
        return otel.FAILED
    slowed = int(values.get(device.CLOCK_EVENT_REASONS.otlp_name, 0)) & _SLOWED
    return otel.DEGRADED if slowed or action == _DRAIN else otel.OK


def _joined(own: Mapping[str, str], more: Mapping[str, str]) -> Labels:
    return labels(**own, **more)
