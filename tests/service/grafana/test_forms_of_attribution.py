"""All rules under each form of attribution: those that need an owner find it in either place, or have none."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.grafana.test_rules_over_recorded_gpus import failures
from tests.service.require import binary
from tests.support.exporter.attribution_forms import FORMS, INFO, LABELS, OFF, simulated
from tests.support.exporter.simulated_series import simulate
from tests.unit.grafana.queries import run

from kernelcast.grafana import rules
from kernelcast.grafana.rules import hours

pytestmark = pytest.mark.service

MINUTES = 30
POD = {"namespace": "ml", "pod": "notebook-0"}
OF_AN_OWNER = {hours.OWNER, hours.KNOWN, hours.PART, hours.HOURS, hours.WATTS}
"""Recordings of allocated GPUs: with attribution off, a GPU is allocated while a program reports from it, to nobody."""


def answers(directory: Path, series: Mapping[str, str], *questions: tuple[str, str]) -> str:
    """What promtool finds where nothing is expected: the answers to the questions, each at its moment."""
    for file, text in rules.render(rules.PRODUCTION).items():
        (directory / file).write_text(json.dumps(yaml.load(text, yaml.CSafeLoader)))
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": at, "exp_samples": []} for expr, at in questions],
    }
    files = [rules.ALERTS_FILE, rules.CLASSIC_FILE]
    document: dict[str, Any] = {"rule_files": files, "evaluation_interval": "1m", "tests": [case]}
    (directory / "test.yaml").write_text(json.dumps(document))
    return failures(directory / "test.yaml")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, int]]:
    """By form, the recordings that have an answer, and the number of their series."""
    found = {}
    for form in FORMS:
        with simulated(form):
            watched = simulate(seconds=60 * MINUTES, every=60)
        series = {
            name: " ".join("_" if value is None else value for value in values)
            for name, values in watched.values.items()
        }
        question = ('count by (__name__) ({__name__=~".+:.+"})', f"{MINUTES - 2}m")
        output = answers(tmp_path_factory.mktemp(form), series, question)
        found[form] = {name: int(count) for name, count in re.findall(r'__name__="([^"]+:[^"]+)"[^}]*\} (\d+)', output)}
    return found


def test_every_rule_answers_alike_whether_owners_stand_on_labels_or_on_series_of_their_own(
    recorded: Mapping[str, Mapping[str, int]],
) -> None:
    assert recorded[LABELS].keys() > OF_AN_OWNER
    assert recorded[INFO] == recorded[LABELS]


def test_without_owners_every_other_rule_answers_as_before(recorded: Mapping[str, Mapping[str, int]]) -> None:
    assert recorded[OFF].keys() == recorded[LABELS].keys()
    differs = {name for name, count in recorded[LABELS].items() if recorded[OFF][name] != count}
    assert differs <= OF_AN_OWNER


@pytest.mark.parametrize("form", FORMS)
def test_a_gpu_that_its_owner_leaves_idle_is_named_with_the_owner_in_either_form(form: str, tmp_path: Path) -> None:
    gpu = 'job="kernelcast-exporter",Hostname="a",UUID="GPU-1",gpu="0"'
    own = ",".join(f'{name}="{value}"' for name, value in POD.items())
    used, owner = f"DCGM_FI_DEV_GPU_UTIL{{{gpu}}}", f"kernelcast_gpu_owner_info{{{gpu},{own}}}"
    series = {
        LABELS: {used[:-1] + f",{own}}}": "0x1000"},
        INFO: {used: "0x1000", owner: "1x1000"},
        OFF: {used: "0x1000"},
    }
    at = f"{int(rules.PRODUCTION.thresholds.idle_hours * 60) + 5}m"
    firing = (
        'count by (pod, namespace, Hostname, gpu) (ALERTS{alertname="KernelcastGpuIdleAllocated", alertstate="firing"})'
    )
    output = answers(tmp_path, series[form], (firing, at))
    assert ('pod="notebook-0"' in output and 'namespace="ml"' in output) is (form != OFF), output


def test_a_gpu_in_use_is_not_called_idle_where_owners_have_series_of_their_own(tmp_path: Path) -> None:
    gpu = 'Hostname="a",UUID="GPU-1",gpu="0"'
    series = {f"DCGM_FI_DEV_GPU_UTIL{{{gpu}}}": "90x1000", f'kernelcast_gpu_owner_info{{{gpu},pod="a"}}': "1x1000"}
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"alertname": "KernelcastGpuIdleAllocated", "eval_time": "900m", "exp_alerts": []}],
    }
    (tmp_path / rules.ALERTS_FILE).write_text(rules.render(rules.PRODUCTION)[rules.ALERTS_FILE])
    document = {"rule_files": [rules.ALERTS_FILE], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", tmp_path / "test.yaml")
