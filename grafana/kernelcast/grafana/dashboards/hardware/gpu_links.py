"""Rows of panels about the GPUs' links, on the pages `gpu` and `synchronisation`: PCIe and NVLink."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.hardware.devices import GPU, INSTANCE, each, each_rate
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, PanelText, Placed, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue.devices import dcgm_exporter, device, nvlink, profiling

_KIBIBYTE = 1024


def row() -> Row:
    """Traffic, then errors, then link by link."""
    return Row(
        "Links",
        (_pcie(), _nvlink(), _nvlink_errors(), _links_up(), _links_busy(), _link_errors(), _peer_status()),
        collapsed=True,
    )


def copies() -> Row:
    """Traffic between host and GPUs, for pages about programs: as quantiles, as there may be many GPUs."""
    text = PanelText(
        "PCIe traffic of the GPUs",
        "Bytes a second between host and GPU, both directions: of the GPU with the most, and the median.",
    )
    moved = f"{each(profiling.PCIE_TX_BYTES)} + {each(profiling.PCIE_RX_BYTES)}"
    queries = [
        *(Query(f"quantile({share}, {moved})", words) for share, words in ((1, "most"), (0.5, "median"))),
        liveness.absent((profiling.PCIE_TX_BYTES, profiling.PCIE_RX_BYTES)),
    ]
    return Row(
        "Links between host and GPUs", (time_series(text, queries, Axis("Bps", low=0), width=24),), collapsed=True
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
    return time_series(text, queries, Axis("Bps", low=0))


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
    return time_series(text, queries, Axis("eps", low=0), width=24)


def _links_up() -> Placed:
    text = PanelText(
        "NVLinks that are up",
        "Number of links of each GPU that are up. GPUs of one model in one node should have the same number; a falling "
        "line is a link that went down.",
    )
    up = f"max by (Hostname, gpu, link) ({promql.series(nvlink.UP)})"
    return time_series(text, [Query(f"sum by (Hostname, gpu) ({up})", GPU)], Axis("short", low=0, decimals=0))


def _links_busy() -> Placed:
    text = PanelText(
        "NVLinks by traffic",
        "The 20 busiest links, bytes a second in one direction. Traffic of one GPU is spread over its links, so one "
        "that carries less than its peers is slow or often retries.",
    )
    traffic = f"max by (Hostname, gpu, link, direction) ({promql.rate(promql.series(nvlink.IO))})"
    query = Query(f"topk(20, {traffic})", f"{GPU} link {{{{link}}}} {{{{direction}}}}")
    return time_series(text, [query], Axis("Bps", low=0))


def _link_errors() -> Placed:
    text = PanelText(
        "NVLinks with errors",
        "Links that had errors in this time range, by NVML's kinds. Needs exporter.nvlink_links: all.",
        if_empty=EmptyText("no error", liveness.row(nvlink.ERRORS)),
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
            Column("Value", "In this time range", "short", width=150),
        ),
        sort="In this time range",
        width=12,
        height=8,
    )


def _peer_status() -> Placed:
    text = PanelText(
        "NVLink between GPUs",
        "Whether two GPUs of a node can reach each other over NVLink, as the driver says.",
    )
    by = "Hostname, gpu, peer_gpu, link_status"
    columns = (
        Column("Hostname", "Node", width=180),
        Column("gpu", "GPU", width=60),
        Column("peer_gpu", "Other GPU", width=100),
        Column("link_status", "Status"),
    )
    pairs = column(f"group by ({by}) ({promql.series(dcgm_exporter.P2P_STATUS)})")
    return table(text, [pairs], columns, sort="Status", width=12, height=8)
