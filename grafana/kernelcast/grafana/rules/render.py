"""Rule files and the runbooks, as text."""

from collections.abc import Iterable
from typing import Final

from kernelcast.grafana.rules import bridge, forecasts, hardware, hints, kernels, pipeline, recording
from kernelcast.grafana.rules.model import Alert, Group, Profile, to_yaml

CLASSIC_FILE: Final = "recording.yaml"
NATIVE_FILE: Final = "recording-native.yaml"
ALERTS_FILE: Final = "alerts.yaml"
RUNBOOKS_FILE: Final = "runbooks.md"

_GENERATED: Final = "Made by `kernelcast grafana generate`; change grafana/kernelcast/grafana/rules instead."
_ALERT_GROUPS: Final = (hardware.group, kernels.group, forecasts.group, hints.group, bridge.group, pipeline.group)


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
        ALERTS_FILE: _file((make(profile) for make in _ALERT_GROUPS), profile, alerts_heading),
    }


def alerts(profile: Profile) -> tuple[Alert, ...]:
    """Every alert, in the order of the file."""
    groups = (make(profile) for make in _ALERT_GROUPS)
    return tuple(rule for group in groups for rule in group.rules if isinstance(rule, Alert))


def runbooks(profile: Profile) -> str:
    """One heading for each alert, where its `runbook_url` leads."""
    return (
        "\n".join(["# What to do when an alert fires", "", f"<!-- {_GENERATED} -->", *map(_runbook, alerts(profile))])
        + "\n"
    )


def _runbook(alert: Alert) -> str:
    lines = (f"\n## {alert.name}", f"Severity: {alert.severity}.", alert.description, f"**First:** {alert.action}")
    return "\n\n".join((*lines, f"```promql\n{alert.expr}\n```"))


def _file(groups: Iterable[Group], profile: Profile, heading: str) -> str:
    return to_yaml({"groups": [group.to_group(profile) for group in groups]}, heading=heading)
