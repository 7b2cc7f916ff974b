"""Panels and messages about one fault agree on its time, duration, number and program, by promtool's clock."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import binary
from tests.unit.grafana.queries import needed_rules, run

from kernelcast.grafana import rules
from kernelcast.grafana.dashboards import crossing, fleet, headlines
from kernelcast.grafana.dashboards.hardware import trouble
from kernelcast.grafana.model.panels import Placed
from kernelcast.grafana.rules.standing import HOLDER

pytestmark = pytest.mark.service

MINUTE = 60
GPU = 'Hostname="a",gpu="1"'
MEASURED = {
    f'kernelcast_gpu_up{{{GPU},job="exporter"}}': "1x80",
    'kernelcast_forecast_judged_series{job="predictor"}': "5x80",
}
"""A GPU that answers, and a predictor that judges."""
VALUES = {"__rate_interval": "4m", "__range": "1h", "__interval": "1m"}
Samples = Sequence[tuple[str, float]]


def query(placed: Placed, position: int) -> str:
    """Returns a panel's query as Grafana sends it with everything chosen."""
    expr: str = placed.panel.targets[position]["expr"]
    return re.sub(r"\$([A-Za-z_]\w*)", lambda found: VALUES.get(found[1], ".*"), expr)


def assert_answers(
    directory: Path, series: Mapping[str, str], answers: Mapping[str, Samples], *, with_rules: bool, minute: int = 60
) -> None:
    """Ask promtool; each query has the samples given, by their labels."""
    documents = {name: yaml.safe_load(text) for name, text in rules.render(rules.PRODUCTION).items()}
    documents.pop(rules.NATIVE_FILE)
    wanted = needed_rules(documents, " ".join(answers)) if with_rules else {}
    for name, document in wanted.items():
        (directory / name).write_text(yaml.safe_dump(document))
    asked: list[dict[str, Any]] = [
        {
            "expr": f"round({expr})",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples],
        }
        for expr, samples in answers.items()
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": asked,
    }
    test = {"rule_files": list(wanted), "evaluation_interval": "1m", "tests": [case]}
    (directory / "test.yaml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", directory / "test.yaml")


def test_an_alert_is_listed_since_the_moment_that_its_message_names(tmp_path: Path) -> None:
    """The table said 2 min, from the alert's start, where message and findings said 40 min, from the fault's."""
    finding = f'{GPU},UUID="u",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal",state="passed",urgency="page"'
    rank = 'Hostname="b",gpu="0",UUID="v",program="train",rank="3",job_id="j",state="disk",job="e"'
    other = rank.replace('gpu="0",UUID="v"', 'gpu="1",UUID="w"').replace('"3"', '"4"').replace("disk", "backward")
    down = 'Hostname="c",gpu="0",UUID="x"'
    series = {
        'kernelcast_predictor_findings_timestamp_seconds{job="p"}': "0+60x80",
        f'kernelcast_predictor_finding_since_timestamp_seconds{{{finding},job="p"}}': f"_x50 {20 * MINUTE}x30",
        f"kernelcast_program_standing_still_seconds{{{rank}}}": "0x50 600+60x30",
        f"kernelcast_program_standing_still_seconds{{{other}}}": "0x50 540+60x30",
        f"kernelcast_gpu_up{{{down}}}": "1x50 0x30",
    }
    since = query(fleet.alerts(), 1)
    ranks = query(fleet.alerts(), 0)
    listed = [
        (f'{{alertname="KernelcastLimitPassed",{GPU}}}', 40 * MINUTE),
        ('{alertname="KernelcastJobStandsStill",Hostname="b",gpu="0",program="train"}', 600 + 9 * MINUTE),
        ('{alertname="KernelcastGpuDown",Hostname="c",gpu="0"}', 9 * MINUTE),
    ]
    severities = [(labels, 3.0) for labels, _ in listed]
    assert_answers(tmp_path, series, {since: listed, ranks: severities}, with_rules=True)


def test_a_job_stands_still_for_one_time_on_every_page(tmp_path: Path) -> None:
    """Fleet had the longest time of any rank, Program that of the rank that holds the others up."""
    series = {
        **MEASURED,
        f'kernelcast_probe_running_seconds_total{{{GPU},UUID="u",program="train",rank="0",job="e"}}': "0+60x80",
        f'{HOLDER}{{{GPU},program="train",rank="1",state="disk",job="e"}}': "0+60x80",
        f'kernelcast_program_standing_still_seconds{{{GPU},program="train",rank="0",state="backward",job="e"}}': (
            "30+60x80"
        ),
    }
    answers = {
        query(fleet.programs(), 6): [('{program="train"}', 3600.0)],
        query(headlines.standing(), 0): [
            ('{program="train",state="disk",rank="1",Hostname="a",who=", rank 1"}', 3600.0),
        ],
    }
    assert_answers(tmp_path, series, answers, with_rules=False)


@pytest.mark.parametrize("free", [(), trouble.PROGRAMS])
def test_no_breach_is_called_unpredicted_while_an_alert_predicts_one(free: tuple[str, ...], tmp_path: Path) -> None:
    predicted = f'{GPU},metric="DCGM_FI_DEV_FB_USED",cause="memory_leak"'
    alert = f'alertname="KernelcastDegradationPredicted",alertstate="firing",severity="warning",{predicted}'
    series = {
        **MEASURED,
        f'kernelcast_probe_running_seconds_total{{{GPU},program="train",job="e"}}': "0+60x80",
        f"ALERTS{{{alert}}}": "1x80",
    }
    placed = headlines.breach(free=free)
    answers = {query(placed, 0): [(f"{{{predicted}}}", crossing.TIME_NOT_KNOWN)], query(placed, 2): ()}
    assert_answers(tmp_path, series, answers, with_rules=False)


def test_the_fleet_names_the_xid_and_the_program_of_a_gpu(tmp_path: Path) -> None:
    """ "Errors: 1" led to another page for the number, and nothing said whose work had failed."""
    xid = f'{GPU},UUID="u",job="exporter",xid="%s",err_msg="m"'
    series = {
        **MEASURED,
        f"kernelcast_gpu_xid_errors_total{{{xid % 13}}}": "0x40 1x40",
        f"kernelcast_gpu_xid_last_occurrence_timestamp_seconds{{{xid % 13}}}": "_x41 2460x40",
        f"kernelcast_gpu_xid_errors_total{{{xid % 79}}}": "0x45 1x40",
        f"kernelcast_gpu_xid_last_occurrence_timestamp_seconds{{{xid % 79}}}": "_x46 2760x40",
        f'kernelcast_probe_running_seconds_total{{{GPU},UUID="u",program="train",job="exporter"}}': "0+60x80",
        'DCGM_FI_DEV_FB_USED{Hostname="b",gpu="0",pod="notebook",job="exporter"}': "1x80",
    }
    table = trouble.worst_first()
    answers = {
        query(table, 3): [(f'{{{GPU},xid="XID 79"}}', 2760.0)],
        query(table, 4): [
            (f'{{{GPU},used_by="train"}}', 1.0),
            ('{Hostname="b",gpu="0",used_by="notebook"}', 1.0),
        ],
    }
    assert_answers(tmp_path, series, answers, with_rules=False)
