"""Faults on promtool's clock, in series that the simulation writes: each fires its own alert in time, and no other."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import SELDOM_COLLECTING, binary
from tests.support.exporter.simulated_series import Stop, Watched, asked_for, simulate
from tests.unit.grafana.queries import needed_rules

from kernelcast.grafana import rules
from kernelcast.grafana.faults import FAULTS, Fault, by_name
from kernelcast.grafana.rules.model import HOUR, MINUTE

pytestmark = pytest.mark.service

EVERY = 30
BEGINS = 25 * MINUTE
HEALTHY = HOUR
SLACK = 2 * MINUTE
"""A sample, an evaluation of recordings, an evaluation of alerts, and the interval that shows an XID first as 0."""
AFTERWARDS = 20 * MINUTE
"""Time for which the alerts are watched beyond the promised one: consequences come later."""
PROFILE = replace(rules.PRODUCTION, baseline_age_seconds=20 * MINUTE, baseline_window_seconds=10 * MINUTE)
"""Production's clocks, but for the baseline of kernels, which lies a day back there."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "memory-leak": ("memory-leak:rate=150,gpu=1", "preallocated-memory:share=0.94"),
    "thermal-drift": ("thermal-drift:rate=12,gpu=1",),
    "memory-errors": ("memory-errors:rate=600,rows=6,gpu=1",),
    "power-brake": ("power-brake:ratio=0.5",),
    "nvml-hang": ("nvml-hang",),
    "clock-skew": ("clock-skew",),
}
ALERTS_AND_RECORDINGS = (rules.ALERTS_FILE, rules.CLASSIC_FILE)


def scenario(fault: Fault, seconds: int, more: frozenset[str] = frozenset()) -> Watched:
    """Series of a fault that begins after 25 minutes, of the metrics that alerts ask for and of some more."""
    metrics = asked_for(PROFILE) | more
    if fault.is_service:
        return simulate(seconds=seconds, every=EVERY, metrics=metrics, stop=Stop(fault.name, BEGINS))
    first, *others = OPTIONS.get(fault.name, (f"{fault.name}:gpu=1",))
    started = f"{first}{',' if ':' in first else ':'}start={BEGINS}s"
    return simulate(started, *others, seconds=seconds, every=EVERY, metrics=metrics)


@cache
def rendered() -> Mapping[str, str]:
    """The files of rules by name, without the recordings that no alert asks for."""
    texts = {name: rules.render(PROFILE)[name] for name in ALERTS_AND_RECORDINGS}
    documents = {name: yaml.load(text, yaml.CSafeLoader) for name, text in texts.items()}
    return {name: json.dumps(content) for name, content in needed_rules(documents, "ALERTS").items()}


def written(values: list[str | None]) -> str:
    """Values in promtool's notation; a series that ends is stale at once, as after its end was published."""
    shown, before = [], False
    for value in values:
        shown.append(value if value is not None else "stale" if before else "_")
        before = value is not None
    return " ".join(shown)


def evaluate(directory: Path, watched: Watched, expected: list[dict[str, Any]]) -> str:
    """Evaluate the rules on simulated series; the output of promtool."""
    for name, text in rendered().items():
        (directory / name).write_text(text)
    case = {
        "interval": f"{EVERY}s",
        "input_series": [{"series": name, "values": written(values)} for name, values in watched.values.items()],
        "promql_expr_test": expected,
    }
    document = {"rule_files": list(ALERTS_AND_RECORDINGS), "evaluation_interval": f"{EVERY}s", "tests": [case]}
    (directory / "case.yaml").write_text(json.dumps(document))  # which is YAML, too, and written in no time
    command = (binary("promtool", "prometheus"), "test", "rules", str(directory / "case.yaml"))
    environ = {**os.environ, **SELDOM_COLLECTING}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environ)
    assert done.returncode == 0, (done.stdout + done.stderr)[:6000]
    return done.stdout


def fired(names: set[str]) -> list[dict[str, Any]]:
    return [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]


def ever(state: str, seconds: int) -> str:
    return f'group by (alertname) (max_over_time(ALERTS{{alertstate="{state}"}}[{seconds}s]))'


def test_nothing_fires_in_a_healthy_hour_but_the_watchdog_and_nothing_is_pending_for_long(tmp_path: Path) -> None:
    pending = f'count by (alertname) (count_over_time(ALERTS{{alertstate="pending"}}[1h]) > {3 * MINUTE // EVERY})'
    expected: list[dict[str, Any]] = [
        {"expr": ever("firing", HEALTHY), "eval_time": f"{HEALTHY}s", "exp_samples": fired({"Watchdog"})},
        {"expr": pending, "eval_time": f"{HEALTHY}s", "exp_samples": []},
    ]
    assert "SUCCESS" in evaluate(tmp_path, simulate(seconds=HEALTHY, every=EVERY, metrics=asked_for(PROFILE)), expected)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fires_its_alert_in_time_and_only_declared_consequences(fault: Fault, tmp_path: Path) -> None:
    held = {alert.name: alert.hold_seconds for alert in rules.alerts(PROFILE)}
    promised = BEGINS + fault.seen_seconds + held[fault.alert] + SLACK
    end = promised + AFTERWARDS
    own = f'group by (alertname) (ALERTS{{alertname="{fault.alert}", alertstate="firing"}})'
    declared = "|".join((fault.alert, "Watchdog", *(one.alert for one in fault.consequences)))
    others = f'group by (alertname) (max_over_time(ALERTS{{alertstate="firing", alertname!~"{declared}"}}[{end}s]))'
    expected: list[dict[str, Any]] = [
        {"expr": ever("firing", BEGINS), "eval_time": f"{BEGINS - EVERY}s", "exp_samples": fired({"Watchdog"})},
        {"expr": own, "eval_time": f"{promised}s", "exp_samples": fired({fault.alert})},
        {"expr": others, "eval_time": f"{end}s", "exp_samples": []},
    ]
    assert "SUCCESS" in evaluate(tmp_path, scenario(fault, end), expected)


def test_a_consequence_that_is_not_declared_is_seen(tmp_path: Path) -> None:
    hung = replace(by_name()["nvml-hang"], consequences=())
    with pytest.raises(AssertionError, match="KernelcastGpuDown"):
        test_a_fault_fires_its_alert_in_time_and_only_declared_consequences(hung, tmp_path)
