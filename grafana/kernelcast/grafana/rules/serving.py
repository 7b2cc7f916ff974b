"""Recording rules that give the series of inference engines neutral names, where Prometheus scrapes the engines.

The names are those of the catalogue, so that series of engines that an exporter reads have the same. No alert is about
the KV cache: engines fill it by design. Preemptions and the time in the queue say when it is too small.
"""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.rules.model import RecordingRule, RuleGroup
from kernelcast.wire.catalogue import inference, kernel
from kernelcast.wire.catalogue.inference import ENGINES, EngineSeries

SHARED: Final = "gpu:kernelcast_inference_gpu:shared"
TOKENS_PER_JOULE: Final = "server:kernelcast_inference_tokens:perjoule"
TOKENS_PER_GPU_SECOND: Final = "server:kernelcast_inference_tokens:pergpusecond"
_SERVER: Final = "Hostname, address, server, model_name"
_GPU: Final = "Hostname, UUID"
_INSTANCE: Final = f"{_GPU}, GPU_I_ID"


def recordings(window: str, watts: str) -> tuple[RuleGroup, ...]:
    """One group for each engine, and one for servers on the GPUs of a node.

    Args:
        window: Of rates.
        watts: The recording of a GPU's power.
    """
    engines = tuple(
        RuleGroup(f"kernelcast-serving-{server}", tuple(rule for one in engine for rule in _rules(server, one)))
        for server, engine in ENGINES.items()
    )
    return (*engines, RuleGroup("kernelcast-serving", _on_gpus(window, watts)))


def _on_gpus(window: str, watts: str) -> tuple[RecordingRule, ...]:
    """Programs that train on the GPU or MIG instance of a server, both by name; tokens by energy and GPU-time.

    The energy of a GPU is all of its server's, also where others run on it: then SHARED has a series.
    """
    info = promql.name(inference.GPU_INFO)
    training = f"group by ({_INSTANCE}, gpu, program) ({promql.name(kernel.STEPS)} > 0)"
    server = f"topk by ({_INSTANCE}) (1, group by ({_INSTANCE}, server, model_name) ({info}))"
    each = f"group by ({_SERVER}, UUID) ({info})"
    rate = f'sum without (instance) (rate({promql.name(inference.TOKENS)}{{kind="generation"}}[{window}]))'
    tokens = f"sum by ({_SERVER}) ({rate})"
    power = f"sum by ({_SERVER}) ({each} * on ({_GPU}) group_left () max by ({_GPU}) ({watts}))"
    return (
        RecordingRule(SHARED, f"{training} * on ({_INSTANCE}) group_left (server, model_name) {server}"),
        RecordingRule(TOKENS_PER_JOULE, f"{tokens} / ({power} > 0)"),
        RecordingRule(TOKENS_PER_GPU_SECOND, f"{tokens} / count by ({_SERVER}) ({each})"),
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
