"""Alerts about the exporters: reading, attribution, programs refused at the socket, and the spool."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.rules.model import MINUTE, AlertRule, Profile, RuleGroup, Severity
from kernelcast.grafana.rules.recording import RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue import exporter

_STALE_SECONDS: Final = 60


def group(profile: Profile) -> RuleGroup:
    """Failing, nameless, refusing, filling, losing."""
    spool = (_spool_filling(profile), _spool_dropping(profile))
    own = (_ticks(profile), _hung(), _attribution(), _refused(profile))
    return RuleGroup("kernelcast-exporter-alerts", (*own, *spool))


def _ticks(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastExporterFailing",
        expr=f"increase({promql.name(exporter.TICK_ERRORS)}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0",
        hold_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="The exporter at {{ $labels.instance }} cannot read one of its sources",
        description="Intervals end in an error, and nothing is published for them.",
        action="Read its log; `kernelcast doctor` on that node checks driver, NVML, socket and Kafka.",
        dashboard=PIPELINE,
    )


def _hung() -> AlertRule:
    return AlertRule(
        name="KernelcastNvmlHung",
        expr=f"{promql.name(exporter.NVML_HUNG)} == 1",
        hold_seconds=MINUTE,
        severity=Severity.CRITICAL,
        summary="NVML hangs at {{ $labels.instance }} in {{ $labels.call }}",
        description="The process that asks NVML was killed and replaced, and hangs again. The exporter and the "
        "programs go on; there are no device metrics of that node. A GPU or its driver is in trouble.",
        action="Look at the kernel's log (Xid, `nvidia` stuck tasks) and at which GPU answers last; `nvidia-smi` will "
        "hang as well.",
        dashboard=PIPELINE,
        steps=("Drain the node; a reset of the GPU may hang, too, then reboot.",),
    )


def _attribution() -> AlertRule:
    return AlertRule(
        name="KernelcastAttributionStale",
        expr=f"{promql.name(exporter.ATTRIBUTION_AGE)} > {_STALE_SECONDS}",
        hold_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="The exporter at {{ $labels.instance }} no longer learns who uses its GPUs: {{ $labels.source }} is "
        "silent",
        description="The last answer is more than a minute old. After two minutes pod, namespace, container or job are "
        "left off the series, which then are new ones without these labels.",
        action="kubelet: is it up, and may the exporter use its socket (`kernelcast doctor` on that node)? jobs: is "
        "the mapping directory still mounted and readable?",
        dashboard=PIPELINE,
    )


def _refused(profile: Profile) -> AlertRule:
    refused = promql.name(exporter.PROBE_REFUSED)
    window = profile.window(2 * RATE_WINDOW_SECONDS)
    return AlertRule(
        name="KernelcastProbePlacesTaken",
        expr=f'sum without (reason) (increase({refused}{{reason=~"limit|displaced"}}[{window}])) > 0',
        hold_seconds=0,
        severity=Severity.WARNING,
        summary="All places at the probe socket of {{ $labels.instance }} are taken: programs were refused",
        description="A node takes 256 programs at a time. When all places are taken, the user with the most gives one "
        "up to a user who has fewer (displaced); without one the new program is refused (limit) and tries again. "
        "Refused programs run on and are not measured meanwhile.",
        action="Read the exporter's log: `probe refused` names user and process. One user with very many connections: "
        "find the process (`ss -xp` shows who holds the socket) and end it, or name the users who may report in "
        "exporter.allowed_uids.",
        dashboard=PIPELINE,
        steps=('Reason "hello" in the same metric counts connections that say nothing: no programs of ours.',),
    )


def _spool_filling(profile: Profile) -> AlertRule:
    waiting = promql.name(exporter.SPOOL_BYTES)
    return AlertRule(
        name="KernelcastSpoolFilling",
        expr=f"deriv({waiting}[{profile.window(2 * RATE_WINDOW_SECONDS)}]) > 0 and {waiting} > 0",
        hold_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="The exporter at {{ $labels.instance }} keeps writing to its spool: {{ $value | humanize }}B a second",
        description="Kafka has not confirmed what this exporter sends for a while; messages wait on its disk, and will "
        "follow in order. Nothing is lost before exporter.spool.max_bytes or max_age_seconds is reached.",
        action="Check the brokers and the way to them; `kernelcast doctor` on that node checks both, and the disk.",
        dashboard=PIPELINE,
        steps=("Divide exporter.spool.max_bytes by the rate above: that is the time left before the oldest go.",),
    )


def _spool_dropping(profile: Profile) -> AlertRule:
    dropped = promql.name(exporter.SPOOL_DROPPED)
    return AlertRule(
        name="KernelcastSpoolDropping",
        expr=f"increase({dropped}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0",
        hold_seconds=0,
        severity=Severity.CRITICAL,
        summary="The exporter at {{ $labels.instance }} loses messages from its spool: {{ $labels.reason }}",
        description="Messages that Kafka never got are gone: the oldest over the bound, too old, on a disk that is "
        "full or fails, cut short by a crash, or refused by Kafka. Counters recover with the next message; gauges "
        "have a gap.",
        action="bound or age: bring Kafka back, or raise exporter.spool.max_bytes; disk: free it; refused: the log "
        "says what Kafka does not take.",
        dashboard=PIPELINE,
    )
