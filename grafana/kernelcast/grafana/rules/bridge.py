"""Alerts about the bridge: what stands between Kafka and Prometheus."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.rules.model import MINUTE, Alert, Group, Profile, Severity
from kernelcast.grafana.rules.recording import BRIDGE_JOB, RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue import bridge

_NEARLY_FULL: Final = 0.9


def group(profile: Profile) -> Group:
    """Down, hidden, unable to read, full, or fed by two writers."""
    return Group(
        "kernelcast-bridge-alerts",
        (_down(), _not_ready(), _decode_failures(profile), _nearly_full(), _second_writer(profile)),
    )


def _down() -> Alert:
    return Alert(
        name="KernelcastBridgeDown",
        expr=f'up{{job="{BRIDGE_JOB}"}} == 0 or absent(up{{job="{BRIDGE_JOB}"}})',
        hold_seconds=2 * MINUTE,
        severity=Severity.CRITICAL,
        summary="The bridge is down: Prometheus gets nothing from Kafka",
        description="Prometheus cannot read {{ $labels.job }} at {{ $labels.instance }}, or has no such target. What "
        "the exporters send waits in Kafka.",
        action="Check the bridge's /-/healthy and its log. Nothing is lost while Kafka's retention lasts.",
    )


def _not_ready() -> Alert:
    return Alert(
        name="KernelcastBridgeNotReady",
        expr=f"{promql.name(bridge.CAUGHT_UP)} == 0",
        hold_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="The bridge at {{ $labels.instance }} does not catch up with Kafka",
        description="Its membership keeps changing or it reads more slowly than exporters write; partitions stay "
        "hidden until they have caught up.",
        action="Look at its rebalances and its lag; add an instance to the consumer group, or steady the one that "
        "flaps.",
    )


def _decode_failures(profile: Profile) -> Alert:
    failures = promql.name(bridge.DECODE_FAILURES)
    return Alert(
        name="KernelcastDecodeFailures",
        expr=f"sum without (error) (increase({failures}[{profile.window(RATE_WINDOW_SECONDS)}])) > 0",
        hold_seconds=0,
        severity=Severity.WARNING,
        summary="The bridge at {{ $labels.instance }} cannot decode messages of {{ $labels.topic }}",
        description="Messages are truncated, malformed or over a limit. None of them is used, all else goes on.",
        action="Read kernelcast.error on the dead letters: the source topic, partition and offset name the producer.",
    )


def _nearly_full() -> Alert:
    held, limit = promql.name(bridge.LINES), promql.name(bridge.LINES_LIMIT)
    return Alert(
        name="KernelcastBridgeNearlyFull",
        expr=f"{held} / {limit} > {_NEARLY_FULL}",
        hold_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="The bridge at {{ $labels.instance }} holds {{ $value | humanizePercentage }} of the lines it may hold",
        description="At the limit new series are refused and counted, so that Prometheus's own limit does not fail "
        "the scrape.",
        action="Find the metric or producer that grew, lower its --kernels, or raise the bridge's limit and memory.",
    )


def _second_writer(profile: Profile) -> Alert:
    discarded = f'{promql.name(bridge.DISCARDED_POINTS)}{{cause="second_writer"}}'
    return Alert(
        name="KernelcastSecondWriter",
        expr=f"increase({discarded}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0",
        hold_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="Two processes write the same series",
        description="A second live writer of a series is shut out, so that totals stay true; its points are discarded.",
        action="Look for two exporters on one host, or two hosts with one name.",
    )
