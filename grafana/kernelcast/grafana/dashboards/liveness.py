"""Queries that have a result only while something is measured.

A panel whose own query is empty says "none" only while such a query, the *proof*, has a result (`EmptyText`).
"""

from collections.abc import Iterable
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.panels import EmptyText
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import bridge, exporter, forecast, kernel
from kernelcast.wire.catalogue.devices import gpu
from kernelcast.wire.catalogue.model import Metric

GPUS: Final = promql.series(gpu.GPU_UP)
_OF_PROGRAMS: Final = f"{promql.name(kernel.DEVICE_TIME)}|{promql.name(kernel.PROBE_RUNNING)}"
PROGRAMS, CHOSEN_PROGRAMS = (
    promql.series(kernel.DEVICE_TIME, free=free).replace(
        f"{promql.name(kernel.DEVICE_TIME)}{{", f'{{__name__=~"{_OF_PROGRAMS}", '
    )
    for free in (("program", "rank"), ("rank",))
)
"""Device time of activity records, also of a recording; running time of the probe: of all programs, of those chosen."""
EXPORTERS: Final = promql.series(exporter.TICKS)
PREDICTORS: Final = promql.series(forecast.JUDGED_SERIES)
"""Written after each cycle, and on the way of hints and forecasts: it ends where Kafka or the bridge does."""
_MEASURED: Final = f"and on () (group({GPUS}) or group({PROGRAMS}))"
PREDICTIONS: Final = f"{PREDICTORS} > 0 {_MEASURED}"
LEARNING: Final = EmptyText("no forecast yet: still learning", f"{PREDICTORS} == 0 {_MEASURED}")
"""Before the first judgement, which needs a history of 18 blocks."""
_JUDGED_AT_LAST: Final = f"{PREDICTORS} @ end()"
LEARNING_IN_A_GRAPH: Final = Query(
    f"0 * group({LEARNING.proof}) unless on () (max({_JUDGED_AT_LAST}) > 0 or absent({_JUDGED_AT_LAST}))",
    LEARNING.words,
)
"""A line at 0 with these words, until the first forecast: later it would stretch the axis of the values down to 0."""
RULES: Final = 'ALERTS{alertstate="firing", alertname="Watchdog"}'
"""The rules are loaded and evaluated: only then does the absence of a recorded series say anything."""
BRIDGES: Final = promql.series(bridge.LINES)
KAFKA_IS_OUT: Final = f"max({promql.series(bridge.KAFKA_OUTAGE)}) > 60"
"""While Kafka does not answer, the bridge shows its series as they were, so they say nothing about now."""


def nothing(words: str, exprs: Iterable[str], proof: str = GPUS) -> Query:
    """A line at 0 with these words, while something is measured and none of a graph's queries has an answer.

    Not at the beginning, when rates have no answer yet.

    Args:
        words: Such as "no TPU reports".
        exprs: The queries of the graph.
        proof: A selector that has a result only while something is measured.
    """
    any_row = " or ".join(f"({expr})" for expr in exprs)
    began = f"and on () group({proof} offset $__rate_interval)"
    return Query(f"0 * group({proof}) {began} unless on () ({any_row})", words)


def current(proof: str) -> str:
    """A proof that ends while Kafka does not answer: then "none" would be about the past."""
    return f"({proof}) unless on () ({KAFKA_IS_OUT})"


def row(metric: Metric) -> str:
    """The row of the catalogue itself: only GPUs that report it prove anything about it."""
    return promql.series(metric)


def absent(metrics: Iterable[Metric]) -> Query:
    """A line at 0 for each reason for which GPUs do not report some rows."""
    fields = "|".join(metric.prometheus_name for metric in metrics)
    matcher = f'field=~"{fields}"'
    lacking = f"0 * group by (reason) ({promql.series(gpu.FIELD_ABSENT, extra=(matcher,))})"
    return Query(lacking, "not reported: {{reason}}")
