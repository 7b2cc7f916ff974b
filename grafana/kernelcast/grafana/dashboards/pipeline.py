"""Panels of the page `pipeline` about kernelcast's own health: from the exporters through Kafka to Prometheus."""

from collections.abc import Iterable
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import daemons, exporters, liveness
from kernelcast.grafana.dashboards.programs import probes
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import (
    Axis,
    EmptyText,
    LineStyle,
    PanelText,
    Placed,
    stat,
    state_timeline,
    time_series,
)
from kernelcast.grafana.model.targets import Query
from kernelcast.grafana.rules.objectives import FRESH_SECONDS
from kernelcast.wire.catalogue import bridge, exporter, predictor, runtime

_ALIVE: Final = f"group({promql.series(runtime.BUILD_INFO)})"
"""Has a result while Prometheus reads any of the daemons."""
_SPOOL: Final = promql.series(exporter.SPOOL_BYTES)
_SILENT_SECONDS: Final = 15
"""A group member then loses its partitions, and the bridge withdraws its series."""


def first_screen() -> tuple[Placed, ...]:
    """Is it up, is anything lost, does it keep up."""
    figures = (_lost_in_range(), _not_stored_in_range(), _waiting_now(), _delay_now())
    return (_up(), *figures, _points(), _lag(), _delay())


def rows() -> tuple[Row, ...]:
    """Where losses are, and how each daemon fares."""
    losses = (_lost(), _unreadable(), _not_stored(), _dead_letters(), _shared_identities())
    daemon_row = Row("Bridge and predictor", daemons.panels(), collapsed=True)
    return (Row("What is lost, and where", losses, collapsed=True), exporters.row(), probes.row(), daemon_row)


def _in_range(
    title: str, description: str, increases: Iterable[str], runbooks: tuple[str, ...], alive: str = _ALIVE
) -> Placed:
    """A figure in place of many series of zeros: the sum of increases in the time range."""
    text = PanelText(title, description, runbooks=runbooks)
    lost = " + ".join(f"(sum({one}) or 0 * {alive})" for one in increases)
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    return stat(text, [Query(f"({lost}) and on () {alive}")], axis, width=6, height=3)


def _lost_in_range() -> Placed:
    own = (
        promql.series(runtime.PRODUCER_MESSAGES, extra=('outcome="failed"',)),
        promql.series(runtime.PRODUCER_DROPPED),
    )
    increases = (
        *(promql.unspooled(_increase(one), _SPOOL, "$__range") for one in own),
        _increase(promql.series(exporter.SPOOL_DROPPED)),
    )
    description = "Messages that Kafka refused, or that never reached it, in this time range. Rows below say where."
    runbooks = ("KernelcastMessagesDropped", "KernelcastSpoolDropping")
    return _in_range("Lost in this range", description, increases, runbooks)


def _not_stored_in_range() -> Placed:
    counters = (
        promql.series(bridge.DECODE_FAILURES),
        promql.series(bridge.DISCARDED_POINTS, extra=('cause!~"wire_only|older"',)),
    )
    description = "Messages that the bridge could not decode, and points that it refused, in this time range."
    alive = f"group({liveness.BRIDGES})"
    return _in_range("Refused in this range", description, map(_increase, counters), ("KernelcastDeadLetters",), alive)


def _increase(counter: str) -> str:
    return f"increase({counter}[$__range])"


def _waiting_now() -> Placed:
    text = PanelText(
        "Waiting on Kafka",
        "Messages that wait for each of their readers now. No data: Kafka does not answer.",
        runbooks=("KernelcastLagGrowing",),
    )
    lags = " or ".join(promql.series(row) for row in (bridge.LAG, predictor.LAG))
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1000, "orange")))
    known = f"sum by (job) ({lags}) unless on () max({promql.series(bridge.KAFKA_OUTAGE)}) > {_SILENT_SECONDS}"
    return stat(text, [Query(known, "{{job}}")], axis, named=True, width=6, height=3)


def _delay_now() -> Placed:
    text = PanelText(
        "From event to store", "99th percentile now, of all topics.", runbooks=("KernelcastFreshnessObjectiveBurns",)
    )
    buckets = promql.rate(promql.series(bridge.FRESHNESS, "_bucket"))
    axis = Axis("s", low=0, thresholds=((None, "green"), (FRESH_SECONDS, "orange")))
    return stat(text, [Query(f"histogram_quantile(0.99, sum by (le) ({buckets}))")], axis, width=6, height=3)


def _up() -> Placed:
    text = PanelText(
        "Daemons",
        "Whether Prometheus could read each daemon, and whether Kafka answered the bridges.",
        runbooks=("KernelcastBridgeDown", "KernelcastKafkaUnreachable"),
    )
    kafka = f'label_replace(min({promql.series(bridge.KAFKA_OUTAGE)} == bool 0), "job", "Kafka", "", "")'
    query = Query(f'up{{job=~"{promql.SERVICE_JOBS}"}} or {kafka}', "{{job}} {{instance}}")
    return state_timeline(text, [query], {"0": ("down", "red"), "1": ("up", "green")}, height=5)


def _points() -> Placed:
    text = PanelText(
        "Points a second",
        "Data points handed to Kafka by exporters, and read from it by the bridge and the predictor. A lasting gap "
        "between the lines is lag or loss.",
    )
    rows = ((exporter.POINTS, "exporters, sent"), (bridge.POINTS, "bridge"), (predictor.POINTS, "predictor"))
    queries = [Query(f"sum({promql.rate(promql.series(row))})", legend) for row, legend in rows]
    return time_series(text, queries, Axis("short", low=0), width=8, height=7)


def _lag() -> Placed:
    text = PanelText(
        "Messages waiting on Kafka", "Lag of each reader. A constant value is normal, a steady rise is not."
    )
    lags = (f"sum by (job, topic) ({promql.series(row)})" for row in (bridge.LAG, predictor.LAG))
    return time_series(text, [Query(lag, "{{job}} {{topic}}") for lag in lags], Axis("short", low=0), width=8, height=7)


def _delay() -> Placed:
    text = PanelText(
        "From event to store (p99)",
        "Age of a message's newest point when the bridge has stored it: the total time of measuring, Kafka and "
        "decoding.",
    )
    buckets = promql.rate(promql.series(bridge.FRESHNESS, "_bucket"))
    query = Query(f"histogram_quantile(0.99, sum by (topic, le) ({buckets}))", "{{topic}}")
    return time_series(text, [query], Axis("s", low=0), width=8, height=7)


def _unreadable() -> Placed:
    text = PanelText(
        "Messages that could not be decoded",
        "By topic and error; the messages are in the dead-letter topic.",
        if_empty=EmptyText("none in this time range", liveness.BRIDGES),
    )
    failures = promql.marked(promql.series(bridge.DECODE_FAILURES))
    query = Query(f"sum by (topic, error) ({failures})", "{{topic}} {{error}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _not_stored() -> Placed:
    text = PanelText(
        "Points not stored, a second",
        "By cause, without the points that are for the predictor alone. Some older points are normal; second_writer "
        "means that two processes write one series. A limit means that series are missing.",
        if_empty=EmptyText("none in this time range", liveness.BRIDGES),
    )
    discarded = promql.rate(promql.series(bridge.DISCARDED_POINTS, extra=('cause!="wire_only"',)))
    return time_series(text, [Query(f"sum by (cause) ({discarded}) > 0", "{{cause}}")], Axis("short", low=0))


def _shared_identities() -> Placed:
    text = PanelText(
        "Identities shared by two live producers",
        "Signs a second that two producers use one job and instance, by sign. A few at a restart are normal; a lasting "
        "line means that each needs its own service.instance.id or host name.",
        if_empty=EmptyText("none in this time range", liveness.BRIDGES),
    )
    conflicts = promql.rate(promql.series(bridge.IDENTITY_CONFLICTS))
    query = Query(f"sum by (job, instance, sign) ({conflicts}) > 0", "{{job}} {{instance}} {{sign}}")
    return time_series(text, [query], Axis("eps", low=0), width=24, height=6)


def _lost() -> Placed:
    text = PanelText(
        "Messages lost",
        "Messages that Kafka refused, that never entered the queue, or that a spool dropped. Totals are cumulative: "
        "the next message includes them.",
        if_empty=EmptyText("none in this time range", liveness.BRIDGES),
    )
    failed = promql.rate(promql.series(runtime.PRODUCER_MESSAGES, extra=('outcome="failed"',)))
    dropped = promql.rate(promql.series(runtime.PRODUCER_DROPPED))
    failed, dropped = (promql.unspooled(one, _SPOOL, "$__rate_interval") for one in (failed, dropped))
    spool = promql.rate(promql.series(exporter.SPOOL_DROPPED))
    queries = [
        Query(f"sum by (job, topic) ({failed}) > 0", "{{job}} {{topic}} failed"),
        Query(f"sum by (job, topic, cause) ({dropped}) > 0", "{{job}} {{topic}} {{cause}}"),
        Query(f"sum by (job, reason) ({spool}) > 0", "{{job}} spool: {{reason}}"),
    ]
    return time_series(text, queries, Axis("mps", low=0))


def _dead_letters() -> Placed:
    text = PanelText(
        "Dead letters",
        "Unusable messages that were sent to the dead-letter topic, or dropped beyond its rate limit.",
        if_empty=EmptyText("none in this time range", liveness.BRIDGES),
    )
    letters = promql.marked(promql.series(runtime.DEADLETTER_MESSAGES))
    query = Query(f"sum by (job, topic, outcome) ({letters})", "{{job}} {{topic}} {{outcome}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))
