"""Renders all rules as the text of the rule files, and the runbooks as a page; `output` and the commands write them."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from kernelcast.grafana.rules import (
    bridge,
    exporters,
    findings,
    gpu_errors,
    hardware,
    hints,
    kernels,
    links,
    objectives,
    pipeline,
    probes,
    recording,
    standing,
)
from kernelcast.grafana.rules.model import AlertRule, Profile, RuleGroup, to_yaml

CLASSIC_FILE: Final = "recording.yaml"
NATIVE_FILE: Final = "recording-native.yaml"
ALERTS_FILE: Final = "alerts.yaml"

_RUNBOOKS_GENERATED: Final = (
    "Made by `python -m lab.grafana runbooks > docs/runbooks.md`; change grafana/kernelcast/grafana/rules instead."
)
_INTRODUCTION: Final = (
    "One section for each alert. The bridge serves them at `/runbooks/ALERT`; alerts link there with `runbooks_url: "
    "http://bridge-1:19401/runbooks/` in the site's file, or to this page where you publish it, with `runbooks_url: "
    "https://wiki.example/kernelcast`. Without either an alert has no link, and its description the first step. "
    "`kernelcast grafana files` writes the page of the installed version."
)
_OPTIONAL: Final = re.compile(r"{{ with .*?{{ end }}")
_FILLED_IN: Final = re.compile(r"{{ \$(?:labels\.)?(\w+)[^}]*}}")
"""What an alert fills in for its own subject, and a page about all alerts of that name can only name."""

_DEVICE_ROW: Final = re.compile(r"DCGM_FI_\w+")

_GENERATED: Final = (
    "Made by kernelcast. To change it, change the file of your site: `kernelcast rules files --site FILE --output DIR`."
)


_GPU_OPERATIONS: Final = "operators of the GPUs"
_PROGRAMS: Final = "owner of the program"
_KERNELCAST: Final = "operators of kernelcast"
_WHO: Final = {
    "hardware": _GPU_OPERATIONS,
    "gpu-error": _GPU_OPERATIONS,
    "kernel": _PROGRAMS,
    "standing": _PROGRAMS,
    "forecast": "as the cause says",
    "bridge": _KERNELCAST,
    "pipeline": _KERNELCAST,
}
"""Who acts on the alerts of a group, unless an alert names somebody else."""


def _groups(profile: Profile) -> tuple[RuleGroup, ...]:
    """Seven groups, or those of the services that the site runs: no alert is about one that is absent by intent.

    A ruler may limit the rules of a group (Cortex and Grafana Mimir: `ruler_max_rules_per_rule_group`), so none has
    more than 20.
    """
    jobs = profile.jobs
    parts: dict[str, tuple[Callable[[Profile], tuple[AlertRule, ...]], ...]] = {
        "hardware": (hardware.alerts, links.alerts),
        "gpu-error": (gpu_errors.alerts,),
        "kernel": (kernels.alerts, probes.alerts),
        "standing": (standing.alerts,),
        "forecast": (findings.alerts, hints.alerts) if jobs.predictor else (),
        "bridge": (bridge.alerts, objectives.alerts) if jobs.bridge else (),
        "pipeline": (exporters.alerts, pipeline.alerts),
    }
    made = {name: tuple(rule for part in each for rule in part(profile)) for name, each in parts.items()}
    return tuple(RuleGroup(f"kernelcast-{name}-alerts", rules) for name, rules in made.items() if rules)


def render(profile: Profile) -> dict[str, str]:
    """The rule files by name: load the alerts and one of the two recording files, never both of those."""
    classic_heading = (
        f"{_GENERATED}\nFor text exposition; load this or {NATIVE_FILE}, not both. Profile: {profile.name}."
    )
    native_heading = (
        f"{_GENERATED}\nFor native histograms; load this or {CLASSIC_FILE}, not both. Profile: {profile.name}."
    )
    alerts_heading = f"{_GENERATED}\nNeeds one of the recording files. Profile: {profile.name}."
    return {
        CLASSIC_FILE: _file(recording.classic(profile), profile, classic_heading),
        NATIVE_FILE: _file(recording.native(profile), profile, native_heading),
        ALERTS_FILE: _file(_groups(profile), profile, alerts_heading),
    }


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Every alert, in the order of the file."""
    return tuple(rule for group in _groups(profile) for rule in group.rules if isinstance(rule, AlertRule))


def runbooks(profile: Profile) -> str:
    """One heading for each alert, where its `runbook_url` leads."""
    rules: dict[str, list[AlertRule]] = {}
    who: dict[str, str] = {}
    for group in _groups(profile):
        for rule in group.rules:
            if isinstance(rule, AlertRule):
                rules.setdefault(rule.name, []).append(rule)
                who[rule.name] = rule.who or _WHO[group.name.removeprefix("kernelcast-").removesuffix("-alerts")]
    rows = (
        f"| [{name}](#{name.lower()}) | {_severities(each)} | {who[name]} | {_first_step(each[0])} |"
        for name, each in rules.items()
    )
    table = "\n".join(("| alert | severity | who acts | first step |", "|---|---|---|---|", *rows))
    head = ("# Runbooks: the first steps for each alert", f"<!-- {_RUNBOOKS_GENERATED} -->", _INTRODUCTION, table)
    return "\n\n".join((*head, *(_runbook(each, profile) for each in rules.values()))) + "\n"


def _first_step(alert: AlertRule) -> str:
    return _of_any(alert.first or alert.action)


def _severities(rules: Iterable[AlertRule]) -> str:
    return " or ".join(rule.severity for rule in rules)


def _runbook(rules: list[AlertRule], profile: Profile) -> str:
    """One section for the alerts of a name, which differ in severity and expression alone."""
    alert, *others = rules
    held = f", after {profile.hold(alert.hold_seconds)}" if alert.hold_seconds else ", at once"
    kept = f"; kept for {profile.hold(alert.keep_seconds)} after its condition ended" if alert.keep_seconds else ""
    rows = ", ".join(f"`{row}`" for row in dict.fromkeys(_DEVICE_ROW.findall(alert.expr)))
    parts = [
        f"## {alert.name}",
        f"**First:** {_first_step(alert)}",
        "\n".join(f"{number}. {step}" for number, step in enumerate(alert.steps, start=1)),
        _of_any(alert.description),
        f"Severity: {_severities(rules)}{held}{kept}. Dashboard: `{alert.dashboard}`.",
        f"Source: {alert.source}." if alert.source else "",
        f"Needs of the GPU: {rows}. A GPU without them has no such alert." if rows else "",
        '<details markdown="1">\n<summary>Expression of the rule</summary>',
        *(f"```promql\n{one.expr}\n```" for one in (alert, *others)),
        "</details>",
    ]
    return "\n\n".join(part for part in parts if part)


def _of_any(text: str) -> str:
    return _FILLED_IN.sub(r"*\1*", _OPTIONAL.sub("", text))


def _file(groups: Iterable[RuleGroup], profile: Profile, heading: str) -> str:
    return to_yaml({"groups": [group.to_group(profile) for group in groups]}, heading=heading)
