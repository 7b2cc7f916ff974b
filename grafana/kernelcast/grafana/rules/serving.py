"""Recording rules that give the series of inference engines neutral names, where Prometheus scrapes the engines.

The names are those of the catalogue, so that series of engines that an exporter reads have the same. No alert is about
the KV cache: engines fill it by design. Preemptions and the time in the queue say when it is too small.
"""

from kernelcast.grafana.rules.model import RecordingRule, RuleGroup
from kernelcast.wire.catalogue import inference
from kernelcast.wire.catalogue.inference import ENGINES, EngineSeries


def recordings() -> tuple[RuleGroup, ...]:
    """One group for each engine."""
    return tuple(
        RuleGroup(f"kernelcast-serving-{server}", tuple(rule for one in engine for rule in _rules(server, one)))
        for server, engine in ENGINES.items()
    )


def _rules(server: str, one: EngineSeries) -> tuple[RecordingRule, ...]:
    labels = {inference.SERVER: server, **one.labels}
    (present, *earlier) = one.names
    return tuple(
        RecordingRule(
            f"{one.row.prometheus_name}{suffix}",
            " or ".join(_converted(own.replace(present, name), one, suffix) for name in (present, *earlier)),
            labels,
        )
        for suffix, own in inference.series_of(one).items()
    )


def _converted(name: str, one: EngineSeries, suffix: str) -> str:
    """An engine's series in the row's unit, with the model under one label; Triton has all versions of one as well."""
    expr = name
    if name.startswith("nv_"):
        expr = f'label_replace({name}, "{inference.MODEL}", "$1", "{inference.TRITON_MODEL}", "(.+)")'
    return f"{expr} / {one.divisor:.0f}" if one.divisor != 1.0 and suffix in {"", "_sum"} else expr
