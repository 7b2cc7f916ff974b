"""What comes into GPUs and leaves them: PCIe and NVLink."""

from kernelcast.grafana.dashboards.devices import GPU, INSTANCE, each, each_rate
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Look, Placed, Text, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import device, profiling

_KIBIBYTE = 1024


def row() -> Row:
    """Traffic, then errors."""
    return Row("Links", (_pcie(), _nvlink(), _nvlink_errors()))


def _pcie() -> Placed:
    text = Text(
        "PCIe traffic",
        "Bytes a second between host and GPU, protocol included. Whether NVML's number is MiB/s was not measured on a "
        "GPU yet.",
        nothing="No GPU gives profiling rows (GPM needs Hopper or later)",
    )
    queries = [
        Query(each(profiling.PCIE_TX_BYTES), f"{INSTANCE} out"),
        Query(each(profiling.PCIE_RX_BYTES), f"{INSTANCE} in"),
    ]
    return time_series(text, queries, Axis("Bps", low=0))


def _nvlink() -> Placed:
    text = Text(
        "NVLink traffic",
        "Bytes a second over all lanes: both directions from the driver's counters, and each direction from the "
        "profiling rows where they are asked for.",
        nothing="No GPU has NVLink",
    )
    queries = [
        Query(f"{each_rate(device.NVLINK_BANDWIDTH)} * {_KIBIBYTE}", f"{GPU} both ways"),
        Query(each(profiling.NVLINK_TX_BYTES), f"{INSTANCE} out"),
        Query(each(profiling.NVLINK_RX_BYTES), f"{INSTANCE} in"),
    ]
    return time_series(text, queries, Axis("Bps", low=0))


def _nvlink_errors() -> Placed:
    text = Text(
        "NVLink errors",
        "Errors a second. Replays cost bandwidth, recoveries stop the link for a moment, and a rate that grows comes "
        "before XID 74.",
        nothing="No GPU has NVLink, or the counters table does not ask for these rows",
    )
    kinds = (
        (device.NVLINK_CRC_FLIT_ERRORS, "CRC (flow control)"),
        (device.NVLINK_CRC_DATA_ERRORS, "CRC (data)"),
        (device.NVLINK_REPLAY_ERRORS, "replays"),
        (device.NVLINK_RECOVERY_ERRORS, "recoveries"),
    )
    queries = [Query(each_rate(row), f"{GPU} {word}") for row, word in kinds]
    return time_series(text, queries, Axis("cps", low=0), Look(), width=24)
