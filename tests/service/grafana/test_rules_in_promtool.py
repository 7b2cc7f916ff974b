"""promtool reads the rules, and tests when they fire and when they do not."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import binary
from tests.support.examples import chosen_profile
from tests.unit.grafana.queries import GENERATED, boards, needed_rules, panels, run

from kernelcast.grafana import node_exporter, promql, rules
from kernelcast.grafana.dashboards.hardware import trouble
from kernelcast.wire.catalogue import kernel

TEST_FILES = sorted((GENERATED / "rules" / "tests").glob("*.yaml"))


@pytest.mark.parametrize("profile", tuple(rules.PROFILES.values()), ids=lambda profile: profile.name)
def test_promtool_accepts_the_rules(profile: rules.Profile, tmp_path: Path) -> None:
    promtool = binary("promtool", "prometheus")
    for name, text in rules.render(profile).items():
        (tmp_path / name).write_text(text)
        number = sum(len(group["rules"]) for group in yaml.safe_load(text)["groups"])
        assert number > 0, name
        assert f"SUCCESS: {number} rules found" in run(promtool, "check", "rules", tmp_path / name)


def test_promtool_refuses_a_rule_with_an_invalid_expression(tmp_path: Path) -> None:
    rules_file = tmp_path / "rules.yaml"
    rules_file.write_text(rules.render(rules.PRODUCTION)[rules.ALERTS_FILE].replace("expr: ", "expr: )", 1))
    with pytest.raises(AssertionError, match="could not parse expression"):
        run(binary("promtool", "prometheus"), "check", "rules", rules_file)


@pytest.mark.parametrize("file", TEST_FILES, ids=lambda file: file.stem)
def test_promtool_sees_the_rules_fire_and_not_fire(file: Path, tmp_path: Path) -> None:
    document = yaml.safe_load(file.read_text())
    cases = document["tests"]
    assert all(case.get("promql_expr_test") or case.get("alert_rule_test") for case in cases)
    files = [file] if chosen_profile() == "nightly" else list(with_needed_rules(file, document, tmp_path))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", *files)


def with_needed_rules(file: Path, document: dict[str, Any], directory: Path) -> Iterator[Path]:
    """Yield a copy of each case, with copies of the rules that it asks for.

    Values of a series are a text, which YAML reads as a number where it is one: `0x30`, zero thirty times, as 48.
    """
    texts = yaml.load(file.read_text(), yaml.CBaseLoader)["tests"]  # noqa: S506  it makes nothing but texts
    rules_of = {name: parsed((file.parent / name).read_text()) for name in document["rule_files"]}
    for number, (with_numbers, as_text) in enumerate(zip(document["tests"], texts, strict=True)):
        case = {**with_numbers, "input_series": as_text["input_series"]}
        own = directory / str(number)
        own.mkdir()
        queries = [test["expr"] for test in case.get("promql_expr_test", ())]
        queries += [f'ALERTS{{alertname="{test["alertname"]}"}}' for test in case.get("alert_rule_test", ())]
        for name, content in needed_rules(rules_of, " ".join(queries)).items():
            (own / Path(name).name).write_text(json.dumps(content))
        made = own / file.name
        made.write_text(json.dumps({**document, "rule_files": [Path(name).name for name in rules_of], "tests": [case]}))
        yield made


@cache
def parsed(text: str) -> Any:
    """A file of rules, read by libyaml: Python's own reader takes a second."""
    return yaml.load(text, yaml.CSafeLoader)


def assert_answers(directory: Path, series: dict[str, str], *answers: tuple[str, str, list[dict[str, Any]]]) -> None:
    """Queries at a time have these samples, where series have these values a minute."""
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": time, "exp_samples": found} for expr, time, found in answers],
    }
    document = {"rule_files": [], "evaluation_interval": "1m", "tests": [case]}
    (directory / "test.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in run(binary("promtool", "prometheus"), "test", "rules", directory / "test.yaml")


@pytest.mark.parametrize(
    ("owned", "free", "idle"),
    [("0x9 stale", "_x10 0x30", False), ("_x10 0x40", "80x9 stale", False), ("0x40", "_x60", True)],
    ids=["owner left", "worked ten minutes ago", "idle"],
)
def test_a_gpu_is_idle_but_allocated_while_it_has_an_owner_that_does_not_use_it(
    owned: str,
    free: str,
    idle: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    gpu = 'DCGM_FI_DEV_GPU_UTIL{{Hostname="n", gpu="0", UUID="u"{}}}'
    used = 'DCGM_FI_DEV_FB_USED{Hostname="n", gpu="0", UUID="u"}'
    expr = of_everything(trouble.idle_allocated())
    found = [{"labels": '{Hostname="n", gpu="0"}', "value": 0}] if idle else []
    assert_answers(tmp_path, {gpu.format(', pod="p"'): owned, gpu.format(""): free, used: "1x60"}, (expr, "20m", found))


def test_a_gpu_that_an_alert_is_about_is_not_called_faultless(tmp_path: Path) -> None:
    """A GPU with four of sixteen PCIe lanes was "no fault seen" in green, beside the alert about it."""
    one = 'job="e", Hostname="n", gpu="{}"'
    series = {
        f"{name}{{{one.format(gpu)}}}": value
        for gpu in "01"
        for name, value in (("kernelcast_gpu_up", "1x20"), ("DCGM_FI_DEV_FB_USED", "9x20"))
    }
    alert = 'alertname="KernelcastGpuPcieLinkNarrow", alertstate="firing", severity="warning"'
    series |= {f"ALERTS{{{alert}, {one.format('1')}}}": "1x20"}
    found = [{"labels": f'{{Hostname="n", gpu="{gpu}"}}', "value": int(gpu)} for gpu in "01"]
    assert trouble.STATES["1"][0] == "alert fires"
    assert_answers(tmp_path, series, (of_everything(trouble.state()), "10m", found))


def test_waits_are_unknown_and_not_0_while_they_are_not_measured(tmp_path: Path) -> None:
    """Measured for ten minutes, then not, as at the level at which kernels alone are measured, then 6 s of each 60."""
    program = '{job="x", Hostname="n1", gpu="0", UUID="u", program="train", rank="0", source="exporter"}'
    series = {
        f"kernelcast_probe_running_seconds_total{program}": "0+60x60",
        f"kernelcast_probe_measured_seconds_total{program}": "0+60x30 1806+6x29",
        f"kernelcast_probe_waits_measured_seconds_total{program}": "0+60x10 600x19 606+6x29",
        "cuda_sync_wait_seconds_total" + program.replace("}", ', type="stream"}'): "0+18x10 180x19 181.8+1.8x29",
    }
    waiting = of_everything(f"round(sum({promql.seen_rate(kernel.SYNC_WAIT)}), 0.001)")
    known = [{"labels": "{}", "value": 0.3}]
    assert_answers(tmp_path, series, (waiting, "9m", known), (waiting, "20m", []), (waiting, "50m", known))


def test_another_pod_on_a_gpu_marks_no_xid_again(tmp_path: Path) -> None:
    marked = promql.marked("kernelcast_gpu_xid_errors_total", of="Hostname, gpu, UUID, xid").replace(
        "$__interval", "1m"
    )
    series = 'kernelcast_gpu_xid_errors_total{{Hostname="n", gpu="0", UUID="u", xid="31", pod="{}"}}'
    marks: tuple[tuple[int, list[dict[str, Any]]], ...]
    marks = ((10, [{"value": 1}]), (11, []), (119, []), (120, []), (121, []))
    assert_answers(
        tmp_path,
        {series.format("a"): "0x9 1x110", series.format("b"): "_x120 1x40"},
        *((f"count({marked})", f"{minute}m", found) for minute, found in marks),
    )


def of_everything(expr: str) -> str:
    """A query of a page, for all values of its variables and a time range of half an hour."""
    expr = re.sub(r'=~"\$\w+\|?"', '=~".*"', expr)
    return expr.replace("$__range", "30m").replace("$__interval", "1m").replace("$__rate_interval", "5m")


def panel_query(page: str, title: str) -> str:
    """The first query of a panel."""
    (panel,) = (panel for panel in panels(boards()[f"{page}.json"]) if panel["title"] == title)
    return of_everything(panel["targets"][0]["expr"])


@pytest.mark.parametrize("title", ["XID errors", "Uncorrectable memory errors"])
def test_an_error_of_a_gpu_that_two_pods_share_is_counted_once(title: str, tmp_path: Path) -> None:
    gpu = 'job="e", instance="n", Hostname="n", gpu="0", UUID="u", pod="{}"}}'
    series = [f'kernelcast_gpu_xid_errors_total{{{{xid="31", {gpu}', f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{{{gpu}"]
    shared = {name.format(pod): "0x20 1x40" for name in series for pod in "ab"} | {
        'kernelcast_gpu_up{Hostname="n", gpu="0", UUID="u"}': "1x60"
    }
    found = [{"labels": "{}", "value": 1}]
    assert_answers(tmp_path, shared, (f"round({panel_query('kernelcast-gpus', title)}) > 0", "31m", found))


def test_another_pod_on_a_gpu_marks_no_error_again(tmp_path: Path) -> None:
    gpu = 'job="e", instance="n", Hostname="n", gpu="0", UUID="u", pod="{}"}}'
    xid = f'kernelcast_gpu_xid_errors_total{{{{xid="31", err_msg="m", {gpu}'
    corrected = f"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{{{{gpu}"
    (marks,) = (one for one in boards()["kernelcast-gpus.json"]["annotations"]["list"] if one["name"] == "XIDs")
    queries = (of_everything(marks["expr"]), panel_query("kernelcast-gpus", "Memory errors"))
    assert_answers(
        tmp_path,
        {one.format(pod): values for one in (xid, corrected) for pod, values in (("a", "0x9 7x10"), ("b", "_x20 7x9"))},
        *((f"count({expr})", f"{at}m", found) for expr in queries for at, found in ((10, [{"value": 1}]), (20, []))),
    )


def test_a_node_that_two_jobs_scrape_is_shown(tmp_path: Path) -> None:
    series = {'node_memory_MemTotal_bytes{job="a", instance="i"}': "8x20"}
    series |= {f'node_uname_info{{job="{job}", instance="i", nodename="n"}}': "1x20" for job in "ab"}
    expr = of_everything(node_exporter.of_node("max by (instance) (node_memory_MemTotal_bytes)"))
    assert_answers(tmp_path, series, (expr, "10m", [{"labels": '{instance="i", nodename="n"}', "value": 8}]))


def test_a_restart_is_marked_once_however_long_it_took(tmp_path: Path) -> None:
    (marks,) = (one for one in boards()["kernelcast-pipeline.json"]["annotations"]["list"] if one["name"] == "Restarts")
    started = 'process_start_time_seconds{{job="b", instance="{}"}}'
    series = {
        started.format("soon"): "5x10 660x30",
        started.format("long"): "5x10 stale _x8 1200x30",
        started.format("new"): "_x20 1200x30",
    }
    expr = f"count by (instance) ({of_everything(marks['expr'])})"
    found = {11: "soon", 20: "long"}
    times = (
        (minute, [{"labels": f'{{instance="{found[minute]}"}}', "value": 1}] if minute in found else [])
        for minute in range(8, 26)
    )
    assert_answers(tmp_path, series, *((expr, f"{minute}m", samples) for minute, samples in times))


def test_a_message_that_waits_in_the_spool_is_not_shown_as_lost(tmp_path: Path) -> None:
    one = '{{job="{}", instance="i"}}'
    failed = 'kernelcast_producer_messages_total{{job="{}", instance="i", topic="t", outcome="failed"}}'
    series = {failed.format("exporter"): "0x20 9x20", failed.format("predictor"): "0x20 4x20"}
    series |= {f"kernelcast_exporter_spool_bytes{one.format('exporter')}": "0x40"}
    series |= {f"kernelcast_build_info{one.format('exporter')}": "1x40"}
    shown = panel_query("kernelcast-pipeline", "Lost in this range")
    assert_answers(tmp_path, series, (f"round({shown})", "30m", [{"labels": "{}", "value": 4}]))


def test_memory_in_use_is_that_of_the_fullest_mig_instance(tmp_path: Path) -> None:
    one = 'DCGM_FI_DEV_FB_{}{{job="e", Hostname="n", gpu="0", GPU_I_ID="{}"}}'
    series = {one.format("USED", 1): "9x20", one.format("FREE", 1): "1x20"}
    series |= {one.format("USED", 2): "0x20", one.format("FREE", 2): "10x20"}
    found = [{"labels": "{}", "value": 0.9}]
    assert_answers(tmp_path, series, (panel_query("kernelcast-gpus", "Fullest memory"), "10m", found))


@pytest.mark.parametrize(("alerts_after_6_s", "passes"), [(1, True), (2, False)])
def test_the_demo_profile_fires_a_prediction_with_the_next_evaluation(
    alerts_after_6_s: int,
    passes: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    for name, text in rules.render(rules.DEMO).items():
        (tmp_path / name).write_text(text)
    labels = 'instance="p", Hostname="n", metric="m", cause="c", state="predicted", urgency="page"'
    since = f"kernelcast_predictor_finding_since_timestamp_seconds{{{labels}}}"
    firing = 'count(ALERTS{alertname="KernelcastDegradationPredicted", alertstate="firing"})'
    case = {
        "interval": "1s",
        "input_series": [
            {"series": since, "values": "_x5 5x10"},
            {"series": 'kernelcast_predictor_findings_timestamp_seconds{instance="p"}', "values": "0+1x15"},
        ],
        "promql_expr_test": [
            {"expr": firing, "eval_time": "4s", "exp_samples": []},
            {"expr": firing, "eval_time": "6s", "exp_samples": [{"labels": "{}", "value": alerts_after_6_s}]},
        ],
    }
    document = {"rule_files": [rules.CLASSIC_FILE, rules.ALERTS_FILE], "evaluation_interval": "1s", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    command = (binary("promtool", "prometheus"), "test", "rules", tmp_path / "test.yaml")
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert (done.returncode == 0) is passes, done.stdout + done.stderr


def test_the_message_about_a_node_names_its_gpus_that_have_passed_their_limit(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    about = 'job="p", Hostname="n", metric="DCGM_FI_DEV_GPU_TEMP", cause="thermal", state="passed"'
    alert, finding = "kernelcast_degradation_alert", f'{{{about}, scope="node", urgency="page"}}'
    case = {
        "interval": "1m",
        "input_series": [
            {"series": "kernelcast_predictor_findings_timestamp_seconds", "values": "0+60x20"},
            {"series": f"kernelcast_predictor_finding_since_timestamp_seconds{finding}", "values": "60x20"},
            {"series": f"kernelcast_predictor_finding_value{finding}", "values": "90x20"},
            {"series": f"kernelcast_predictor_finding_limit{finding}", "values": "89x20"},
            *({"series": f'{alert}{{{about}, gpu="{gpu}"}}', "values": "1x20"} for gpu in (3, 1)),
            {"series": f'{alert}{{{about.replace("passed", "predicted")}, gpu="0"}}', "values": "1x20"},
        ],
        "alert_rule_test": [{"alertname": "KernelcastLimitPassed", "eval_time": "10m", "exp_alerts": []}],
    }
    document = {"rule_files": [rules.CLASSIC_FILE, rules.ALERTS_FILE], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    command = (binary("promtool", "prometheus"), "test", "rules", tmp_path / "test.yaml")
    # The alert is not expected, so that promtool prints it with its text.
    shown = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert "Node n (GPU 1, GPU 3) is 90 °C, limit 89 °C, for 9m 0s: " in shown.stdout + shown.stderr
