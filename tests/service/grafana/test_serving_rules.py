"""Engines' own series get neutral names: pages of each engine, evaluated by promtool with our rules."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import binary
from tests.support.serving import PAGES
from tests.unit.grafana.queries import run

from kernelcast.grafana import rules
from kernelcast.grafana.rules.serving import SHARED
from kernelcast.runtime.prometheus_text import LINE_FEED, samples
from kernelcast.wire.catalogue import inference

pytestmark = pytest.mark.service

TINY = {"model_name": "tiny", "engine": "0", "server": "vllm"}
LLAMA = {"model_name": "meta-llama/Llama-3.1-8B-Instruct", "server": "sglang"}
UNDEFINED = {"model_name": "undefined", "engine_type": "undefined", "server": "tensorrt-llm"}
MINE = {"model": "my_model", "model_name": "my_model", "version": "1", "server": "triton"}

Values = dict[str, tuple[dict[str, str], float]]
EXPECTED: dict[str, Values] = {
    "vllm": {
        "time_to_first_token_seconds_count": (TINY, 12),
        "time_to_first_token_seconds_sum": (TINY, 2.5802011489868164),
        "inter_token_seconds_sum": (TINY, 18.54543142700186),
        "queue_seconds_sum": (TINY, 0.0003661779983303859),
        "request_seconds_sum": (TINY, 20.46189045906067),
        'tokens_total{kind="prompt"}': (TINY | {"kind": "prompt"}, 72),
        'tokens_total{kind="generation"}': (TINY | {"kind": "generation"}, 1501),
        'requests{state="running"}': (TINY | {"state": "running"}, 1),
        'requests{state="waiting"}': (TINY | {"state": "waiting"}, 0),
        "kv_cache_ratio": (TINY, 0.0004885197850512668),
        "preemptions_total": (TINY, 0),
        'time_to_first_token_seconds_bucket{le="0.25"}': (TINY | {"le": "0.25"}, 9),
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


def test_a_server_and_a_program_that_trains_on_one_gpu_are_named_together(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    gpus = {"whole": 'Hostname="a",UUID="GPU-1",gpu="0"', "other": 'Hostname="a",UUID="GPU-2",gpu="1"'}
    gpus |= {f"instance {each}": f'Hostname="b",UUID="GPU-3",gpu="0",GPU_I_ID="{each}"' for each in (1, 2)}
    serves, trains = ("whole", "instance 1"), {"whole": "finetune", "other": "pretrain", "instance 2": "evaluate"}
    info, steps = inference.GPU_INFO.prometheus_name, "kernelcast_program_steps_total"
    series = [f'{info}{{{gpus[each]},address="a:8000",server="vllm",model_name="llama"}}' for each in serves]
    series += [f'{steps}{{{gpus[each]},program="{program}",rank="0"}}' for each, program in trains.items()]
    own = {"gpu": "0", "program": "finetune", "server": "vllm", "model_name": "llama"}
    both = written(SHARED, {"Hostname": "a", "UUID": "GPU-1", **own})
    case = {
        "interval": "30s",
        "input_series": [{"series": name, "values": "1x10"} for name in series],
        "promql_expr_test": [{"expr": SHARED, "eval_time": "2m", "exp_samples": [{"labels": both, "value": 1}]}],
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
