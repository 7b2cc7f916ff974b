"""The table of faults: known names, few consequences, panels that exist, and one message for a cause."""

import re

import pytest
from tests.unit.grafana.queries import boards, panels
from tests.unit.grafana.rules.test_inhibitions import NAMES, labels_of, muted

from kernelcast.exporter.simulate import FAULTS as SIMULATED
from kernelcast.grafana import rules
from kernelcast.grafana.faults import FAULTS, MAX_CONSEQUENCES, Fault, by_name

SUBJECT = {"Hostname": "n1", "gpu": "1", "job": "kernelcast-exporter", "instance": "n1"}
NOT_IN_THE_TABLE = {
    "bad-tuning": "a hint, not an alert",
    "contention": "the predictor's finding; alerts see slower kernels, as with kernel-slowdown",
    "low-clock": "the predictor's finding: no reason is reported that an alert could read",
    "rising-load": "the predictor's forecast, KernelcastDegradationPredicted",
}


def test_every_simulated_fault_is_in_the_table_or_declared() -> None:
    hardware = {fault.name for fault in FAULTS if not fault.is_service}
    assert set(SIMULATED) == hardware | set(NOT_IN_THE_TABLE)
    assert len(by_name()) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_leads_to_a_known_alert_and_a_panel_that_exists(fault: Fault) -> None:
    alerts = {alert.name: alert for alert in rules.alerts(rules.PRODUCTION)}
    titles = {board["uid"]: {panel["title"] for panel in panels(board)} for board in boards().values()}
    assert fault.alert in alerts
    assert fault.panel in titles[fault.dashboard]
    assert len(fault.consequences) <= MAX_CONSEQUENCES
    assert all(any(re.fullmatch(one.alert, name) for name in alerts) for one in fault.consequences)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_consequence_is_muted_on_its_subject_and_on_no_other(fault: Fault) -> None:
    cause = SUBJECT | labels_of(fault.matcher) | {"alertname": fault.muting or fault.alert}
    for one in fault.consequences:
        name = next(name for name in sorted(NAMES) if re.fullmatch(one.alert, name) and name != fault.alert)
        follows = SUBJECT | labels_of(one.matcher) | {"alertname": name}
        assert muted(follows, cause), one
        elsewhere = {**follows, **dict.fromkeys(one.equal, "other")}
        assert not one.equal or not muted(elsewhere, cause), one
        assert not muted(cause, follows), "a consequence mutes its cause"
