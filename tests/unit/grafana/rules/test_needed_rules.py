"""The rules that some queries need, directly or through other rules."""

from typing import Any

import pytest
from tests.unit.grafana.queries import needed_rules

RULES: dict[str, Any] = {
    "recording.yaml": {
        "groups": [
            {"name": "gpus", "interval": "30s", "rules": [
                {"record": "gpu:power:avg", "expr": "avg(gpu:power:raw)"},
                {"record": "gpu:power:raw", "expr": "sum(power)"},
                {"record": "gpu:heat", "expr": "max(heat)"},
            ]},
        ]
    },
    "alerts.yaml": {
        "groups": [
            {"name": "gpus", "rules": [
                {"alert": "PowerHigh", "expr": "gpu:power:avg > 1", "for": "5m"},
                {"alert": "HeatHigh", "expr": 'heat > 1 unless ALERTS{alertname="GpuGone", alertstate="firing"}'},
                {"alert": "GpuGone", "expr": "up == 0"},
            ]},
        ]
    },
}  # fmt: skip
ALL_ALERTS = ["gpu:power:avg", "gpu:power:raw", "PowerHigh", "HeatHigh", "GpuGone"]


def kept(queries: str) -> list[str]:
    documents = needed_rules(RULES, queries)
    groups = [group for document in documents.values() for group in document["groups"]]
    return [rule.get("alert") or rule["record"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize(
    ("queries", "names"),
    [
        ("power", []),
        ("gpu:heat", ["gpu:heat"]),
        ("max(gpu:heat) or gpu:power:raw", ["gpu:power:raw", "gpu:heat"]),
        ('ALERTS{alertname="PowerHigh"}', ["gpu:power:avg", "gpu:power:raw", "PowerHigh"]),
        ('count(ALERTS{alertstate="firing", alertname="HeatHigh"})', ["HeatHigh", "GpuGone"]),
        ('ALERTS_FOR_STATE{alertname=~"GpuGone|Other"}', ["GpuGone"]),
        ("ALERTS", ALL_ALERTS),
        ('ALERTS{alertstate="firing"}', ALL_ALERTS),
        ('ALERTS{alertname=~".*High"}', ALL_ALERTS),
        ('ALERTS{alertname!~"HeatHigh"}', ALL_ALERTS),
        ('ALERTS{alertname="HeatHigh"} or ALERTS{alertname!="GpuGone"}', ALL_ALERTS),
    ],
)
def test_rules_are_kept_with_those_that_they_ask_for(queries: str, names: list[str]) -> None:
    assert kept(queries) == names


def test_a_kept_rule_and_its_group_are_as_they_were() -> None:
    (group,) = needed_rules(RULES, "gpu:heat")["recording.yaml"]["groups"]
    assert group == {"name": "gpus", "interval": "30s", "rules": [{"record": "gpu:heat", "expr": "max(heat)"}]}
