"""Table of the TPU runtime's metrics that are read: their catalogue rows, units and labels. `reader.py` uses it."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import tpu

NANOSECONDS_PER_MICROSECOND: Final = 1_000.0
PERCENT: Final = 0.01
BYTES_PER_MEGABIT: Final = 1_000_000 / 8
NANO: Final = 1e9


@dataclass(frozen=True, slots=True)
class RuntimeMetric:
    """A metric of the runtime.

    Attributes:
        row: Its row of the catalogue.
        factor: Converts its unit to the row's unit; for distributions to 1e-9 of that (seconds: nanoseconds).
        labels: Pairs of the runtime's attribute and our label; points that differ in other attributes are added.
        detailed: Whether a distribution is sent with buckets.
    """

    row: Metric
    factor: float = 1.0
    labels: tuple[tuple[str, str], ...] = (("device", "tpu"),)
    detailed: bool = False


_HLO: Final = (("device", "tpu"), ("core_type", "core_type"))
_SIZE: Final = (("buffer-size", "buffer_size"),)


def _durations(row: Metric, labels: tuple[tuple[str, str], ...] = _SIZE) -> RuntimeMetric:
    return RuntimeMetric(row, NANOSECONDS_PER_MICROSECOND, labels, detailed=True)


METRICS: Final = MappingProxyType(
    {
        "tpu.runtime.hbm.memory.total.bytes": RuntimeMetric(tpu.HBM_TOTAL),
        "tpu.runtime.hbm.memory.usage.bytes": RuntimeMetric(tpu.HBM_USED),
        "tpu.runtime.hbm.utilization.percent": RuntimeMetric(tpu.HBM_UTILIZATION, PERCENT),
        "tpu.runtime.tensorcore.dutycycle.percent": RuntimeMetric(tpu.DUTY_CYCLE, PERCENT),
        "tpu.runtime.tensorcore.idle_duration.seconds": RuntimeMetric(tpu.IDLE_DURATION),
        "hlo.queue.size.gauge": RuntimeMetric(tpu.HLO_QUEUE, labels=_HLO),
        "hlo.execution.timing.distribution.microseconds": _durations(tpu.HLO_EXECUTION, _HLO),
        "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution": _durations(tpu.DCN_OUT),
        "megascale.dcn_inbound_transfer_latencies.microsecond.cumulative.distribution": _durations(tpu.DCN_IN),
        "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution": _durations(
            tpu.HOST_TO_DEVICE
        ),
        "megascale.device_to_host_transfer_latencies.microsecond.cumulative.distribution": _durations(
            tpu.DEVICE_TO_HOST
        ),
        "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution": _durations(tpu.COLLECTIVE),
        "megascale.mxla_compute_latencies.microsecond.cumulative.distribution": _durations(tpu.HOST_COMPUTE),
        "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution": _durations(tpu.TCP_MIN_RTT, ()),
        "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution": RuntimeMetric(
            tpu.TCP_DELIVERY_RATE, BYTES_PER_MEGABIT * NANO, ()
        ),
    }
)
"""By the runtime's name."""
