"""Alerts and causes read one table of XIDs and agree about each number."""

import re

import pytest

from kernelcast.grafana import rules
from kernelcast.wire.catalogue.cause_rules import RULES, Excuse
from kernelcast.wire.catalogue.features import Feature
from kernelcast.wire.catalogue.xids import XIDS, Action, is_urgent

ALERTS = {alert.name: alert for alert in rules.alerts(rules.PRODUCTION)}


def matched(alert: str, number: int) -> bool:
    """Whether the alert's expression selects an XID; 94 excuses a 48, and is not selected by that."""
    matchers = re.findall(r'xid(=~|!~|=)"([^"]*)"', ALERTS[alert].expr)
    chosen = [(kind, pattern) for kind, pattern in matchers if pattern != "94"]
    return any(bool(re.fullmatch(pattern, str(number))) == (kind != "!~") for kind, pattern in chosen)


def decided(number: int) -> tuple[bool, bool]:
    """Whether the first rule for the XID alone is a page, and whether it is an excuse."""
    for rule in RULES:
        found = [one.members for one in rule.conditions if one.feature is Feature.XID_CODE]
        if len(rule.conditions) == 1 and found and (number in found[0] or not found[0]):
            return rule.page, isinstance(rule.result, Excuse)
    raise AssertionError(f"no rule for XID {number}")


@pytest.mark.parametrize("number", [*XIDS, 61, 109, 154, 999])
def test_the_alert_and_the_cause_of_an_xid_agree(number: int) -> None:
    alerts = ("KernelcastGpuXidHardware", "KernelcastGpuXid", "KernelcastGpuXidApplication")
    (alert,) = (name for name in alerts if matched(name, number))
    page, excused = decided(number)
    assert page == (alert == "KernelcastGpuXidHardware") == (number in XIDS and is_urgent(XIDS[number]))
    assert excused == (alert == "KernelcastGpuXidApplication")


def test_a_remapped_row_corrected_errors_and_a_contained_error_drain_no_node() -> None:
    assert {XIDS[63].action, XIDS[92].action} == {Action.WATCH}
    assert XIDS[94].action is Action.RESTART_PROGRAM


@pytest.mark.parametrize("number", [62, 119, 120, 140, *range(143, 151)])
def test_a_halted_firmware_and_nvlink_5_need_a_reset(number: int) -> None:
    assert XIDS[number].action is Action.RESET
