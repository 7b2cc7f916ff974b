"""Panels about the bridge and the predictor: their series, limits and timing. The page `pipeline` has them."""

from kernelcast.grafana import promql
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import bridge, predictor


def panels() -> tuple[Placed, ...]:
    """The panels of the bridge, then those of the predictor."""
    return (_limits(), _encoding(), _silent(), _watched(), _abstained())


def _limits() -> Placed:
    text = PanelText("Limits in use", "Used part of each limit of the bridge; at 100 % new series are refused.")
    query = Query(f"max by (limit) ({promql.series(bridge.LIMIT_USED)})", "{{limit}}")
    return time_series(text, [query], Axis("percentunit", low=0, high=1))


def _silent() -> Placed:
    text = PanelText(
        "Silent producers",
        "Jobs and instances that missed several of their own intervals on Kafka, by job.",
    )
    alive = f"max by (job, instance) ({promql.series(bridge.PRODUCER_UP)})"
    query = Query(f"sum by (job) (1 - {alive})", "{{job}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0))


def _encoding() -> Placed:
    text = PanelText(
        "Encoding a scrape (p99)",
        "Time the bridge takes to write its series for Prometheus; far below the scrape timeout.",
    )
    buckets = promql.rate(promql.series(bridge.SCRAPE_DURATION, "_bucket"))
    query = Query(f"topk(8, histogram_quantile(0.99, sum by (instance, le) ({buckets})))", "{{instance}}")
    return time_series(text, [query], Axis("s", low=0))


def _watched() -> Placed:
    text = PanelText(
        "Series under watch",
        "Series with a window in the predictor, those that its last cycle flagged, and those with a forecast.",
    )
    rows = ((predictor.SERIES, "watched"), (predictor.FLAGGED, "flagged"), (predictor.RAISED, "with a forecast"))
    queries = [Query(f"sum({promql.series(row)})", legend) for row, legend in rows]
    return time_series(text, queries, Axis("short", low=0))


def _abstained() -> Placed:
    text = PanelText(
        "Why nothing was predicted",
        "Evaluated series without a prediction, a minute, by reason: a baseline that is not learnt yet or too wide, "
        "a clock that fell, a probable deploy, and others.",
    )
    abstained = promql.rate(promql.series(predictor.ABSTENTIONS))
    query = Query(f"sum by (reason) ({abstained}) * 60", "{{reason}}")
    return time_series(text, [query], Axis("short", low=0), LineStyle(stacked=True), width=24)
