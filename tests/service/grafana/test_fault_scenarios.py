"""Faults on promtool's clock, in series that the simulation writes: each fires its own alert in time, and no other."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from tests.service.require import SELDOM_COLLECTING, binary
from tests.support.exporter.simulated_series import Fleet, Stop, Watched, asked_for, simulate, watch
from tests.unit.grafana.queries import needed_rules

from kernelcast.grafana import rules
from kernelcast.grafana.faults import FAULTS, Fault, by_name
from kernelcast.grafana.rules.model import HOUR, MINUTE

pytestmark = pytest.mark.service

STARTS_NS = 1_760_000_000 * 10**9
EVERY = 30
STEP_SECONDS = 10.0
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
OF_ALL_NODES = ("clock-skew", *(fault.name for fault in FAULTS if fault.is_service))
"""Faults whose alerts name no node: promtool evaluates each of them by itself. The others are together, each on a node
of its own, because promtool takes little longer for a rule on four nodes than on one."""


def promised_and_end(fault: Fault) -> tuple[int, int]:
    """Seconds until a fault's own alert fires at the latest, and until the other alerts are looked at."""
    held = {alert.name: alert.hold_seconds for alert in rules.alerts(PROFILE)}
    promised = BEGINS + fault.seen_seconds + held[fault.alert] + SLACK
    return promised, promised + AFTERWARDS


def scenario(fault: Fault, seconds: int, more: frozenset[str] = frozenset()) -> Watched:
    """Series of a fault that begins after 25 minutes, of the metrics that alerts ask for and of some more."""
    first, *others = OPTIONS.get(fault.name, (f"{fault.name}:gpu=1",))
    started = f"{first}{',' if ':' in first else ':'}start={BEGINS}s"
    metrics = asked_for(PROFILE) | more
    return simulate(started, *others, seconds=seconds, every=EVERY, metrics=metrics, step_seconds=STEP_SECONDS)


@cache
def without_faults() -> Mapping[str, Watched]:
    """An hour of a fleet with each service stopped, and under the empty name with none; its GPUs have no fault."""
    stops = (None, *(Stop(fault.name, BEGINS) for fault in FAULTS if fault.is_service))
    fleet = Fleet(start_ns=STARTS_NS, metrics=asked_for(PROFILE), step_seconds=STEP_SECONDS)
    watched = watch(fleet, stops, seconds=HEALTHY, every=EVERY)
    return {stop.service if stop else "": one for stop, one in zip(stops, watched, strict=True)}


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


def evaluate(watched: Watched, expected: list[dict[str, Any]]) -> list[str]:
    """Evaluate the rules on simulated series; the reports of promtool about expectations that do not hold."""
    case = {
        "interval": f"{EVERY}s",
        "input_series": [{"series": name, "values": written(values)} for name, values in watched.values.items()],
        "promql_expr_test": expected,
    }
    document = {"rule_files": list(ALERTS_AND_RECORDINGS), "evaluation_interval": f"{EVERY}s", "tests": [case]}
    with TemporaryDirectory() as directory:
        for name, text in rendered().items():
            Path(directory, name).write_text(text)
        path = Path(directory, "case.yaml")
        path.write_text(json.dumps(document))  # which is YAML, too, and written in no time
        command = (binary("promtool", "prometheus"), "test", "rules", str(path))
        environ = {**os.environ, **SELDOM_COLLECTING}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environ)
    _, *reports = re.split(r"^ *expr: ", done.stdout + done.stderr, flags=re.MULTILINE)
    assert (done.returncode == 0) is ("SUCCESS" in done.stdout) is (not reports), (done.stdout + done.stderr)[:6000]
    return reports


def fired(names: set[str]) -> list[dict[str, Any]]:
    return [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]


def ever(state: str, seconds: int) -> str:
    return f'group by (alertname) (max_over_time(ALERTS{{alertstate="{state}"}}[{seconds}s]))'


def before_the_fault() -> dict[str, Any]:
    """The expectation that until a fault begins nothing fires but the watchdog."""
    return {"expr": ever("firing", BEGINS), "eval_time": f"{BEGINS - EVERY}s", "exp_samples": fired({"Watchdog"})}


def node_of(fault: Fault) -> str:
    return f"{fault.name}-node-0"


def is_about(report: str, fault: Fault) -> bool:
    """Whether promtool's report is about the alerts of a fault's node."""
    return f'Hostname=\\"{node_of(fault)}\\"' in report


def expectations(fault: Fault, about: Sequence[str] = ("",)) -> list[dict[str, Any]]:
    """A fault's own alert fires in time, and until the end no other one but those that are declared.

    Args:
        fault: The fault.
        about: Matchers of the alerts that count; an empty one matches all.
    """
    promised, end = promised_and_end(fault)
    declared = "|".join(
        (fault.alert, fault.muting or "Watchdog", "Watchdog", *(one.alert for one in fault.consequences))
    )
    owns = " or ".join(f'ALERTS{{alertname="{fault.alert}", alertstate="firing", {one}}}' for one in about)
    others = " or ".join(
        f'max_over_time(ALERTS{{alertstate="firing", alertname!~"{declared}", {one}}}[{end}s])' for one in about
    )
    return [
        {
            "expr": f"group by (alertname) ({owns})",
            "eval_time": f"{promised}s",
            "exp_samples": fired({fault.alert}),
        },
        {"expr": f"group by (alertname) ({others})", "eval_time": f"{end}s", "exp_samples": []},
    ]


@cache
def together(faults: tuple[Fault, ...]) -> list[str]:
    """The reports about some faults that promtool has seen at once, each on a node of its own, with its own program."""
    end = max(promised_and_end(fault)[1] for fault in faults)
    watched, expected = Watched(), [before_the_fault()]
    for fault in faults:
        for series, values in scenario(fault, end).values.items():
            watched.values.setdefault(series.replace("sim-", f"{fault.name}-"), values)
        node = node_of(fault)
        expected += expectations(fault, (f'Hostname="{node}"', f'instance=~"{node}(:.+)?"'))
    nodes = "|".join(f"{node_of(fault)}(:.+)?" for fault in faults)
    of_none = f'ALERTS{{alertstate="firing", alertname!="Watchdog", Hostname="", instance!~"{nodes}"}}'
    expr = f"group by (alertname) (max_over_time({of_none}[{end}s]))"
    return evaluate(watched, [*expected, {"expr": expr, "eval_time": f"{end}s", "exp_samples": []}])


def groups() -> list[tuple[Fault, ...]]:
    """Faults that promtool sees together: those that are over within an hour, and the others."""
    on_nodes = [fault for fault in FAULTS if fault.name not in OF_ALL_NODES]
    short = tuple(fault for fault in on_nodes if promised_and_end(fault)[1] <= HOUR)
    return [short, tuple(fault for fault in on_nodes if fault not in short)]


def test_nothing_fires_in_a_healthy_hour_but_the_watchdog_and_nothing_is_pending_for_long() -> None:
    pending = f'count by (alertname) (count_over_time(ALERTS{{alertstate="pending"}}[1h]) > {3 * MINUTE // EVERY})'
    expected: list[dict[str, Any]] = [
        {"expr": ever("firing", HEALTHY), "eval_time": f"{HEALTHY}s", "exp_samples": fired({"Watchdog"})},
        {"expr": pending, "eval_time": f"{HEALTHY}s", "exp_samples": []},
    ]
    assert evaluate(without_faults()[""], expected) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fires_its_alert_in_time_and_only_declared_consequences(fault: Fault) -> None:
    if fault.name not in OF_ALL_NODES:
        (group,) = (group for group in groups() if fault in group)
        assert [report for report in together(group) if is_about(report, fault)] == []
        return
    end = promised_and_end(fault)[1]
    assert end <= HEALTHY
    watched = without_faults()[fault.name] if fault.is_service else scenario(fault, end)
    assert evaluate(watched, [before_the_fault(), *expectations(fault)]) == []


@pytest.mark.parametrize("group", groups(), ids=["within an hour", "later"])
def test_faults_on_nodes_fire_nothing_before_they_begin_and_no_alert_about_anything_else(
    group: tuple[Fault, ...],
) -> None:
    assert [one for one in together(group) if not any(is_about(one, fault) for fault in group)] == []


def test_a_consequence_that_is_not_declared_is_seen() -> None:
    hung = replace(by_name()["nvml-hang"], consequences=())
    (report,) = together((hung,))
    assert is_about(report, hung)
    assert "KernelcastGpuDown" in report
