"""Alerts about kernelcast itself (exporters, predictor, messages), and the heartbeat, the alert that always fires."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.rules.absence import lately, of_all, unread_targets
from kernelcast.grafana.rules.model import HOUR, MINUTE, AlertRule, AlertSeverity, Profile
from kernelcast.grafana.rules.recording import LAG, RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue import bridge, predictor, runtime
from kernelcast.wire.catalogue.devices import gpu

_ABSENT_SECONDS: Final = 4 * MINUTE
"""Time without a node's series after which they count as ended, where nothing says that the exporter has."""
_DAEMON: Final = "{{ $labels.job }} at {{ $labels.instance }}"


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Down, stale, losing messages; and the heartbeat."""
    jobs = profile.jobs
    down, works = _predictor_down(profile), f'up{{job="{jobs.predictor}"}} == 1'
    all_of_them = of_all(down, name="KernelcastAllPredictorsDown", works=works, service="predictor")
    predictor_alerts = (down, all_of_them, _sweeps(profile)) if jobs.predictor else ()
    lag = (_lag(profile),) if jobs.bridge or jobs.predictor else ()
    messages = (*lag, _stopped(profile), _dropping(profile), _dead_letters(profile))
    exporters = (_exporter_stale(profile), *((_exporter_down(profile),) if jobs.exporter else ()))
    return (*predictor_alerts, *exporters, *messages, _watchdog())


def _predictor_down(profile: Profile) -> AlertRule:
    name = "KernelcastPredictorDown"
    return AlertRule(
        name=name,
        expr=unread_targets(name, profile.jobs.predictor, profile),
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="The predictor is down: findings stay as they are, and there are no forecasts and no hints",
        description="Prometheus cannot read {{ $labels.job }}{{ with $labels.instance }} at {{ . }}{{ end }}, or has "
        "lost the target. Measurements are not affected. "
        "Alerts about findings go on as they were last known: nobody knows whether they are over.",
        action="Check its /-/healthy and its log; after a restart it restores its windows and findings.",
        dashboard=PIPELINE,
    )


def _exporter_stale(profile: Profile) -> AlertRule:
    name, answers = "KernelcastExporterStale", promql.name(gpu.GPU_UP)
    # job and instance of the silent producer, so that Alertmanager can mute what follows from this.
    by = "Hostname, job, instance"
    known = f"group by ({by}) ({promql.measured_within(profile.window(HOUR))})"
    # The bridge says so while the series are still there; an exporter that is scraped without a bridge has `up`.
    silent = f"max by (job, instance) ({promql.name(bridge.PRODUCER_UP)}) == 0"
    silent += f" unless on () group({promql.name(bridge.KAFKA_OUTAGE)} > 0)"
    ended = f"{known} and on (job, instance) (up == 0 or ({silent}))"
    # A bridge that starts, or has no Kafka, has no series either, and its own alert comes after two minutes.
    window = profile.window(_ABSENT_SECONDS)
    recently = lately(name, promql.measured_within, by=by, profile=profile)
    absent = (
        f"{recently} unless on (Hostname) ({promql.measured_within(window)} or present_over_time({answers}[{window}]))"
    )
    return AlertRule(
        name=name,
        who="operators of the GPUs",
        expr=f"{ended} or {absent}",
        hold_seconds=2 * MINUTE,  # longer than an exporter takes to be replaced by another version
        severity=AlertSeverity.CRITICAL,
        summary="Node {{ $labels.Hostname }} stopped reporting its GPUs",
        description="The node sent device metrics; now its exporter has missed several intervals, or nothing of it has "
        "been seen for five minutes. The alert lasts until it sends them again, for five days at most.",
        action="Log in to the node. If it does not answer, treat it as failed; if it does, start its exporter again. "
        "If it was removed on purpose, silence the alert.",
        subject=("Hostname",),
        dashboard=PIPELINE,
        steps=(
            "Find out whether it is the node: `ping`, its console, and its state in the scheduler or Kubernetes.",
            "Look at the exporter: `systemctl status kernelcast-exporter`, or its pod, and its log.",
            "Run `kernelcast doctor` there: it names what the exporter lacks, and tries the way to Kafka.",
            "If several nodes stopped at once, look at what they share: a rack's network, Kafka, the bridge.",
        ),
    )


def _exporter_down(profile: Profile) -> AlertRule:
    """A target that never came up: `_exporter_stale` speaks of nodes whose GPUs were measured."""
    window, known = profile.window(5 * MINUTE), promql.measured_within(profile.window(HOUR))
    up = f'up{{job="{profile.jobs.exporter}"}}'
    host = f'label_replace(max_over_time({up}[{window}]) == 0 and {up} offset {window}, "Hostname", "$1", "instance", '
    host += '"(.*):[0-9]+")'
    return AlertRule(
        name="KernelcastExporterDown",
        expr=f"{host} unless on (job, instance) {known} unless on (Hostname) {known}",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary="The exporter at {{ $labels.instance }} has not come up",
        description="Prometheus has this target and cannot read it; no GPU of the node was measured in the last hour.",
        action="Look at its unit or pod and its log; `kernelcast doctor` on that node says what it lacks.",
        dashboard=PIPELINE,
    )


def _sweeps(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastPredictorFailing",
        expr=_keeps_rising(promql.name(predictor.SWEEP_FAILURES), profile),
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="{{ $value | humanize }} cycles of the predictor at {{ $labels.instance }} failed within five minutes",
        description="Forecasts and hints are not updated.",
        action="Read its log; a failing cycle is a defect: report it.",
        dashboard=PIPELINE,
    )


def _keeps_rising(counter: str, profile: Profile) -> str:
    return f"increase({counter}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0"


def _lag(profile: Profile) -> AlertRule:
    limit = profile.thresholds.lag_messages
    return AlertRule(
        name="KernelcastLagGrowing",
        expr=f"{LAG} > {limit:g} and deriv({LAG}[{profile.window(2 * RATE_WINDOW_SECONDS)}]) > 0 "
        f"or {promql.name(bridge.CAUGHT_UP)} == 0",
        hold_seconds=10 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"{_DAEMON} {{{{ with $labels.topic }}}}falls behind on {{{{ . }}}}: {{{{ $value | humanize }}}} "
        "messages wait{{ else }}does not catch up with Kafka{{ end }}",
        description=f"More than {limit:g} messages wait, and more arrive than are read; or a bridge does not catch up: "
        "its group membership keeps changing, or it reads more slowly than exporters write, and its partitions stay "
        "hidden.",
        action="Look at its rebalances and its load; start another instance of the same consumer group, or find the "
        "reason why one leaves and joins repeatedly.",
        dashboard=PIPELINE,
    )


def _stopped(profile: Profile) -> AlertRule:
    failed = promql.name(runtime.CONSUMER_FAILED)
    # While a new client is tried, the partition does not count as failed for half a minute.
    window = profile.window(5 * MINUTE)
    return AlertRule(
        name="KernelcastPartitionsNotRead",
        expr=f"max_over_time({failed}[{window}]) > 0",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary=f"{_DAEMON} cannot read {{{{ $value }}}} partitions of {{{{ $labels.topic }}}}",
        description="Kafka answers and has more messages there, and nothing was read for half a minute, also by a new "
        "Kafka client. The limit is 0. Other partitions are read on; the process ends if none is, so that it is "
        "started again.",
        action="Read its log for `the partition cannot be read`, which has position and end, then the log of the "
        "broker that leads the partition. Restart the service if the broker serves other consumers of the partition.",
        dashboard=PIPELINE,
    )


def _dropping(profile: Profile) -> AlertRule:
    dropped = promql.name(runtime.PRODUCER_DROPPED)
    return AlertRule(
        name="KernelcastMessagesDropped",
        expr=f"sum without (cause) (increase({dropped}[{profile.window(RATE_WINDOW_SECONDS)}])) > 0",
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"{_DAEMON} dropped {{{{ $value | humanize }}}} messages for {{{{ $labels.topic }}}} within five "
        "minutes",
        description="Its queue towards Kafka is full, or Kafka refuses its messages. Totals are cumulative, so "
        "counters are complete again with the next message; gauges have gaps.",
        action="Check the brokers and the topic's limits; the daemon's log names the cause.",
        dashboard=PIPELINE,
    )


def _dead_letters(profile: Profile) -> AlertRule:
    letters, window = promql.name(runtime.DEADLETTER_MESSAGES), profile.window(RATE_WINDOW_SECONDS)
    return AlertRule(
        name="KernelcastDeadLetters",
        # The first unusable message of a topic creates its counter.
        expr=f"sum without (outcome) ({promql.happened(letters, window=window, known=profile.window(HOUR))})",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary=f"{_DAEMON} sent {{{{ $value | humanize }}}} messages of {{{{ $labels.topic }}}} to the "
        "dead-letter topic",
        description="Unusable messages are in kernelcast.deadletter, with the error in their headers.",
        action="Read the headers kernelcast.error and kernelcast.topic on that topic; usually a producer sends another "
        "format.",
        dashboard=PIPELINE,
    )


def _watchdog() -> AlertRule:
    return AlertRule(
        name="Watchdog",
        expr="vector(1)",
        hold_seconds=0,
        severity=AlertSeverity.NONE,
        summary="Alerting works",
        description="This alert always fires. If it stops arriving, Prometheus or Alertmanager is broken.",
        action="Connect its receiver to a service that raises an alarm when it stops. While it fires, do nothing.",
        dashboard=PIPELINE,
    )
