"""kernelcast's own health: from the exporters through Kafka to what Prometheus and the predictor read."""

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Look, Placed, Text, state_timeline, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import exporter, predictor, runtime


def row() -> Row:
    """Is it up, does it flow, does it keep up, and is anything lost."""
    flow = (_points(), _lag(), _acknowledged(), _lost(), _dead_letters())
    return Row("Pipeline", (_up(), *flow, _lateness(), _watched(), _abstained()))


def _up() -> Placed:
    text = Text("Daemons", "Whether Prometheus could read each daemon.")
    query = Query(f'up{{job=~"{promql.SERVICE_JOBS}"}}', "{{job}} {{instance}}")
    return state_timeline(text, [query], {"0": ("down", "red"), "1": ("up", "green")}, height=5)


def _points() -> Placed:
    text = Text(
        "Points a second",
        "Data points handed to Kafka by exporters, and read from it by the bridge and the predictor. A gap between "
        "the lines that lasts is lag or loss.",
    )
    sent, read = promql.rate(promql.series(exporter.POINTS)), promql.rate(promql.series(predictor.POINTS))
    queries = [Query(f"sum({sent})", "exporters, sent"), Query(f"sum by (topic) ({read})", "predictor, {{topic}}")]
    return time_series(text, queries, Axis("cps", low=0))


def _lag() -> Placed:
    text = Text("Messages waiting on Kafka", "How far behind each reader is. Level is normal, a steady rise is not.")
    query = Query(f"sum by (job, topic) ({promql.series(predictor.LAG)})", "{{job}} {{topic}}")
    return time_series(text, [query], Axis("short", low=0))


def _acknowledged() -> Placed:
    text = Text("Messages to Kafka", "Messages that Kafka acknowledged, by topic.")
    acknowledged = promql.rate(promql.series(runtime.PRODUCER_MESSAGES, extra=('outcome="acknowledged"',)))
    return time_series(text, [Query(f"sum by (job, topic) ({acknowledged})", "{{job}} {{topic}}")], Axis("cps", low=0))


def _lost() -> Placed:
    text = Text(
        "Messages lost",
        "Messages that Kafka refused or that never entered the queue. Totals are cumulative: the next one makes them "
        "good.",
    )
    failed = promql.rate(promql.series(runtime.PRODUCER_MESSAGES, extra=('outcome="failed"',)))
    dropped = promql.rate(promql.series(runtime.PRODUCER_DROPPED))
    queries = [
        Query(f"sum by (job, topic) ({failed})", "{{job}} {{topic}} failed"),
        Query(f"sum by (job, topic, cause) ({dropped})", "{{job}} {{topic}} {{cause}}"),
    ]
    return time_series(text, queries, Axis("cps", low=0))


def _dead_letters() -> Placed:
    text = Text(
        "Messages put aside",
        "Messages that could not be used and went to the dead-letter topic, or beyond its rate limit were dropped.",
    )
    letters = promql.increase(promql.series(runtime.DEADLETTER_MESSAGES))
    query = Query(f"sum by (job, topic, outcome) ({letters})", "{{job}} {{topic}} {{outcome}}")
    return time_series(text, [query], Axis("short", low=0), Look(bars=True))


def _lateness() -> Placed:
    text = Text(
        "Exporters' lateness",
        "How long after its deadline an exporter sampled its last interval, and how long that took. Late samples "
        "blur rates; an interval that takes too long is left out.",
    )
    queries = [
        Query(promql.series(exporter.TICK_LATENESS), "{{instance}} late"),
        Query(promql.series(exporter.TICK_DURATION), "{{instance}} took"),
    ]
    return time_series(text, queries, Axis("s", low=0))


def _watched() -> Placed:
    text = Text(
        "Series under watch",
        "Series that the predictor holds, those that its last sweep flagged, and those with a forecast.",
    )
    rows = ((predictor.SERIES, "watched"), (predictor.FLAGGED, "flagged"), (predictor.RAISED, "with a forecast"))
    queries = [Query(f"sum({promql.series(row)})", legend) for row, legend in rows]
    return time_series(text, queries, Axis("short", low=0))


def _abstained() -> Placed:
    text = Text(
        "Why nothing was predicted",
        "Flagged series about which the predictor made no statement, by reason: load that changed, a baseline too "
        "wide, a deploy that settles.",
    )
    abstained = promql.rate(promql.series(predictor.ABSTENTIONS))
    query = Query(f"sum by (reason) ({abstained})", "{{reason}}")
    return time_series(text, [query], Axis("cps", low=0), Look(stacked=True))
