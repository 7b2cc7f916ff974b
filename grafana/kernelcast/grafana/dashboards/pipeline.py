"""kernelcast's own health: from the exporters through Kafka to Prometheus and the predictor."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import daemons, exporters
from kernelcast.grafana.dashboards.programs import probes
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, state_timeline, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import bridge, exporter, predictor, runtime


def rows() -> tuple[Row, ...]:
    """Is it up, does it flow, does it keep up, is anything lost, and how does each daemon fare."""
    flow = (_points(), _lag(), _delay(), _acknowledged())
    losses = (_unreadable(), _not_stored(), _shared_identities(), _lost_deltas(), _lost(), _dead_letters())
    health = (Row("Pipeline", (_up(), *flow)), Row("Losses", losses))
    daemon_row = Row("Bridge and predictor", daemons.panels(), collapsed=True)
    return (*health, exporters.row(), probes.row(), daemon_row)


def _up() -> Placed:
    text = PanelText("Daemons", "Whether Prometheus could read each daemon.")
    query = Query(f'up{{job=~"{promql.SERVICE_JOBS}"}}', "{{job}} {{instance}}")
    return state_timeline(text, [query], {"0": ("down", "red"), "1": ("up", "green")}, height=5)


def _points() -> Placed:
    text = PanelText(
        "Points a second",
        "Data points handed to Kafka by exporters, and read from it by the bridge and the predictor. A lasting gap "
        "between the lines is lag or loss.",
    )
    rows = ((exporter.POINTS, "exporters, sent"), (bridge.POINTS, "bridge"), (predictor.POINTS, "predictor"))
    queries = [Query(f"sum({promql.rate(promql.series(row))})", legend) for row, legend in rows]
    return time_series(text, queries, Axis("cps", low=0))


def _lag() -> Placed:
    text = PanelText(
        "Messages waiting on Kafka", "Lag of each reader. A constant value is normal, a steady rise is not."
    )
    lags = (f"sum by (job, topic) ({promql.series(row)})" for row in (bridge.LAG, predictor.LAG))
    return time_series(text, [Query(lag, "{{job}} {{topic}}") for lag in lags], Axis("short", low=0))


def _delay() -> Placed:
    text = PanelText(
        "From event to store (p99)",
        "Age of a message's newest point when the bridge has stored it: the total time of measuring, Kafka and "
        "decoding.",
    )
    buckets = promql.rate(promql.series(bridge.FRESHNESS, "_bucket"))
    query = Query(f"histogram_quantile(0.99, sum by (topic, le) ({buckets}))", "{{topic}}")
    return time_series(text, [query], Axis("s", low=0))


def _acknowledged() -> Placed:
    text = PanelText("Messages to Kafka", "Messages that Kafka acknowledged, by topic.")
    acknowledged = promql.rate(promql.series(runtime.PRODUCER_MESSAGES, extra=('outcome="acknowledged"',)))
    return time_series(text, [Query(f"sum by (job, topic) ({acknowledged})", "{{job}} {{topic}}")], Axis("cps", low=0))


def _unreadable() -> Placed:
    text = PanelText(
        "Messages that could not be decoded", "By topic and error; the messages are in the dead-letter topic."
    )
    failures = promql.increase(promql.series(bridge.DECODE_FAILURES))
    query = Query(f"sum by (topic, error) ({failures})", "{{topic}} {{error}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _not_stored() -> Placed:
    text = PanelText(
        "Points that were not stored",
        "By cause, without the points that are for the predictor alone. Some older points are normal; second_writer "
        "means that two processes write one series. A limit means that series are missing.",
    )
    discarded = promql.rate(promql.series(bridge.DISCARDED_POINTS, extra=('cause!="wire_only"',)))
    return time_series(text, [Query(f"sum by (cause) ({discarded})", "{{cause}}")], Axis("cps", low=0))


def _shared_identities() -> Placed:
    text = PanelText(
        "Identities shared by two live producers",
        "Signs a second that two producers use one job and instance, by sign. A few at a restart are normal; a lasting "
        "line means that each needs its own service.instance.id or host name.",
    )
    conflicts = promql.rate(promql.series(bridge.IDENTITY_CONFLICTS))
    query = Query(f"sum by (job, instance, sign) ({conflicts}) > 0", "{{job}} {{instance}} {{sign}}")
    return time_series(text, [query], Axis("cps", low=0))


def _lost_deltas() -> Placed:
    text = PanelText(
        "Delta points lost, by producer",
        "Delta points that are in no total. `older`: they are late, or the producer's clock has been set back.",
    )
    lost = promql.rate(promql.series(bridge.LOST_DELTA_POINTS))
    query = Query(f"sum by (job, instance, outcome) ({lost}) > 0", "{{job}} {{instance}} {{outcome}}")
    return time_series(text, [query], Axis("cps", low=0))


def _lost() -> Placed:
    text = PanelText(
        "Messages lost",
        "Messages that Kafka refused or that never entered the queue. Totals are cumulative: the next message includes "
        "them.",
    )
    failed = promql.rate(promql.series(runtime.PRODUCER_MESSAGES, extra=('outcome="failed"',)))
    dropped = promql.rate(promql.series(runtime.PRODUCER_DROPPED))
    queries = [
        Query(f"sum by (job, topic) ({failed})", "{{job}} {{topic}} failed"),
        Query(f"sum by (job, topic, cause) ({dropped})", "{{job}} {{topic}} {{cause}}"),
    ]
    return time_series(text, queries, Axis("cps", low=0))


def _dead_letters() -> Placed:
    text = PanelText(
        "Dead letters",
        "Unusable messages that were sent to the dead-letter topic, or dropped beyond its rate limit.",
    )
    letters = promql.increase(promql.series(runtime.DEADLETTER_MESSAGES))
    query = Query(f"sum by (job, topic, outcome) ({letters})", "{{job}} {{topic}} {{outcome}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))
