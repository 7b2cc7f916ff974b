"""The GPU's wall time by activity, copies, and waits of the program's threads."""

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import (
    Axis,
    Column,
    LineStyle,
    PanelText,
    Placed,
    grey,
    heatmap,
    limits,
    table,
    time_series,
)
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel


def glance() -> Row:
    """The panels for the overview."""
    return Row("GPU time", (_states(),))


def rows() -> tuple[Row, ...]:
    """The GPU's side, the link between, and the program's side."""
    time = (_states(), _gaps(), _waits(), _copies(), _copied(), _synchronisations())
    return (Row("GPU time, copies and waits", time), Row("Regions and memory pools", (_regions(), _pools())))


def _states() -> Placed:
    text = PanelText(
        "Device time by activity",
        "Wall time of the GPUs by activity. Idle time between kernels means that the program does not launch fast "
        "enough. Collective time is time spent waiting for peers. Pinned memory and streams can hide copy time without "
        "overlap.",
    )
    spent = promql.rate(promql.series(kernel.DEVICE_TIME))
    query = Query(promql.share(spent, of=spent, by="state"), "{{state}}")
    look = LineStyle(stacked=True, overrides=(grey("idle"),))
    return time_series(text, [query], Axis("percentunit", low=0, high=1), look, width=24, height=9)


def _copies() -> Placed:
    text = PanelText(
        "Copy throughput",
        "Bytes a second of GPU copy time, by direction: how fast copies run while they run. Compare with the link's "
        "maximum.",
    )
    moved = promql.rate(promql.series(kernel.MEMCPY_BYTES))
    taken = promql.rate(promql.series(kernel.MEMCPY_SECONDS))
    groups = "Hostname, gpu, kind, pinned"
    expr = f"sum by ({groups}) ({moved}) / (sum by ({groups}) ({taken}) > 0)"
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
    buckets = promql.rate(promql.series(kernel.LAUNCH_GAP, "_bucket"))
    return heatmap(text, Query(f"sum by (le) ({buckets})", "{{le}}", format="heatmap"), "s")


def _copied() -> Placed:
    text = PanelText(
        "Bytes copied",
        "Bytes a second of wall time, by direction and by whether the host's memory was pinned.",
    )
    moved = promql.rate(promql.series(kernel.MEMCPY_BYTES))
    query = Query(_in_words(f"sum by (kind, pinned) ({moved})"), "{{kind}} {{pinned}}")
    return time_series(text, [query], Axis("Bps", low=0), LineStyle(stacked=True))


def _synchronisations() -> Placed:
    text = PanelText(
        "Synchronisations",
        "Number of waits of threads for the GPU, by kind. Asynchronous code avoids waits for a whole context or "
        "device.",
    )
    calls = promql.rate(promql.series(kernel.SYNC_CALLS))
    query = Query(promql.ranked(f"sum by (program, rank, type) ({calls})"), "{{program}} {{rank}} {{type}}")
    return time_series(text, [query], Axis("cps", low=0), width=24, height=6)


def _regions() -> Placed:
    text = PanelText(
        "Regions",
        "Parts of programs named with kernelcast.probe.region() or NVTX: GPU time and wall time a second, and the "
        "share of a region's wall time in which the GPU is busy.",
    )
    by = "program, rank, region"
    busy = f"sum by ({by}) ({promql.rate(promql.series(kernel.REGION_GPU))})"
    wall = f"sum by ({by}) ({promql.rate(promql.series(kernel.REGION_WALL))})"
    launches = f"sum by ({by}) ({promql.rate(promql.series(kernel.REGION_LAUNCHES))})"
    return table(
        text,
        [column(busy), column(wall), column(launches), column(f"{busy} / ({wall} > 0)")],
        (
            Column("program", "Program", width=180),
            Column("rank", "Rank", width=70),
            Column("region", "Region"),
            Column("Value #A", "GPU time/s", "percentunit", width=110),
            Column("Value #B", "Wall time/s", "percentunit", width=110),
            Column("Value #C", "Launches/s", "cps", width=110),
            Column("Value #D", "GPU busy", "percentunit", bar=True, width=200),
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
        "Seconds of waiting a second, by the kind of synchronisation: 1 is one thread that always waits.",
    )
    waited = promql.rate(promql.series(kernel.SYNC_WAIT))
    query = Query(promql.ranked(f"sum by (program, rank, type) ({waited})"), "{{program}} {{rank}} {{type}}")
    return time_series(text, [query], Axis("short", low=0), height=9)
