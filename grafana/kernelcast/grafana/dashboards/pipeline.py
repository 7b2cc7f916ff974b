"""kernelcast's own health: from the exporters through Kafka to what Prometheus reads."""

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Look, Placed, Text, state_timeline, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import runtime


def row() -> Row:
    """Is it up, does it keep up, and is anything lost."""
    return Row("Pipeline", (_up(), _producers(), _lost(), _dead_letters()))


def _up() -> Placed:
    text = Text("Daemons", "Whether Prometheus could read each daemon.")
    query = Query(f'up{{job=~"{promql.SERVICE_JOBS}"}}', "{{job}} {{instance}}")
    return state_timeline(text, [query], {"0": ("down", "red"), "1": ("up", "green")}, height=5)


def _producers() -> Placed:
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
