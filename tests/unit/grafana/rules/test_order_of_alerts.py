"""In every profile, the alert about a stopped service fires before the alerts that follow from it.

The time of an alert is computed from its expression: its condition is true once the series that it names have ended, or
have had the value that it compares with, for as long as it looks back; then it waits for its own `for`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Final

import promql_parser
import pytest
import yaml

from kernelcast.bridge.series.heartbeats import SHORTEST_SILENCE_MS
from kernelcast.grafana import promql, rules
from kernelcast.grafana.consequences import declared
from kernelcast.grafana.faults import FAULTS
from kernelcast.wire.catalogue import bridge
from kernelcast.wire.catalogue.devices import gpu

TWENTIETH: Final = replace(rules.DEMO, name="twentieth", shrink=20)
"""The profile of the faults in real time."""
PROFILES: Final = (*rules.PROFILES.values(), TWENTIETH)
FLOORS_SECONDS: Final = (0, 20, 60, 300)
"""How long the bridge keeps the series of a producer that is silent: a setting that the rules do not know."""
SILENT_SECONDS: Final = SHORTEST_SILENCE_MS / 1e3
SESSION_SECONDS: Final = 15.0
"""After this time without Kafka a bridge of a consumer group has no partitions: it hides their series."""
UP: Final = bridge.PRODUCER_UP.prometheus_name
STATES: Final = ("up", UP, bridge.KAFKA_OUTAGE.prometheus_name, bridge.CAUGHT_UP.prometheus_name)
"""Metrics whose value says that something has ended; those of GPUs are absent then."""
MEASURED: Final = (*map(promql.name, promql.GPU_ROWS), gpu.GPU_UP.prometheus_name)
Ends = Mapping[str, float]
"""Seconds after a service's end at which metrics are absent, or have the value that an alert compares them with."""
_STOPPED: Final[Mapping[str, Ends]] = {
    "KernelcastPredictorDown": {"up": 0.0, UP: SILENT_SECONDS, **dict.fromkeys(MEASURED, 0.0)},
    "KernelcastBridgeDown": {"up": 0.0, **dict.fromkeys(MEASURED, 0.0)},
    "KernelcastKafkaUnreachable": {
        UP: SILENT_SECONDS,
        **dict.fromkeys((bridge.KAFKA_OUTAGE.prometheus_name, bridge.CAUGHT_UP.prometheus_name), SESSION_SECONDS),
        **dict.fromkeys(MEASURED, SESSION_SECONDS),
    },
    **{
        f"KernelcastExporterStale, {floor} s": {
            UP: SILENT_SECONDS,
            **dict.fromkeys(MEASURED, max(floor, SILENT_SECONDS)),
        }
        for floor in FLOORS_SECONDS
    },
}
"""By the alert that names the cause; a predictor has no series of GPUs at any time."""
OF_ALL: Final = {
    "KernelcastPredictorDown": "KernelcastAllPredictorsDown",
    "KernelcastBridgeDown": "KernelcastAllBridgesDown",
    "KernelcastKafkaUnreachable": "KernelcastAllBridgesWithoutKafka",
}
"""By the alert about one instance, that about all of them, which fires with it if there is only one."""
STOPPED: Final = {**_STOPPED, "KernelcastAllBridgesWithoutKafka": _STOPPED["KernelcastKafkaUnreachable"]}
NEVER: Final = float("inf")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("stopped", STOPPED)
def test_a_cause_is_announced_before_its_consequences(stopped: str, profile: rules.Profile) -> None:
    cause, ends = stopped.partition(",")[0], STOPPED[stopped]
    times = {name: fires_after(name, profile, ends) for name in silenced_by(cause, profile)}
    following = {name: after for name, after in times.items() if after < NEVER and name != OF_ALL.get(cause)}
    first = fires_after(cause, profile, ends)
    assert following
    assert not {name: after for name, after in following.items() if after <= first}, first


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_keeps_the_order_of_waiting_times(profile: rules.Profile) -> None:
    """An alert that waits for longer in production may do so because another one is to fire before it."""
    own = {alert.hold_seconds for alert in rules.alerts(profile)} | {
        alert.keep_seconds for alert in rules.alerts(profile)
    }
    held = [seconds(profile.hold(one)) for one in sorted(own - {0})]
    assert all(shorter < longer for shorter, longer in pairwise(held)), held


def silenced_by(cause: str, profile: rules.Profile) -> set[str]:
    """Alerts that another one silences, by the table of faults or that of consequences."""
    names = {alert.name for alert in rules.alerts(profile)} - {cause}
    found = {name for one in declared(profile) if one.cause == cause for name in one.silenced}
    patterns = [one.alert for fault in FAULTS if cause in (fault.alert, fault.muting) for one in fault.consequences]
    return found | {name for name in names for pattern in patterns if re.fullmatch(pattern, name)}


def fires_after(name: str, profile: rules.Profile, ends: Ends) -> float:
    """Seconds after a service's end at which an alert fires."""
    rule = _rendered(profile.name)[name]
    return _true_after(promql_parser.parse(rule["expr"]), ends) + (seconds(rule["for"]) if "for" in rule else 0.0)


def seconds(text: str) -> float:
    """A duration of Prometheus."""
    return float(promql_parser.parse_duration(text).total_seconds())


@cache
def _rendered(name: str) -> Mapping[str, Mapping[str, Any]]:
    profile = next(profile for profile in PROFILES if profile.name == name)
    groups = yaml.safe_load(rules.render(profile)[rules.ALERTS_FILE])["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def _true_after(node: Any, ends: Ends) -> float:
    """Seconds after which an expression has a result that the stopped service has caused."""
    if isinstance(node, promql_parser.ParenExpr | promql_parser.AggregateExpr):
        return _true_after(node.expr, ends)
    if not isinstance(node, promql_parser.BinaryExpr):
        return NEVER
    if str(node.op) == "or":
        return min(_true_after(node.lhs, ends), _true_after(node.rhs, ends))
    if str(node.op) == "unless":
        left = _true_after(node.lhs, ends)
        right = _after(node.rhs, _only(ends, STATES if _is_state(node.rhs) else MEASURED))
        return max(0.0 if _is_memory(node.lhs) else left, right)
    return _after(node.lhs, _only(ends, STATES))


def _is_state(node: Any) -> bool:
    """Whether an expression compares a metric's value, as `up == 1` does."""
    return isinstance(node, promql_parser.BinaryExpr) and str(node.op) == "=="


def _is_memory(node: Any) -> bool:
    """Whether an expression names what was there before."""
    return "present_over_time" in str(node)


def _only(ends: Ends, names: Collection[str]) -> Ends:
    return {name: after for name, after in ends.items() if name in names}


def _after(node: Any, ends: Ends) -> float:
    """Seconds after which all series of an expression have been at their end for as long as it looks back."""
    found: list[float] = []

    def visit(one: Any) -> None:
        if isinstance(one, promql_parser.MatrixSelector):
            found.append(ends.get(str(one.vector_selector.name), NEVER) + one.range.total_seconds())
        elif isinstance(one, promql_parser.VectorSelector):
            found.append(ends.get(str(one.name), NEVER))

    promql_parser.walk(node, visit)
    return max(found, default=NEVER)
