"""Alerts about the exporters: reading, attribution, programs refused at the socket, and the spool."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.rules.model import MINUTE, RELEASE_FIRST, AlertRule, AlertSeverity, Profile, duration
from kernelcast.grafana.rules.recording import RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue import exporter

_KEPT_SECONDS: Final = 20 * MINUTE
"""Longer than alerts about GPUs are kept after their condition ended, so that this one mutes them until then."""
_STALE_RATIO: Final = 0.75
"""Share of the time for which an answer is used; every source is asked at least twice within that time."""


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: exporter failing, NVML hung or unusable, socket full, spool filling, spool dropping."""
    spool = (_spool_filling(profile), _spool_dropping(profile))
    own = (_failing(profile), _hung(), _unusable(), _refused(profile))
    return (*own, *spool)


def room(profile: Profile, matcher: str = "") -> str:
    """Seconds until the first spool is full at its present rate; no result while none grows.

    Args:
        profile: Its windows.
        matcher: Of one exporter, in braces; by default all.
    """
    waiting, limit = (f"{promql.name(row)}{matcher}" for row in (exporter.SPOOL_BYTES, exporter.SPOOL_MAX_BYTES))
    now = f"[{duration(2 * profile.evaluation_seconds)}]"
    left = f"(last_over_time({limit}{now}) - last_over_time({waiting}{now}))"
    return f"min({left} / (deriv({waiting}[{profile.window(2 * MINUTE)}]) > 0))"


def _failing(profile: Profile) -> AlertRule:
    failed = f"increase({promql.name(exporter.TICK_ERRORS)}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0"
    stale = f"{promql.name(exporter.ATTRIBUTION_AGE)} > {_STALE_RATIO} * {promql.name(exporter.ATTRIBUTION_KEPT)}"
    return AlertRule(
        name="KernelcastExporterFailing",
        expr=f"{failed} or {stale}",
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="The exporter at {{ $labels.instance }} cannot read {{ with $labels.source }}the users of its GPUs: "
        "{{ . }} has not answered for {{ $value | humanizeDuration }}{{ else }}one of its sources: "
        "{{ $value | humanize }} intervals failed{{ end }}",
        description="Intervals end in an error, and nothing is published for them; or the kubelet or the jobs' mapping "
        f"does not answer for {_STALE_RATIO * 100:g} % of kernelcast_exporter_attribution_kept_seconds, after which "
        "series lose the labels pod, namespace, container or job.",
        action="Run `kernelcast doctor` on that node: it checks driver, NVML, kubelet, mapping directory, socket and "
        "Kafka. Then read the exporter's log.",
        dashboard=PIPELINE,
    )


def _hung() -> AlertRule:
    return AlertRule(
        name="KernelcastNvmlHung",
        who="operators of the GPUs",
        # The host's name, which alerts about its GPUs have too; an exporter is scraped at it, or at an address.
        expr=f'label_replace({promql.name(exporter.NVML_HUNG)} == 1, "Hostname", "$1", "instance", "([^:]+).*")',
        hold_seconds=MINUTE,
        keep_seconds=_KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary="NVML hangs at {{ $labels.instance }} in {{ $labels.call }}",
        description="The process that calls NVML was killed and replaced, and hangs again. The exporter and the "
        "programs continue; that node has no device metrics. A GPU or its driver has a problem.",
        action="Look at the kernel's log (Xid, stuck tasks of `nvidia`) and find the GPU that answers last; "
        "`nvidia-smi` will hang as well.",
        dashboard=PIPELINE,
        steps=(RELEASE_FIRST, "Drain the node; a reset of the GPU may hang, too, then reboot."),
    )


def _unusable() -> AlertRule:
    return AlertRule(
        name="KernelcastNvmlUnusable",
        who="operators of the GPUs",
        expr=f"{promql.name(exporter.NVML_UNUSABLE)} == 1",
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="The driver at {{ $labels.instance }} cannot be used, and the node has an NVIDIA GPU",
        description="The exporter runs and tries again, at the latest every five minutes; the node has no device "
        "metrics until then. Usual reason: a driver was upgraded, and its kernel module is still the old one.",
        action="Read `no GPU metrics` in the exporter's log; `nvidia-smi` on that node should give the same reason.",
        dashboard=PIPELINE,
        steps=(
            '"Driver/library version mismatch": reboot, or stop all programs on the GPUs and load the module again.',
            "In a container: give it the GPUs. A node whose GPUs are not to be read: set exporter.nvml to off.",
        ),
    )


def _refused(profile: Profile) -> AlertRule:
    refused = promql.name(exporter.PROBE_REFUSED)
    window = profile.window(2 * RATE_WINDOW_SECONDS)
    return AlertRule(
        name="KernelcastProbePlacesTaken",
        expr=f'sum without (reason) (increase({refused}{{reason=~"limit|displaced"}}[{window}])) > 0',
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary="All places at the probe socket of {{ $labels.instance }} are taken: programs were refused "
        "{{ $value | humanize }} times within ten minutes",
        description="A node accepts 256 programs at a time. When all places are taken, the user with the most gives "
        "one up to a user who has fewer (displaced); without one the new program is refused (limit) and tries again. "
        "Refused programs continue unmeasured until then.",
        action="Read the exporter's log: `probe refused` names user and process. One user with very many connections: "
        "find the process (`ss -xp` shows the owners of the socket) and end it, or list the users who may report in "
        "exporter.allowed_uids.",
        dashboard=PIPELINE,
        steps=('Reason "hello" in the same metric counts silent connections; they are not programs with the probe.',),
    )


def _spool_filling(profile: Profile) -> AlertRule:
    waiting = promql.name(exporter.SPOOL_BYTES)
    left = f'printf "{room(profile, "{instance=%q}")}"{" $labels.instance" * 3}'
    return AlertRule(
        name="KernelcastSpoolFilling",
        expr=f"deriv({waiting}[{profile.window(2 * RATE_WINDOW_SECONDS)}]) > 0 and {waiting} > 0",
        hold_seconds=10 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="The exporter at {{ $labels.instance }} keeps writing to its spool: {{ $value | humanize }}B a second"
        f"{{{{ with {left} | query }}}}, which is full in {{{{ . | first | value | humanizeDuration }}}}{{{{ end }}}}",
        description="Kafka has not confirmed this exporter's messages for a while. They wait on its disk, and will "
        "be sent in order. Nothing is lost before exporter.spool.max_bytes or max_age_seconds is reached.",
        action="Check the brokers and the network to them; `kernelcast doctor` on that node checks both, and the disk.",
        dashboard=PIPELINE,
    )


def _spool_dropping(profile: Profile) -> AlertRule:
    dropped = promql.name(exporter.SPOOL_DROPPED)
    return AlertRule(
        name="KernelcastSpoolDropping",
        expr=f"increase({dropped}[{profile.window(RATE_WINDOW_SECONDS)}]) > 0",
        hold_seconds=0,
        severity=AlertSeverity.CRITICAL,
        summary="The exporter at {{ $labels.instance }} lost {{ $value | humanize }} messages from its spool within "
        "five minutes: {{ $labels.reason }}",
        description="Messages were lost before Kafka had them: the oldest beyond the bound, too old, on a disk that is "
        "full or fails, truncated by a crash, or refused by Kafka. Counters are complete again with the next message; "
        "gauges have a gap.",
        action="Act on the reason. bound or age: bring Kafka back, or raise exporter.spool.max_bytes; disk: free it; "
        "refused: the log names the topic and Kafka's reason.",
        dashboard=PIPELINE,
    )
