"""Panels of the page `synchronisation`: the GPU's wall time by activity, copies, and waits of the program's threads."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, grey, heatmap, limits, stat, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel

_LINES: Final = 10
"""Lines of the graph; more cannot be distinguished."""


def first_screen() -> tuple[Placed, ...]:
    """Figures of now, then the GPU's wall time, gaps and waits."""
    figures = (_now("idle"), _now("collective"), _now("copy"), _waiting_now())
    return (*figures, _states(), _gaps(), _waits())


def rows() -> tuple[Row, ...]:
    """Copies, the kinds of waits, regions and pools."""
    copies = Row("Copies and synchronisations", (_copies(), _copied(), _synchronisations()), collapsed=True)
    return (copies, Row("Regions and memory pools", (_regions(), _pools()), collapsed=True))


_NOW: Final = {
    "idle": ("GPU idle", "nothing ran between two activities: the program launches too slowly, or waits for data"),
    "collective": ("In collectives", "a collective ran: mostly a wait for other GPUs"),
    "copy": ("Copies alone", "data was copied and nothing was computed at the same time"),
}


def _now(state: str) -> Placed:
    title, meaning = _NOW[state]
    spent = promql.seen_rate(kernel.DEVICE_TIME)
    part = promql.seen_rate(kernel.DEVICE_TIME, extra=(f'state="{state}"',))
    runbooks = ("KernelcastStraggler",) if state == "collective" else ()
    text = PanelText(title, f"Share of the GPUs' wall time in which {meaning}.", runbooks=runbooks)
    expr = f"(sum({part}) or 0 * group({promql.series(kernel.DEVICE_TIME)})) / sum({spent})"
    return stat(text, [Query(expr)], Axis("percentunit", low=0, high=1), width=6, height=3)


def _waiting_now() -> Placed:
    text = PanelText("Threads waiting", "Threads of programs that wait for a GPU, on average.")
    query = Query(f"sum({promql.seen_rate(kernel.SYNC_WAIT)})")
    return stat(text, [query], Axis("short", low=0, decimals=1), width=6, height=3)


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


def _synchronisations() -> Placed:
    text = PanelText(
        "Synchronisations a second",
        "Waits of threads for the GPU, by kind. Asynchronous code avoids waits for a whole context or device.",
    )
    calls = promql.seen_rate(kernel.SYNC_CALLS)
    query = Query(promql.ranked(f"sum by (program, rank, type) ({calls})"), "{{program}} {{rank}} {{type}}")
    return time_series(text, [query], Axis("short", low=0), width=24, height=6)


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


def _pools() -> Placed:
    text = PanelText(
        "CuPy memory pools",
        "Memory in CuPy's pools: used by arrays, and free for new arrays but not for other libraries. The dashed line "
        "is the pool's limit.",
    )
    pools = promql.series(kernel.MEMORY_POOL, extra=('state=~"used|free|limit"',))
    query = Query(f"sum by (pool, state) ({pools})", "{{pool}} {{state}}")
    return time_series(text, [query], Axis("bytes", low=0), LineStyle(overrides=(limits("limit"),)), width=10, height=9)


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
