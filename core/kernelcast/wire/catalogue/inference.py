"""Metrics of inference engines under neutral names, and what each engine calls them.

Recording rules give an engine's series these names where Prometheus scrapes the engine, and `exporter/scrape` where it
reads the page itself. An engine without a figure has no series of that name.

Sources: the page of vLLM 0.32.0, and vLLM 0.12, vllm/v1/metrics/loggers.py (two names are of versions before 0.11).
SGLang 0.5.23, python/sglang/srt/observability/metrics_collector.py. TensorRT-LLM main (050f80de),
tensorrt_llm/metrics/collector.py. Triton 2.71 (e1db8a60), docs/user_guide/metrics.md; it times a request as a whole and
counts durations by request (`nv_inference_request_success`), and its histogram of the first response has bounds that
each site chooses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import kafka_metric

SERVER, MODEL, ENGINE = "server", "model_name", "engine"
INFERENCE_LABELS: Final = ("Hostname", "source", "address", "pod", "namespace", SERVER, MODEL, ENGINE)
_SOURCE: Final = "the engine's page, by recording rules or by the exporter (exporter.scrape)"


def _metric(name: str, kind: Kind, help: str, unit: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return kafka_metric(
        f"kernelcast.inference.{name}", kind, help, unit=unit, labels=(*INFERENCE_LABELS, *labels), source=_SOURCE
    )


TIME_TO_FIRST_TOKEN: Final = _metric(
    "time_to_first_token", Kind.HISTOGRAM, "Time from a request's arrival to its first token.", "s"
)
INTER_TOKEN: Final = _metric(
    "inter_token", Kind.HISTOGRAM, "Time between two tokens of a request; of TensorRT-LLM its mean by request.", "s"
)
QUEUE: Final = _metric("queue", Kind.HISTOGRAM, "Time in which a request waited before it ran.", "s")
REQUEST: Final = _metric("request", Kind.HISTOGRAM, "Time from a request's arrival to its end.", "s")
TOKENS: Final = _metric("tokens", Kind.COUNTER, 'Tokens; kind="prompt" or "generation".', "{token}", "kind")
REQUESTS: Final = _metric("requests", Kind.GAUGE, 'Requests now; state="running" or "waiting".', "{request}", "state")
KV_CACHE: Final = _metric(
    "kv_cache", Kind.GAUGE, "Used share of the KV cache. Engines fill it by design: near 1 is no trouble.", "1"
)
PREEMPTIONS: Final = _metric(
    "preemptions",
    Kind.COUNTER,
    "Requests that were put back into the queue because the KV cache was full.",
    "{request}",
)
GPU_INFO: Final = kafka_metric(
    "kernelcast.inference.gpu.info",
    Kind.INFO,
    "A GPU that an engine's server uses, found by the process that listens, else by its pod.",
    unit="",
    labels=("Hostname", "UUID", "gpu", "GPU_I_ID", "source", "address", "pod", "namespace", SERVER, MODEL),
    source="exporter, from the engine's page, NVML's processes and /proc",
)
ROWS: Final = (TIME_TO_FIRST_TOKEN, INTER_TOKEN, QUEUE, REQUEST, TOKENS, REQUESTS, KV_CACHE, PREEMPTIONS, GPU_INFO)


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """One metric of an engine.

    Attributes:
        row: Its neutral name.
        names: Its names at the engine, the present one first. Of a histogram without `_bucket`, `_sum` and `_count`.
        divisor: Of its values, to be in the row's unit.
        labels: Labels that say which part of the row it is.
        count: Of durations that the engine only sums up: the name of the counter of what they are summed over.
        has_buckets: Of a histogram: whether its buckets keep their meaning in the row's unit.
    """

    row: Metric
    names: tuple[str, ...]
    divisor: float = 1.0
    labels: Mapping[str, str] = field(default_factory=dict)
    count: str = ""
    has_buckets: bool = True


def _common(prefix: str, *, inter_token: tuple[str, ...], queue: str) -> tuple[EngineSeries, ...]:
    """What vLLM's names have become for others, too."""
    return (
        EngineSeries(TIME_TO_FIRST_TOKEN, (f"{prefix}time_to_first_token_seconds",)),
        EngineSeries(INTER_TOKEN, tuple(f"{prefix}{name}" for name in inter_token)),
        EngineSeries(QUEUE, (f"{prefix}{queue}",)),
        EngineSeries(REQUEST, (f"{prefix}e2e_request_latency_seconds",)),
        EngineSeries(TOKENS, (f"{prefix}prompt_tokens_total",), labels={"kind": "prompt"}),
        EngineSeries(TOKENS, (f"{prefix}generation_tokens_total",), labels={"kind": "generation"}),
    )


def _requests(running: str, waiting: str) -> tuple[EngineSeries, ...]:
    return (
        EngineSeries(REQUESTS, (running,), labels={"state": "running"}),
        EngineSeries(REQUESTS, (waiting,), labels={"state": "waiting"}),
    )


ENGINES: Final[Mapping[str, tuple[EngineSeries, ...]]] = MappingProxyType(
    {
        "vllm": (
            *_common(
                "vllm:",
                inter_token=("inter_token_latency_seconds", "time_per_output_token_seconds"),
                queue="request_queue_time_seconds",
            ),
            *_requests("vllm:num_requests_running", "vllm:num_requests_waiting"),
            EngineSeries(KV_CACHE, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
            EngineSeries(PREEMPTIONS, ("vllm:num_preemptions_total",)),
        ),
        "sglang": (
            *_common("sglang:", inter_token=("inter_token_latency_seconds",), queue="queue_time_seconds"),
            *_requests("sglang:num_running_reqs", "sglang:num_queue_reqs"),
            EngineSeries(KV_CACHE, ("sglang:token_usage",)),
            EngineSeries(PREEMPTIONS, ("sglang:num_retracted_requests_total",)),
        ),
        "tensorrt-llm": (
            *_common("trtllm_", inter_token=("time_per_output_token_seconds",), queue="request_queue_time_seconds"),
            *_requests("trtllm_num_requests_running", "trtllm_num_requests_waiting"),
            EngineSeries(KV_CACHE, ("trtllm_kv_cache_utilization",)),
        ),
        "triton": (
            EngineSeries(
                TIME_TO_FIRST_TOKEN, ("nv_inference_first_response_histogram_ms",), divisor=1e3, has_buckets=False
            ),
            EngineSeries(QUEUE, ("nv_inference_queue_duration_us",), divisor=1e6, count="nv_inference_request_success"),
            EngineSeries(
                REQUEST, ("nv_inference_request_duration_us",), divisor=1e6, count="nv_inference_request_success"
            ),
            EngineSeries(REQUESTS, ("nv_inference_pending_request_count",), labels={"state": "waiting"}),
        ),
    }
)
"""By `server`."""
TRITON_MODEL: Final = "model"
"""Triton's name of `model_name`."""


def series_of(one: EngineSeries) -> dict[str, str]:
    """Names at the engine by the suffix that they have under the neutral name.

    >>> series_of(ENGINES["triton"][1])
    {'_sum': 'nv_inference_queue_duration_us', '_count': 'nv_inference_request_success'}
    """
    (name, *_) = one.names
    if one.row.kind is not Kind.HISTOGRAM:
        return {"": name}
    if one.count:
        return {"_sum": name, "_count": one.count}
    suffixes = ("_bucket", "_sum", "_count") if one.has_buckets else ("_sum", "_count")
    return {suffix: f"{name}{suffix}" for suffix in suffixes}
