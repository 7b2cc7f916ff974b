"""Alertmanager's inhibitions: one cause, one message."""

import re
from typing import Any

import pytest
import yaml

from kernelcast.grafana import alertmanager, rules

NAMES = {alert.name for alert in rules.alerts(rules.PRODUCTION)}
NODE = {"alertname": "KernelcastExporterStale", "Hostname": "n1", "job": "kernelcast-exporter", "instance": "e1"}
PREDICTOR = {"alertname": "KernelcastPredictorDown", "job": "kernelcast-predictor", "instance": "p:1"}
BRIDGE = {"alertname": "KernelcastBridgeDown", "job": "kernelcast-bridge", "instance": "b:1"}


def matches(matcher: str, labels: dict[str, str]) -> bool:
    label, kind, pattern = re.fullmatch(r'(\w+)(=~|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
    value = labels.get(label, "")
    return bool(re.fullmatch(pattern, value)) if kind == "=~" else value == pattern


def muted(target: dict[str, str], source: dict[str, str]) -> bool:
    def applies(rule: dict[str, Any]) -> bool:
        return (
            all(matches(each, source) for each in rule["source_matchers"])
            and all(matches(each, target) for each in rule["target_matchers"])
            and all(source.get(label, "") == target.get(label, "") for label in rule.get("equal", ()))
        )

    return any(applies(rule) for rule in yaml.safe_load(alertmanager.render())["inhibit_rules"])


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ({"alertname": "KernelcastProducerSilent", "job": "kernelcast-exporter", "instance": "e1"}, NODE),
        ({"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastGpuDown", "Hostname": "n1", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastBreachImminent", "Hostname": "n1", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastProducerSilent", "job": "kernelcast-predictor", "instance": "id"}, PREDICTOR),
        ({"alertname": "KernelcastExporterStale", "Hostname": "n1"}, BRIDGE),
        ({"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"}, BRIDGE),
    ],
)
def test_a_consequence_is_muted_by_its_cause(target: dict[str, str], source: dict[str, str]) -> None:
    assert {target["alertname"], source["alertname"]} <= NAMES
    assert muted(target, source)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ({"alertname": "KernelcastProducerSilent", "job": "kernelcast-exporter", "instance": "e2"}, NODE),
        ({"alertname": "KernelcastGpuDown", "Hostname": "n2", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastExporterStale", "Hostname": "n2"}, NODE),
        ({"alertname": "KernelcastProducerSilent", "job": "kernelcast-exporter", "instance": "e1"}, PREDICTOR),
        ({"alertname": "KernelcastPredictorDown", "job": "kernelcast-predictor"}, BRIDGE),
        (BRIDGE, BRIDGE),
        (NODE, NODE),
    ],
)
def test_another_fault_is_not_muted(target: dict[str, str], source: dict[str, str]) -> None:
    assert not muted(target, source)
