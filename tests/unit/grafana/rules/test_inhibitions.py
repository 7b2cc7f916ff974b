"""Alertmanager's inhibitions: one cause, one message."""

import re
from typing import Any

import pytest
import yaml

from kernelcast.grafana import alertmanager, rules
from kernelcast.grafana.consequences import Consequences, declared
from kernelcast.grafana.faults import PREDICTOR_PRODUCER
from kernelcast.grafana.site import JobNames, Site
from kernelcast.predictor.publish import SERVICE_NAME

NAMES = {alert.name for alert in rules.alerts(rules.PRODUCTION)}
NODE = {"alertname": "KernelcastExporterStale", "Hostname": "n1", "job": "kernelcast-exporter", "instance": "e1"}
PREDICTOR = {"alertname": "KernelcastPredictorDown", "job": "kernelcast-predictor", "instance": "p:1"}
BRIDGE = {"alertname": "KernelcastBridgeDown", "job": "kernelcast-bridge", "instance": "b:1"}
KAFKA = {"alertname": "KernelcastKafkaUnreachable", "job": "kernelcast-bridge", "instance": "b:1"}
NO_BRIDGE = {"alertname": "KernelcastAllBridgesDown"}
NO_KAFKA = {"alertname": "KernelcastAllBridgesWithoutKafka"}
NO_PREDICTOR = {"alertname": "KernelcastAllPredictorsDown"}
XID = {"alertname": "KernelcastGpuXidHardware", "Hostname": "n1", "gpu": "0", "xid": "79"}
HOT = {"Hostname": "n1", "gpu": "0", "metric": "DCGM_FI_DEV_GPU_TEMP", "cause": "thermal"}
HEAT = {"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"}
LATE = {"alertname": "KernelcastFreshnessObjectiveBurns"}


def matches(matcher: str, labels: dict[str, str]) -> bool:
    label, kind, pattern = re.fullmatch(r'(\w+)(=~|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
    value = labels.get(label, "")
    return bool(re.fullmatch(pattern, value)) if kind == "=~" else value == pattern


def labels_of(matcher: str) -> dict[str, str]:
    """A label set that a matcher matches."""
    label, _, pattern = matcher.partition("=")
    return {label: pattern.strip('~"').split("|")[0]} if matcher else {}


def inhibit_rules() -> list[dict[str, Any]]:
    """Of the file that Alertmanager reads, the rules for muting."""
    found: list[dict[str, Any]] = yaml.safe_load(alertmanager.render())["inhibit_rules"]
    return found


def muted(target: dict[str, str], source: dict[str, str], among: list[dict[str, Any]] | None = None) -> bool:
    """Whether one of the rules mutes the target while the source fires; those of the file, if none are given."""

    def applies(rule: dict[str, Any]) -> bool:
        return (
            all(matches(each, source) for each in rule["source_matchers"])
            and all(matches(each, target) for each in rule["target_matchers"])
            and all(source.get(label, "") == target.get(label, "") for label in rule.get("equal", ()))
        )

    return any(applies(rule) for rule in (inhibit_rules() if among is None else among))


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ({"alertname": "KernelcastProducerSilent", "job": "kernelcast-exporter", "instance": "e1"}, NODE),
        ({"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastGpuDown", "Hostname": "n1", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastBreachImminent", "Hostname": "n1", "gpu": "0"}, NODE),
        ({"alertname": "KernelcastProducerSilent", "job": "kernelcast-predictor", "instance": "id"}, PREDICTOR),
        ({"alertname": "KernelcastExporterStale", "Hostname": "n1"}, BRIDGE),
        ({"alertname": "KernelcastGpuDown", "Hostname": "n1", "gpu": "0"}, BRIDGE),
        ({"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"}, NO_BRIDGE),
        (XID, NO_BRIDGE),
        (XID, NO_KAFKA),
        (NO_BRIDGE, BRIDGE),
        (NO_KAFKA, KAFKA),
        (NO_PREDICTOR, PREDICTOR),
        ({"alertname": "KernelcastHintWaitsForApproval", "program": "train"}, NO_PREDICTOR),
        ({"alertname": "KernelcastBreachImminent", **HOT}, {"alertname": "KernelcastLimitPassed", **HOT}),
        ({"alertname": "KernelcastDegradationPredicted", **HOT}, {"alertname": "KernelcastLimitPassed", **HOT}),
        (
            {"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"},
            {"alertname": "KernelcastLimitPassed", **HOT},
        ),
        ({"alertname": "KernelcastFaultObserved", "Hostname": "n1", "cause": "xid"}, XID),
        (LATE, {"alertname": "KernelcastLagGrowing", "job": "kernelcast-bridge", "topic": "kernelcast.device"}),
        (LATE, KAFKA),
        ({"alertname": "KernelcastDeliveryObjectiveBurns"}, KAFKA),
        ({"alertname": "KernelcastSpoolDropping", "instance": "e1", "reason": "bound"}, KAFKA),
        ({"alertname": "KernelcastExporterFailing", "job": "kernelcast-exporter", "instance": "e1"}, NODE),
        ({"alertname": "KernelcastExporterDown", "Hostname": "n1"}, NODE),
        ({"alertname": "KernelcastWorkSlower", "Hostname": "n1", "gpu": "0"}, HEAT),
        ({"alertname": "KernelcastStraggler", "Hostname": "n1", "gpu": "0", "rank": "3"}, HEAT),
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
        (XID, BRIDGE),
        (XID, KAFKA),
        (
            {"alertname": "KernelcastDegradationPredicted", "Hostname": "n1", "gpu": "0", "rank": "1"},
            {"alertname": "KernelcastBreachImminent", "Hostname": "n1", "gpu": "0", "rank": "0"},
        ),
        ({"alertname": "KernelcastBreachImminent", **HOT}, PREDICTOR),
        ({"alertname": "KernelcastBreachImminent", **HOT}, NO_PREDICTOR),
        ({"alertname": "KernelcastLimitPassed", **HOT}, NO_PREDICTOR),
        ({"alertname": "KernelcastLimitPassed", **HOT}, NO_BRIDGE),
        ({"alertname": "KernelcastFaultObserved", "Hostname": "n1", "cause": "straggler"}, XID),
        (
            {"alertname": "KernelcastGpuThrottling", "Hostname": "n1", "gpu": "0"},
            {"alertname": "KernelcastLimitPassed", **HOT, "cause": "memory_leak"},
        ),
        ({"alertname": "KernelcastLagGrowing", "job": "kernelcast-predictor"}, BRIDGE),
        (LATE, {"alertname": "KernelcastLagGrowing", "job": "kernelcast-predictor", "topic": "kernelcast.device"}),
        ({"alertname": "KernelcastSpoolDropping", "instance": "e1", "reason": "disk"}, KAFKA),
        ({"alertname": "KernelcastStraggler", "Hostname": "n1", "gpu": "1", "rank": "3"}, HEAT),
        (BRIDGE, BRIDGE),
        (NODE, NODE),
    ],
)
def test_another_fault_is_not_muted(target: dict[str, str], source: dict[str, str]) -> None:
    assert not muted(target, source)


@pytest.mark.parametrize("one", declared(rules.PRODUCTION), ids=lambda one: f"{one.cause}: {len(one.silenced)}")
def test_every_declared_consequence_is_muted_on_its_subject_only(one: Consequences) -> None:
    subject, among = {label: f"a-{label}" for label in one.subject}, inhibit_rules()
    cause = {"alertname": one.cause, **subject, **labels_of(one.matcher)}
    for name in one.silenced:
        target = {"alertname": name, **subject, **labels_of(one.about)}
        assert muted(target, cause, among), name
        if one.subject:
            elsewhere = {label: f"b-{label}" for label in one.subject}
            assert not muted({**target, **elsewhere}, cause, among), name


@pytest.mark.parametrize("rule", inhibit_rules(), ids=str)
def test_an_inhibition_names_alerts_that_exist(rule: dict[str, Any]) -> None:
    for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
        if matcher.startswith("alertname"):
            assert any(matches(matcher, {"alertname": name}) for name in NAMES), matcher
            parts = re.fullmatch(r'alertname=~?"([A-Za-z|]+)"', matcher)
            assert set(parts[1].split("|") if parts else ()) <= NAMES, matcher


def test_no_alert_mutes_its_own_cause() -> None:
    """A circle of inhibitions would silence everything in it."""
    muting: dict[str, set[str]] = {}
    for one in declared(rules.PRODUCTION):
        muting.setdefault(one.cause, set()).update(one.silenced)
    for cause in muting:
        found: set[str] = set()
        waiting = [cause]
        while waiting:
            for name in muting.get(waiting.pop(), ()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        assert cause not in found, cause


def test_the_heartbeat_is_never_muted() -> None:
    assert not any("Watchdog" in one.silenced for one in declared(rules.PRODUCTION))


def test_a_stopped_predictor_mutes_its_silence_whatever_its_scrape_job_is_called() -> None:
    profile = Site(jobs=JobNames(predictor="oracle")).rules_profile
    among = yaml.safe_load(alertmanager.render(profile=profile))["inhibit_rules"]
    silent = {"alertname": "KernelcastProducerSilent", "job": SERVICE_NAME, "instance": "p"}
    assert muted(silent, PREDICTOR | {"job": "oracle"}, among)
    assert PREDICTOR_PRODUCER == SERVICE_NAME
