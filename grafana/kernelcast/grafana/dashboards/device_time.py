"""Where the GPU's wall time goes, what copies carry, and what the program's threads wait for."""

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Look, Placed, Text, grey, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import kernel


def glance() -> Row:
    """What the overview shows of it."""
    return Row("GPU time", (_states(),))


def rows() -> tuple[Row, ...]:
    """The GPU's side, the link between, and the program's side."""
    return (Row("GPU time, copies and waits", (_states(), _copies(), _waits())),)


def _states() -> Placed:
    text = Text(
        "Where device time goes",
        "Wall time of the GPUs by what they did. Idle between kernels means that the program does not launch fast "
        "enough; collective is waiting for peers; copy without overlap is time that pinned memory and streams can "
        "hide.",
    )
    spent = promql.rate(promql.series(kernel.DEVICE_TIME))
    query = Query(promql.share(spent, of=spent, by="state"), "{{state}}")
    look = Look(stacked=True, overrides=(grey("idle"),))
    return time_series(text, [query], Axis("percentunit", low=0, high=1), look, width=24, height=9)


def _copies() -> Placed:
    text = Text(
        "Copy throughput",
        "Bytes a second of GPU copy time, by direction: how fast copies run while they run. Compare with the link's "
        "maximum.",
        nothing="No copies are measured",
    )
    moved = promql.rate(promql.series(kernel.MEMCPY_BYTES))
    taken = promql.rate(promql.series(kernel.MEMCPY_SECONDS))
    groups = "Hostname, gpu, kind, pinned"
    expr = f"sum by ({groups}) ({moved}) / (sum by ({groups}) ({taken}) > 0)"
    for value, word in (("true", "pinned"), ("false", "pageable")):
        expr = f'label_replace({expr}, "pinned", "{word}", "pinned", "{value}")'
    return time_series(text, [Query(expr, "{{Hostname}} GPU {{gpu}} {{kind}} {{pinned}}")], Axis("Bps", low=0))


def _waits() -> Placed:
    text = Text(
        "Threads waiting for the GPU",
        "Seconds of waiting a second, by the kind of synchronisation: 1 is one thread that always waits.",
        nothing="No waiting is measured",
    )
    waited = promql.rate(promql.series(kernel.SYNC_WAIT))
    query = Query(promql.ranked(f"sum by (program, rank, type) ({waited})"), "{{program}} {{rank}} {{type}}")
    return time_series(text, [query], Axis("short", low=0))
