"""Metrics of NCCL's operations, which `exporter/nccl_inspector` reads from the files of NVIDIA's NCCL Inspector."""

from typing import Final

from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

NCCL_LABELS: Final = (
    *("Hostname", "UUID", "gpu", "GPU_I_ID", "source", "hpc_job"),
    *("communicator", "ranks", "nodes", "operation", "message_size", "algorithm"),
)

BUS_BANDWIDTH: Final = kafka_metric(
    "kernelcast.nccl.bus_bandwidth",
    Kind.GAUGE,
    "Bus bandwidth of the operations of a communicator in the plugin's last interval, by size of the message: their "
    "geometric mean. It is comparable with the links' speed, whatever the operation and number of ranks.",
    unit="By/s",
    labels=NCCL_LABELS,
    source="NCCL Inspector, nccl_bus_bandwidth_gbs and nccl_p2p_bus_bandwidth_gbs",
)
OPERATION: Final = kafka_metric(
    "kernelcast.nccl.operation",
    Kind.GAUGE,
    "Time of an operation of a communicator in the plugin's last interval, by size of the message: their mean.",
    unit="s",
    labels=NCCL_LABELS,
    source="NCCL Inspector, nccl_collective_exec_time_microseconds and nccl_p2p_exec_time_microseconds",
)

ROWS: Final = (BUS_BANDWIDTH, OPERATION)
