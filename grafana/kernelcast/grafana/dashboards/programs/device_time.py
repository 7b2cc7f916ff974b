"""A row of panels on the page `program`: the GPU's wall time by activity, copies, waits of the program's threads."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, grey, heatmap, limits, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel

_LINES: Final = 10
"""Lines of the graph; more cannot be distinguished."""


def row() -> Row:
    """Device time, gaps and waits; copies; regions and memory."""
    panels = (_states(), _gaps(), _waits(), _copies(), _copied(), _regions(), _memory())
    return Row("CPU, GPU and data: who waits for whom", panels, collapsed=True)


def _states() -> Placed:
    text = PanelText(
        "Device time by activity",
        "Wall time of the GPUs by activity. Idle time between kernels means that the program does not launch fast "
        "enough. Collective time is time spent waiting for peers. Pinned memory and streams can hide copy time without "
        "overlap.",
    )
    spent = promql.seen_rate(kernel.DEVICE_TIME)
    query = Query(promql.share(spent, of=spent, by="state"), "{{state}}")
    style = LineStyle(stacked=True, overrides=(grey("idle"), grey("unknown")))
    return time_series(text, [query], Axis("percentunit", low=0, high=1), style, width=24, height=6)


def _copies() -> Placed:
    text = PanelText(
        "Copy throughput",
        f"Bytes a second of GPU copy time, by direction: how fast copies run while they run, the {_LINES} slowest. "
        "Compare with the link's maximum.",
    )
    moved = promql.rate(promql.series(kernel.MEMCPY_BYTES))
    taken = promql.rate(promql.series(kernel.MEMCPY_SECONDS))
    groups = "Hostname, gpu, kind, pinned"
    expr = f"bottomk({_LINES}, sum by ({groups}) ({moved}) / (sum by ({groups}) ({taken}) > 0))"
    query = Query(_in_words(expr), "{{Hostname}} GPU {{gpu}} {{kind}} {{pinned}}")
    return time_series(text, [query], Axis("Bps", low=0))


def _in_words(expr: str) -> str:
    for value, word in (("true", "pinned"), ("false", "pageable")):
        expr = f'label_replace({expr}, "pinned", "{word}", "pinned", "{value}")'
    return expr


def _gaps() -> Placed:
    text = PanelText(
        "Gaps between activities",
        "Idle time of the GPU between two activities, in buckets of powers of two. Many gaps of some microseconds mean "
        "slow launches. Few long gaps are the program's own work, its input or its peers.",
    )
    buckets = promql.seen_rate(kernel.LAUNCH_GAP, "_bucket")
    return heatmap(text, Query(f"sum by (le) ({buckets})", "{{le}}", format="heatmap"), "s", height=6)


def _copied() -> Placed:
    text = PanelText(
        "Bytes copied",
        "Bytes a second of wall time, by direction and by whether the host's memory was pinned.",
    )
    moved = promql.seen_rate(kernel.MEMCPY_BYTES)
    query = Query(_in_words(f"sum by (kind, pinned) ({moved})"), "{{kind}} {{pinned}}")
    return time_series(text, [query], Axis("Bps", low=0), LineStyle(stacked=True))


def _regions() -> Placed:
    text = PanelText(
        "Regions",
        "Parts of programs named with kernelcast.probe.region() or NVTX: GPU time and wall time a second, and the "
        "share of a region's wall time in which the GPU is busy.",
    )
    by = "program, rank, region"
    busy = f"sum by ({by}) ({promql.seen_rate(kernel.REGION_GPU)})"
    wall = f"sum by ({by}) ({promql.rate(promql.series(kernel.REGION_WALL))})"
    launches = f"sum by ({by}) ({promql.seen_rate(kernel.REGION_LAUNCHES)})"
    return table(
        text,
        [column(busy), column(wall), column(launches), column(f"{busy} / ({wall} > 0)")],
        (
            Column("program", "Program", width=110),
            Column("rank", "Rank", width=55),
            Column("region", "Region"),
            Column("Value #A", "GPU time/s", "percentunit", width=95),
            Column("Value #B", "Wall time/s", "percentunit", width=95),
            Column("Value #C", "Launches/s", "short", width=95),
            Column("Value #D", "GPU busy", "percentunit", bar=True, width=130),
        ),
        sort="GPU time/s",
        width=14,
    )


def _waits() -> Placed:
    text = PanelText(
        "Threads waiting for the GPU",
        "Seconds of waiting a second, by the kind of synchronisation: 1 is one thread that always waits. The "
        f"{_LINES} that wait most.",
    )
    waited = promql.seen_rate(kernel.SYNC_WAIT)
    query = Query(
        promql.ranked(f"topk({_LINES}, sum by (program, rank, type) ({waited}))"), "{{program}} {{rank}} {{type}}"
    )
    return time_series(text, [query], Axis("short", low=0), height=6)


def _memory() -> Placed:
    text = PanelText(
        "Memory of programs",
        "Memory in the allocators of PyTorch and CuPy: used by tensors and arrays, and held for new ones, which other "
        "libraries cannot use. The dashed line is a pool's limit.",
    )
    pools = promql.series(kernel.MEMORY_POOL, extra=('state=~"used|free|limit"',))
    allocated = promql.series(kernel.ALLOCATOR, extra=('state=~"allocated|reserved"',))
    queries = [
        Query(f"sum by (pool, state) ({pools})", "CuPy {{pool}} {{state}}"),
        Query(f"sum by (state) ({allocated})", "PyTorch {{state}}"),
    ]
    queries.append(liveness.nothing("no allocator reports", (one.expr for one in queries)))
    return time_series(text, queries, Axis("bytes", low=0), LineStyle(overrides=(limits("limit"),)), width=10, height=9)
