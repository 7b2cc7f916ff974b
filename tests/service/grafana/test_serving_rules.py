"""Engines' own series get neutral names: pages of each engine, evaluated by promtool with our rules."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import binary
from tests.support.serving import PAGES
from tests.unit.grafana.queries import run

from kernelcast.grafana import rules
from kernelcast.runtime.prometheus_text import LINE_FEED, samples
from kernelcast.wire.catalogue import inference

pytestmark = pytest.mark.service

QWEN = {"model_name": "Qwen/Qwen3-4B-Instruct-2507", "engine": "0", "server": "vllm"}
LLAMA = {"model_name": "meta-llama/Llama-3.1-8B-Instruct", "server": "sglang"}
UNDEFINED = {"model_name": "undefined", "engine_type": "undefined", "server": "tensorrt-llm"}
MINE = {"model": "my_model", "model_name": "my_model", "version": "1", "server": "triton"}

Values = dict[str, tuple[dict[str, str], float]]
EXPECTED: dict[str, Values] = {
    "vllm": {
        "time_to_first_token_seconds_count": (QWEN, 200),
        "time_to_first_token_seconds_sum": (QWEN, 30),
        "inter_token_seconds_sum": (QWEN, 510),
        "queue_seconds_sum": (QWEN, 4),
        "request_seconds_sum": (QWEN, 540),
        'tokens_total{kind="prompt"}': (QWEN | {"kind": "prompt"}, 2097152),
        'tokens_total{kind="generation"}': (QWEN | {"kind": "generation"}, 27453),
        'requests{state="running"}': (QWEN | {"state": "running"}, 5),
        'requests{state="waiting"}': (QWEN | {"state": "waiting"}, 2),
        "kv_cache_ratio": (QWEN, 0.45),
        "preemptions_total": (QWEN, 3),
        'time_to_first_token_seconds_bucket{le="0.25"}': (QWEN | {"le": "0.25"}, 180),
    },
    "sglang": {
        "time_to_first_token_seconds_sum": (LLAMA, 2351897.9474117756),
        'tokens_total{kind="generation"}': (LLAMA | {"kind": "generation"}, 7557572),
        'requests{state="running"}': (LLAMA | {"state": "running"}, 162),
        'requests{state="waiting"}': (LLAMA | {"state": "waiting"}, 2826),
        "kv_cache_ratio": (LLAMA, 0.28),
        "preemptions_total": (LLAMA, 4),
    },
    "tensorrt-llm": {
        "time_to_first_token_seconds_count": (UNDEFINED, 2),
        "inter_token_seconds_sum": (UNDEFINED, 0.02),
        'requests{state="running"}': (UNDEFINED | {"state": "running"}, 1),
        "kv_cache_ratio": (UNDEFINED, 0.06),
        'tokens_total{kind="generation"}': (UNDEFINED | {"kind": "generation"}, 64),
    },
    "triton": {
        "time_to_first_token_seconds_sum": (MINE, 10.771),
        "time_to_first_token_seconds_count": (MINE, 37),
        "queue_seconds_sum": (MINE, 0.01111),
        "queue_seconds_count": (MINE, 161),
        "request_seconds_sum": (MINE, 3.22),
        "request_seconds_count": (MINE, 161),
        'requests{state="waiting"}': (MINE | {"state": "waiting"}, 95),
    },
}
ABSENT = {
    "tensorrt-llm": ("preemptions_total",),
    "triton": ("inter_token_seconds_count", "tokens_total", "kv_cache_ratio", "preemptions_total"),
}


@pytest.mark.parametrize("server", EXPECTED)
def test_the_series_of_an_engine_have_neutral_names_in_base_units(server: str, tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    expected = [*EXPECTED[server].items(), *((name, None) for name in ABSENT.get(server, ()))]
    case = {
        "interval": "30s",
        "input_series": [
            {"series": written(sample.name, sample.labels), "values": f"{sample.value!r}x4"}
            for sample in samples(PAGES[server].split(LINE_FEED))
        ],
        "promql_expr_test": [question(name, found) for name, found in expected],
    }
    test = {"rule_files": [rules.CLASSIC_FILE], "evaluation_interval": "30s", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", tmp_path / "test.yaml")


def question(name: str, found: tuple[dict[str, str], float] | None) -> dict[str, Any]:
    expr = f"kernelcast_inference_{name}"
    answers = [] if found is None else [{"labels": written(expr.partition("{")[0], found[0]), "value": found[1]}]
    return {"expr": expr, "eval_time": "1m", "exp_samples": answers}


def written(name: str, labels: dict[str, str]) -> str:
    pairs = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}"


def test_no_alert_is_about_the_kv_cache() -> None:
    ratio = inference.KV_CACHE.prometheus_name
    assert not [alert.name for alert in rules.alerts(rules.PRODUCTION) if ratio in alert.expr]
