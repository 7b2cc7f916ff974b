"""Alerts about the bridge from Kafka to Prometheus."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.rules import exporters
from kernelcast.grafana.rules.absence import of_all, unread_targets
from kernelcast.grafana.rules.model import MINUTE, AlertRule, AlertSeverity, Profile
from kernelcast.grafana.rules.recording import RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue import bridge
from kernelcast.wire.catalogue.devices import device, gpu

_NEARLY_FULL: Final = 0.9
"""Share of a limit of the bridge from which it is nearly full."""


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: bridge down, without Kafka, nearly full; messages and producers with defects."""
    down, away = _down(profile), _kafka_away(profile)
    works = f'up{{job="{profile.jobs.bridge}"}} == 1', f"{promql.name(bridge.KAFKA_OUTAGE)} == 0"
    all_of_them = (
        of_all(down, name="KernelcastAllBridgesDown", works=works[0], service="bridge"),
        of_all(away, name="KernelcastAllBridgesWithoutKafka", works=works[1], service="bridge's connection to Kafka"),
    )
    own = (down, away, *all_of_them, _not_exposed(), _nearly_full())
    others = (
        _second_writer(profile),
        _unkeyed(profile),
        _silent_producer(profile),
        _clock_ahead(profile),
    )
    return (*own, *others)


def _down(profile: Profile) -> AlertRule:
    name = "KernelcastBridgeDown"
    return AlertRule(
        name=name,
        expr=unread_targets(name, profile.jobs.bridge, profile),
        hold_seconds=2 * MINUTE,
        severity=AlertSeverity.CRITICAL,
        summary="The bridge is down: Prometheus gets nothing from Kafka",
        description="Prometheus cannot read {{ $labels.job }}{{ with $labels.instance }} at {{ . }}{{ end }}, or has "
        "lost the target. Messages of the exporters wait in Kafka.",
        action="Check the bridge's /-/healthy and its log. Nothing is lost while Kafka's retention lasts.",
        dashboard=PIPELINE,
    )


def _kafka_away(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastKafkaUnreachable",
        expr=f"{promql.name(bridge.KAFKA_OUTAGE)} > 0",
        hold_seconds=2 * MINUTE,
        # Until producers have written again; and until BridgeDown fires, should the bridge end in the outage.
        keep_seconds=5 * MINUTE,
        severity=AlertSeverity.CRITICAL,
        summary="Kafka has not answered the bridge at {{ $labels.instance }} for {{ $value | humanizeDuration }}"
        f'{{{{ with query "{exporters.room(profile)}" }}}}; exporters have room on disk for '
        "{{ . | first | value | humanizeDuration }}{{ end }}",
        description="Every value that came through Kafka is at least that old: the bridge keeps its series as they "
        "were until Kafka answers; in a consumer group it hides them after 15 s. Exporters write their messages to "
        "their spools.",
        action="Check the brokers and the network to them; `kernelcast doctor` beside the bridge names what fails. "
        "Nothing is lost while the exporters' spools have room.",
        dashboard=PIPELINE,
        steps=(
            "Only some partitions without a leader count, too: `kafka-topics --describe --unavailable-partitions`.",
            "After Kafka's return counters are complete again, and gauges have a gap.",
        ),
    )


def _not_exposed() -> AlertRule:
    exposed = f'sum by (job) ({promql.name(bridge.PARTITIONS)}{{state="exposed"}})'
    on_kafka = f"sum by (job) (max by (job, topic) ({promql.name(bridge.TOPIC_PARTITIONS)}))"
    return AlertRule(
        name="KernelcastPartitionsNotExposed",
        expr=f"{on_kafka} - {exposed} > 0",
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="No bridge of {{ $labels.job }} exposes {{ $value }} partitions that Kafka has",
        description="Series of these partitions are missing in Prometheus. The limit is 0, for five minutes: another "
        "application may have them, as a member of the bridges' consumer group, or a bridge has lost its membership "
        "or cannot read them.",
        action="Run `kafka-consumer-groups --describe --members --group` with bridge.group_id: every member must be a "
        "bridge. If so, look for the bridge with kernelcast_consumer_failed_partitions or with a lag, and restart it.",
        dashboard=PIPELINE,
    )


def _nearly_full() -> AlertRule:
    return AlertRule(
        name="KernelcastBridgeNearlyFull",
        expr=f"{promql.name(bridge.LIMIT_USED)} > {_NEARLY_FULL}",
        hold_seconds=10 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="The bridge at {{ $labels.instance }} has used {{ $value | humanizePercentage }} of its limit of "
        "{{ $labels.limit }}",
        description=f"It warns from {_NEARLY_FULL * 100:g} % on. At the limit new series are refused and counted, "
        "so that Prometheus's own limit does not fail the scrape.",
        action="Find the metric or producer that grew, lower its --kernels, or raise the bridge's limit and memory.",
        dashboard=PIPELINE,
    )


def _second_writer(profile: Profile) -> AlertRule:
    conflicts = f"{promql.name(bridge.IDENTITY_CONFLICTS)}[{profile.window(RATE_WINDOW_SECONDS)}]"
    return AlertRule(
        name="KernelcastSecondWriter",
        expr=f"sum by (job, instance) (increase({conflicts})) > 0",
        # A restart with another resource is refused for an interval or two: it has left the window by then.
        hold_seconds=2 * RATE_WINDOW_SECONDS,
        severity=AlertSeverity.WARNING,
        summary="Two live producers call themselves {{ $labels.job }} {{ $labels.instance }}",
        description="They write under one identity. If they write the same series, the points of one of them are "
        "refused. Gauges alternate between the values of both if nothing distinguishes the producers.",
        action="Look for two exporters on one host, two hosts with one name, or a topic that is read together with its "
        "mirror. Give each producer a service.instance.id (or host name) of its own. The label sign of "
        "kernelcast_producer_identity_conflicts_total shows how they were recognised.",
        dashboard=PIPELINE,
    )


def _unkeyed(profile: Profile) -> AlertRule:
    unkeyed = promql.name(bridge.UNKEYED_MESSAGES)
    return AlertRule(
        name="KernelcastUnkeyedMessages",
        expr=f"increase({unkeyed}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary="{{ $labels.topic }} has messages without a key, which the bridge at {{ $labels.instance }} ignores",
        description="Without keys the points of one series are in many partitions, so a consumer group would expose it "
        "several times.",
        action="Run the bridges of this topic with mode: replica, or have its producers send keys.",
        dashboard=PIPELINE,
    )


def _silent_producer(profile: Profile) -> AlertRule:
    window = profile.window(RATE_WINDOW_SECONDS)
    # A node's alert begins when its series have expired, whenever that is, and mutes this one: this begins later.
    kept = " or ".join(f"present_over_time({promql.name(row)}[{window}])" for row in (device.FB_USED, gpu.GPU_UP))
    silent = f"max by (job, instance) (max_over_time({promql.name(bridge.PRODUCER_UP)}[{window}])) == 0"
    return AlertRule(
        name="KernelcastProducerSilent",
        expr=f"{silent} unless on (job, instance) ({kept})",
        hold_seconds=3 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="{{ $labels.job }} at {{ $labels.instance }} sends no more samples",
        description="It has missed several of its own intervals on Kafka. Its series expire; its last values are old. "
        "Of an exporter with GPUs this is said once its GPUs' series have expired.",
        action="Check that it runs and reaches Kafka. If it was removed on purpose, the alert ends without action.",
        dashboard=PIPELINE,
    )


def _clock_ahead(profile: Profile) -> AlertRule:
    limit = profile.thresholds.clock_ahead_seconds
    return AlertRule(
        name="KernelcastClockAhead",
        expr=f"max by (topic) ({promql.name(bridge.CLOCK_AHEAD)}) > {limit:g}",
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="Messages of {{ $labels.topic }} come from a clock that is {{ $value | humanizeDuration }} ahead",
        description="A producer writes times that lie after the time at which Kafka received the message. Its series "
        "are ordered by these times, and points too far in the future get Kafka's time.",
        action="Compare the clocks of the nodes that write to this topic (`chronyc tracking`), and correct the one "
        "that is ahead.",
        dashboard=PIPELINE,
    )
