"""TPU metrics, which `exporter/tpu` reads from the runtime (libtpu) of the program that uses the TPU.

Source of the runtime's names: tpu-info 0.14.2 (AI-Hypercomputer/cloud-accelerator-diagnostics, tpu_info/metrics.py).
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import kafka_metric

RUNTIME_LABELS: Final = ("Hostname", "port", "modelName", "source")
TPU_LABELS: Final = (*RUNTIME_LABELS, "tpu")
HLO_LABELS: Final = (*TPU_LABELS, "core_type")
TRANSFER_LABELS: Final = (*RUNTIME_LABELS, "buffer_size")


def _gauge(name: str, help: str, unit: str, runtime: str, labels: tuple[str, ...] = TPU_LABELS) -> Metric:  # noqa: A002  the field's name
    return kafka_metric(f"tpu.{name}", Kind.GAUGE, help, unit=unit, labels=labels, source=f"TPU runtime {runtime}")


def _durations(name: str, help: str, runtime: str, labels: tuple[str, ...] = TRANSFER_LABELS) -> Metric:  # noqa: A002  the field's name
    return kafka_metric(f"tpu.{name}", Kind.HISTOGRAM, help, unit="s", labels=labels, source=f"TPU runtime {runtime}")


def _megascale(name: str, help: str, runtime: str, labels: tuple[str, ...] = TRANSFER_LABELS) -> Metric:  # noqa: A002  the field's name
    return _durations(f"megascale.{name}", help, f"megascale.{runtime}.microsecond.cumulative.distribution", labels)


HBM_TOTAL: Final = _gauge("hbm.memory.total", "Memory of the TPU.", "By", "tpu.runtime.hbm.memory.total.bytes")
HBM_USED: Final = _gauge("hbm.memory.used", "Memory in use.", "By", "tpu.runtime.hbm.memory.usage.bytes")
HBM_UTILIZATION: Final = _gauge(
    "hbm.utilization", "HBM utilization, as the runtime reports it.", "1", "tpu.runtime.hbm.utilization.percent"
)
DUTY_CYCLE: Final = _gauge(
    "tensorcore.duty_cycle",
    "Share of time in which the TensorCore was at work.",
    "1",
    "tpu.runtime.tensorcore.dutycycle.percent",
)
IDLE_DURATION: Final = _gauge(
    "tensorcore.idle_duration",
    "For how long the TensorCore has been idle.",
    "s",
    "tpu.runtime.tensorcore.idle_duration.seconds",
)
HLO_QUEUE: Final = _gauge("hlo.queue.size", "Programs (HLO) that wait.", "", "hlo.queue.size.gauge", HLO_LABELS)
HLO_EXECUTION: Final = _durations(
    "hlo.execution", "Execution of a program (HLO).", "hlo.execution.timing.distribution.microseconds", HLO_LABELS
)
DCN_OUT: Final = _megascale(
    "dcn_transfer", "Transfer to another slice over the data centre network.", "dcn_transfer_latencies"
)
DCN_IN: Final = _megascale(
    "dcn_inbound_transfer",
    "Transfer from another slice over the data centre network.",
    "dcn_inbound_transfer_latencies",
)
HOST_TO_DEVICE: Final = _megascale(
    "host_to_device_transfer", "Transfer from host to TPU.", "host_to_device_transfer_latencies"
)
DEVICE_TO_HOST: Final = _megascale(
    "device_to_host_transfer", "Transfer from TPU to host.", "device_to_host_transfer_latencies"
)
COLLECTIVE: Final = _megascale(
    "collective", "Collective operation between slices, end to end.", "collective_end_to_end_latencies"
)
HOST_COMPUTE: Final = _megascale("host_compute", "Work of the host for a collective.", "mxla_compute_latencies")
TCP_MIN_RTT: Final = _megascale(
    "tcp_min_rtt", "Least round-trip time of a TCP connection.", "grpc_tcp_min_rtt", RUNTIME_LABELS
)
TCP_DELIVERY_RATE: Final = kafka_metric(
    "tpu.megascale.tcp_delivery_rate",
    Kind.HISTOGRAM,
    "Delivery rate of TCP connections; sum and count, the mean is their quotient.",
    unit="By/s",
    labels=RUNTIME_LABELS,
    source="TPU runtime megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution",
)
ABSENT: Final = kafka_metric(
    "kernelcast.tpu.metric_absent",
    Kind.GAUGE,
    'A row that a TPU\'s runtime does not report, always 1; metric="all" if it reports none. Reasons: no_program '
    "(no answer: no program uses the TPU), not_supported, no_data (an empty answer), timeout, error.",
    unit="",
    labels=(*RUNTIME_LABELS, "metric", "reason"),
    source="exporter",
)

ROWS: Final = (
    HBM_TOTAL,
    HBM_USED,
    HBM_UTILIZATION,
    DUTY_CYCLE,
    IDLE_DURATION,
    HLO_QUEUE,
    HLO_EXECUTION,
    DCN_OUT,
    DCN_IN,
    HOST_TO_DEVICE,
    DEVICE_TO_HOST,
    COLLECTIVE,
    HOST_COMPUTE,
    TCP_MIN_RTT,
    TCP_DELIVERY_RATE,
    ABSENT,
)
