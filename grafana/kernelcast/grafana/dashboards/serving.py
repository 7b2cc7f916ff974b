"""Panels of the page `serving`: latencies, throughput, queue and cache of inference engines, and what tokens cost."""

from collections.abc import Sequence
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, Json, LineStyle, PanelText, Placed, stat, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.model.variables import LabelVariable
from kernelcast.grafana.rules.serving import SHARED, TOKENS_PER_GPU_SECOND, TOKENS_PER_JOULE
from kernelcast.wire.catalogue import inference
from kernelcast.wire.catalogue.model import Metric

_NONE: Final = "no inference engine reports"
_EMPTY: Final = EmptyText(_NONE, liveness.GPUS)
_ENGINES: Final = (inference.REQUESTS, inference.TOKENS)
"""Each engine reports one of these."""
_BY: Final = f"{inference.SERVER}, {inference.MODEL}"
_NAMED: Final = "{{model_name}} ({{server}})"
_HOSTS: Final = ("Hostname",)
"""Engines that Prometheus scrapes itself have no node."""
_MODEL: Final = f'{inference.MODEL}=~"$model"'
_TAIL: Final = 0.95
_LINES: Final = 8
"""Lines of a graph: as many as its legend shows without scrolling."""
_ON_GPU: Final = "Hostname, gpu, GPU_I_ID"
"""Labels of a GPU, or of a MIG instance."""


def variables() -> tuple[LabelVariable, ...]:
    """The model."""
    names = "|".join(promql.name(row) for row in _ENGINES)
    return (LabelVariable("model", "Model", f'{{__name__=~"{names}", job=~"$job"}}', inference.MODEL, all_value=".*"),)


def panels() -> tuple[Placed, ...]:
    """Do users wait; what limits; what does a token cost."""
    return (
        *(_requests_now(), _first_token_now(), _throughput_now(), _energy_now()),
        _models(),
        *(_first_token(), _inter_token(), _queue()),
        *(_throughput(), _requests(), _cache()),
    )


def _of(metric: Metric, *extra: str, suffix: str = "") -> str:
    return promql.series(metric, suffix, extra=(_MODEL, *extra), free=_HOSTS)


def _in_state(state: str) -> str:
    return _of(inference.REQUESTS, f'state="{state}"')


def _quantile(metric: Metric, quantile: float, by: str = _BY) -> str:
    buckets = promql.rate(_of(metric, suffix="_bucket"))
    return f"histogram_quantile({quantile}, sum by ({by}, le) ({buckets})) >= 0"


def _mean(metric: Metric) -> str:
    total, count = (f"sum by ({_BY}) ({promql.rate(_of(metric, suffix=end))})" for end in ("_sum", "_count"))
    return f"{total} / ({count} > 0)"


def _tokens(kind: str, by: str = _BY) -> str:
    matcher = f'kind="{kind}"'
    return f"sum by ({by}) ({promql.rate(_of(inference.TOKENS, matcher))})"


def _figure(text: PanelText, queries: Sequence[Query], axis: Axis, *, width: int = 5) -> Placed:
    named = len(queries) > 1
    return stat(text, queries, axis, named=named, width=width, height=3)


def _requests_now() -> Placed:
    text = PanelText("Requests now", "Requests that run, and that wait for a place in the batch.", _EMPTY)
    queries = [Query(f"sum({_in_state(state)})", state) for state in ("running", "waiting")]
    return _figure(text, queries, Axis("short", low=0, decimals=0), width=7)


def _first_token_now() -> Placed:
    text = PanelText(
        "Time to first token (p95)", "95th percentile now, of all models chosen: what a user waits for.", _EMPTY
    )
    buckets = promql.rate(_of(inference.TIME_TO_FIRST_TOKEN, suffix="_bucket"))
    quantile = f"histogram_quantile({_TAIL}, sum by (le) ({buckets})) >= 0"
    return _figure(text, [Query(quantile)], Axis("s", low=0), width=7)


def _throughput_now() -> Placed:
    text = PanelText("Tokens a second", "Generated tokens a second, of all models chosen.", _EMPTY)
    tokens = promql.rate(_of(inference.TOKENS, 'kind="generation"'))
    return _figure(text, [Query(f"sum({tokens})")], Axis("short", low=0))


def _energy_now() -> Placed:
    text = PanelText(
        "Tokens a joule",
        "Generated tokens by the energy of the servers' GPUs, of the server with the fewest. Needs the recording "
        "rules, and an exporter that reads the engine's page.",
        _EMPTY,
    )
    return _figure(text, [Query(f"min({TOKENS_PER_JOULE}{{{_MODEL}}})")], Axis("none", low=0, decimals=2))


def beside_training() -> Row:
    """GPUs of servers on which programs train."""
    return Row("Training on the servers' GPUs", (on_one_gpu(_MODEL),), collapsed=True)


def on_one_gpu(chosen: str) -> Placed:
    """Servers and programs that share a GPU, both by name.

    Args:
        chosen: The page's choice among them, as a matcher of a label.
    """
    text = PanelText(
        "Servers and programs on one GPU",
        "GPUs, or MIG instances, on which a server answers and a program trains: each takes time from the other. Needs "
        "the recording rules, and an exporter that reads the engine's page.",
        EmptyText("no GPU is shared", liveness.GPUS),
    )
    return table(
        text,
        [column(f"max by ({inference.MODEL}, {inference.SERVER}, program, {_ON_GPU}) ({SHARED}{{{chosen}}})")],
        (
            Column(inference.MODEL, "Model"),
            Column(inference.SERVER, "Engine", width=90),
            Column("program", "Program"),
            Column("Hostname", "Node", width=160),
            Column("gpu", "GPU", width=60),
            Column("GPU_I_ID", "Instance", width=80),
        ),
        sort="Model",
        width=24,
        height=5,
    )


def _models() -> Placed:
    text = PanelText(
        "Models",
        "Each model and engine: requests, 95th percentile of the time to the first token, mean time between tokens and "
        "in the queue, generated tokens a second, tokens a GPU-second, and use of the KV cache, which engines fill by "
        "design: requests that were put back say that it is too small.",
        _EMPTY,
    )
    running, waiting = (f"sum by ({_BY}) ({_in_state(state)})" for state in ("running", "waiting"))
    values = (
        running,
        waiting,
        _quantile(inference.TIME_TO_FIRST_TOKEN, _TAIL),
        _mean(inference.INTER_TOKEN),
        _mean(inference.QUEUE),
        _tokens("generation"),
        f"max by ({_BY}) ({TOKENS_PER_GPU_SECOND}{{{_MODEL}}})",
        f"max by ({_BY}) ({_of(inference.KV_CACHE)})",
        f"sum by ({_BY}) ({promql.rate(_of(inference.PREEMPTIONS))})",
    )
    return table(
        text,
        list(map(column, values)),
        (
            Column(inference.MODEL, "Model"),
            Column("Value #A", "Running", "short", width=80),
            Column("Value #B", "Waiting", "short", width=70),
            Column("Value #C", "First token", "s", width=90),
            Column("Value #D", "Next token", "s", width=90),
            Column("Value #E", "In queue", "s", width=80),
            Column("Value #F", "Tokens/s", "short", width=80),
            Column("Value #G", "Tokens/GPU-s", "short", width=100),
            Column("Value #H", "KV cache", "percentunit", width=80, decimals=0),
            Column("Value #I", "Put back/s", "short", width=90),
            Column(inference.SERVER, "Engine", width=90),
        ),
        sort="Running",
        height=5,
    )


def _graph(text: PanelText, queries: Sequence[Query], axis: Axis, *overrides: Json) -> Placed:
    none = liveness.nothing(_NONE, (one.expr for one in queries))
    style = LineStyle(overrides=overrides)
    return time_series(text, [*queries, none], axis, style, width=8, height=5)


def _quantiles(metric: Metric) -> list[Query]:
    return [
        Query(f"topk({_LINES}, {_quantile(metric, share)})", f"{_NAMED} {words}")
        for share, words in ((0.5, "median"), (_TAIL, "p95"))
    ]


def _first_token() -> Placed:
    text = PanelText(
        "Time to first token", "Median and 95th percentile, by model: queue, prompt and first step together."
    )
    return _graph(text, _quantiles(inference.TIME_TO_FIRST_TOKEN), Axis("s", low=0))


def _inter_token() -> Placed:
    text = PanelText(
        "Time between tokens", "Median and 95th percentile, by model. It rises with the size of the batch."
    )
    return _graph(text, _quantiles(inference.INTER_TOKEN), Axis("s", low=0))


def _queue() -> Placed:
    text = PanelText(
        "Time in the queue", "Mean time in which a request waited before it ran: above 0 for long, capacity lacks."
    )
    return _graph(text, [Query(f"topk({_LINES}, {_mean(inference.QUEUE)})", _NAMED)], Axis("s", low=0))


def _throughput() -> Placed:
    text = PanelText("Tokens", "Tokens of prompts, and generated tokens, a second, by model.")
    queries = [Query(f"topk({_LINES}, {_tokens(kind)})", f"{_NAMED} {kind}") for kind in ("prompt", "generation")]
    return _graph(text, queries, Axis("short", low=0))


def _requests() -> Placed:
    text = PanelText("Requests", "Requests that run and that wait, by model.")
    queries = [
        Query(f"topk({_LINES}, sum by ({_BY}) ({_in_state(state)}))", f"{_NAMED} {state}")
        for state in ("running", "waiting")
    ]
    return _graph(text, queries, Axis("short", low=0, decimals=0))


def _cache() -> Placed:
    text = PanelText(
        "KV cache, and requests put back",
        "Used share of the KV cache, and requests a second that were put back into the queue because it was full.",
    )
    queries = [
        Query(f"topk({_LINES}, max by ({_BY}) ({_of(inference.KV_CACHE)}))", f"{_NAMED} used"),
        Query(
            f"topk({_LINES}, sum by ({_BY}) ({promql.rate(_of(inference.PREEMPTIONS))}))", f"{_NAMED} put back a second"
        ),
    ]
    back = {
        "matcher": {"id": "byRegexp", "options": "/put back a second$/"},
        "properties": [{"id": "unit", "value": "short"}],
    }
    return _graph(text, queries, Axis("percentunit", low=0), back)
