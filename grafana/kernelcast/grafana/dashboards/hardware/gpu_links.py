"""Rows of panels about the GPUs' links, on the page `gpu`: PCIe and NVLink."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.hardware.devices import GPU, INSTANCE, each, each_rate
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, PanelText, Placed, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue.devices import device, nvlink, profiling

_KIBIBYTE = 1024


def row() -> Row:
    """Traffic, then errors, then link by link."""
    return Row(
        "Links: PCIe, NVLink",
        (_pcie(), _lanes(), _retries(), _nvlink(), _links_up(), _nvlink_errors(), _link_errors()),
        collapsed=True,
    )


def _pcie() -> Placed:
    text = PanelText(
        "PCIe traffic",
        "Bytes a second between host and GPU, protocol included: on an H100 1.07 and 1.09 of the bytes that a program "
        "copied to and from it.",
    )
    queries = [
        Query(each(profiling.PCIE_TX_BYTES), f"{INSTANCE} out"),
        Query(each(profiling.PCIE_RX_BYTES), f"{INSTANCE} in"),
        liveness.absent((profiling.PCIE_TX_BYTES, profiling.PCIE_RX_BYTES)),
    ]
    return time_series(text, queries, Axis("Bps", low=0), width=8)


def _lanes() -> Placed:
    text = PanelText(
        "PCIe lanes",
        "Link width now, and the most that GPU and slot allow together. Fewer lanes than other GPUs of the same model "
        "make every copy between host and GPU slower.",
        runbooks=("KernelcastGpuPcieLinkDegraded",),
    )
    queries = [
        Query(each(device.PCIE_LINK_WIDTH), f"{GPU} now"),
        Query(each(device.PCIE_MAX_LINK_WIDTH), f"{GPU} most"),
    ]
    return time_series(text, queries, Axis("short", low=0, decimals=0), width=8)


def _retries() -> Placed:
    text = PanelText(
        "PCIe retries",
        "Packets sent again a second. A lasting rate points to a bad slot, riser or cable.",
        runbooks=("KernelcastGpuPcieLinkDegraded",),
    )
    return time_series(text, [Query(each_rate(device.PCIE_REPLAY), GPU)], Axis("eps", low=0), width=8)


def _nvlink() -> Placed:
    text = PanelText(
        "NVLink traffic",
        "Bytes a second over all lanes: both directions from the driver's counters, and each direction from the "
        "profiling rows where they are asked for.",
    )
    queries = [
        Query(f"{each_rate(device.NVLINK_BANDWIDTH)} * {_KIBIBYTE}", f"{GPU} both ways"),
        Query(each(profiling.NVLINK_TX_BYTES), f"{INSTANCE} out"),
        Query(each(profiling.NVLINK_RX_BYTES), f"{INSTANCE} in"),
        liveness.absent((device.NVLINK_BANDWIDTH,)),
    ]
    return time_series(text, queries, Axis("Bps", low=0))


def _nvlink_errors() -> Placed:
    text = PanelText(
        "NVLink errors",
        "Errors a second. Replays cost bandwidth, recoveries stop the link for a moment. A growing rate often precedes "
        "XID 74.",
    )
    kinds = (
        (device.NVLINK_CRC_FLIT_ERRORS, "CRC (flow control)"),
        (device.NVLINK_CRC_DATA_ERRORS, "CRC (data)"),
        (device.NVLINK_REPLAY_ERRORS, "replays"),
        (device.NVLINK_RECOVERY_ERRORS, "recoveries"),
    )
    queries = [Query(each_rate(row), f"{GPU} {word}") for row, word in kinds]
    queries.append(liveness.absent(row for row, _ in kinds))
    return time_series(text, queries, Axis("eps", low=0))


def _links_up() -> Placed:
    text = PanelText(
        "NVLinks that are up",
        "Number of links of each GPU that are up. GPUs of one model in one node should have the same number; a falling "
        "line is a link that went down.",
        runbooks=("KernelcastGpuNvlinkDown",),
    )
    up = f"max by (Hostname, gpu, link) ({promql.series(nvlink.UP)})"
    return time_series(text, [Query(f"sum by (Hostname, gpu) ({up})", GPU)], Axis("short", low=0, decimals=0))


def _link_errors() -> Placed:
    text = PanelText(
        "NVLinks with errors",
        "Links that had errors in this time range, by NVML's kinds. Needs exporter.nvlink_links: all.",
        if_empty=EmptyText("No error in this time range", liveness.row(nvlink.ERRORS)),
    )
    happened = promql.happened(
        promql.series(nvlink.ERRORS),
        of="Hostname, UUID, link, error",
        by="Hostname, gpu, link, error",
        window="$__range",
    )
    return table(
        text,
        [column(happened)],
        (
            Column("Hostname", "Node", width=180),
            Column("gpu", "GPU", width=60),
            Column("link", "Link", width=60),
            Column("error", "Error"),
            Column("Value", "In this time range", "short", width=150, decimals=0),
        ),
        sort="In this time range",
        width=12,
        height=8,
    )
