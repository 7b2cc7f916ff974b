"""Alerts about the GPUs: absent, hot, slowed down, nearly full or unreadable."""

from collections.abc import Sequence

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import GPUS
from kernelcast.grafana.rules.absence import lately
from kernelcast.grafana.rules.gpu_errors import unless_recent, unless_uncontained
from kernelcast.grafana.rules.model import (
    HOUR,
    KEPT_SECONDS,
    MINUTE,
    RELEASE_FIRST,
    AlertRule,
    AlertSeverity,
    Profile,
    duration,
)
from kernelcast.grafana.rules.recording import CLOCK_EVENT, MEMORY_USED, RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue.devices import device, gpu, health
from kernelcast.wire.catalogue.model import Metric

_GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_SUBJECT = ("Hostname", "gpu")
_NODE = ("Hostname",)
"""Of alerts whose first step is to compare the node's GPUs."""
_RECOVERY = (
    "{{ if eq $value 1.0 }}reset it{{ else if eq $value 2.0 }}reboot the node{{ else if eq $value 3.0 }}drain its "
    "P2P traffic{{ else if eq $value 4.0 }}drain its P2P traffic, then reset it{{ else }}action {{ $value }}{{ end }}"
)
"""nvmlDeviceGpuRecoveryAction_t in words."""
_GONE = (
    "Take the node out of scheduling: programs that use the GPU hang or have failed.",
    RELEASE_FIRST,
    "Reset the GPU, or reboot. If it fails again afterwards, check power, riser and slot, then replace the GPU.",
)
_REPLAYS_PER_MINUTE = 8
"""DCGM, dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_PCIREPLAY_RATE, above which its health check warns."""
_SINGLE_BITS_PER_MINUTE = 10
"""DCGM, dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_SBE_RATE, above which its health check warns."""
_XID_SINGLE_BITS = "92"
"""The driver's own report of such a rate."""
_IN_SMI = (
    "`nvidia-smi -q` shows state, status, clique and cluster under Fabric. in_progress is usual where a partition of "
    "the fabric is activated only with a job."
)
_NANOSECONDS = "1e9"


def _asked(expr: str, of: Sequence[str] = _SUBJECT) -> str:
    """A query in a text; each `%q` of the expression is a label of the alert, in their order, again and again."""
    labels = [f"$labels.{label}" for label in of] * (expr.count("%q") // len(of))
    return f'printf "{expr}" {" ".join(labels)} | query'


def _figure(profile: Profile, row: Metric, before: str, unit: str = "", *, of: Sequence[str] = _SUBJECT) -> str:
    """The largest value of a row of the alert's subject, with words before it; nothing where the row is not known."""
    matchers = ", ".join(f"{label}=%q" for label in of)
    newest = f"last_over_time({promql.name(row)}{{{matchers}}}[{duration(2 * profile.evaluation_seconds)}])"
    query = _asked(f"max({newest})", of)
    return f'{{{{ range {query} }}}}{before}{{{{ . | value | printf "%.0f" }}}}{unit}{{{{ end }}}}'


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Silence, throttling, memory, failed rows, rows that cannot be read."""
    limits = (_throttling(profile), _pcie_link(profile), _fabric())
    memory = (_memory(profile), _remap_failure(), _waiting_for_reset(), _single_bits(profile))
    absent = (_down(profile), _needs_recovery(), _unmeasured())
    return (*absent, *limits, *memory, _unreadable(), _idle(profile))


def _throttling(profile: Profile) -> AlertRule:
    """One alert for a GPU: heat has two reasons, one after the other, and a time that is lost, with short breaks."""
    limit = profile.thresholds.heat_ratio
    # The text of the last evaluation stays while the alert is kept. Recordings may be written between the condition
    # and its text, so the text looks back over two of them.
    recorded = f"{CLOCK_EVENT}{{Hostname=%q, gpu=%q}}[{duration(2 * profile.evaluation_seconds)}]"
    of_gpu = f'printf "max by (reason) (max_over_time({recorded})) == 1" $labels.Hostname $labels.gpu'
    reasons = f'query ({of_gpu}) | sortByLabel "reason"'
    lost = f"rate({promql.name(device.THERMAL_VIOLATION)}[{profile.window(2 * RATE_WINDOW_SECONDS)}])"
    # Readings are a little later or earlier than their scrapes: a GPU at reduced clocks all the time had 107 %.
    share = f"clamp_max(max by (Hostname, gpu, UUID) ({lost}) / {_NANOSECONDS}, 1) > {limit:g}"
    return AlertRule(
        name="KernelcastGpuThrottling",
        expr=f"max by (Hostname, gpu, UUID) ({CLOCK_EVENT}) == 1 or {share}",
        hold_seconds=5 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=f"{_GPU} runs at reduced clocks {{{{ $value | humanizePercentage }}}} of the time"
        f"{{{{ with {reasons} }}}}:{{{{ range . }}}} {{{{ .Labels.reason }}}}{{{{ end }}}}{{{{ end }}}}"
        f"{_figure(profile, device.GPU_TEMP, '; it has ', ' °C')}"
        f"{_figure(profile, device.SLOWDOWN_TEMP, ', its limit is ', ' °C')}",
        description="The driver has lowered the clocks without a break, or because of temperature for more than "
        f"{limit * 100:g} % of ten minutes. The power cap, which is normal under load, is not counted.",
        action="Compare temperature and power with the node's other GPUs: thermal reasons point to fans, air flow or "
        "neighbours, a power brake to the supply. Move the job if it waits for this GPU.",
        subject=_NODE,
        dashboard=GPUS,
    )


def _down(profile: Profile) -> AlertRule:
    """A GPU that does not answer, or of which nothing is heard while the node's others report."""
    name, seen = "KernelcastGpuDown", promql.measured()
    recently = lately(name, promql.measured_within, by="Hostname, gpu, UUID", profile=profile)
    detached = f"present_over_time({promql.name(gpu.GPU_DETACHED)}[{profile.window(HOUR)}])"
    expected = f"{recently} unless on (Hostname, UUID) {seen} unless on (Hostname, UUID) {detached}"
    return AlertRule(
        name=name,
        expr=f"max by (Hostname, gpu, UUID) ({promql.name(gpu.GPU_UP)}) == 0 or ({expected}) and on (Hostname) {seen}",
        hold_seconds=2 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_GPU} {{{{ if eq $value 0.0 }}}}does not answer{{{{ else }}}}stopped reporting while the node's "
        "other GPUs report{{ end }}",
        description="The exporter knows this GPU and gets no answer, or nothing of it is reported any more: it fell "
        "off the bus, is being reset, its driver is gone, or NVML hangs on it. A GPU that was released, or taken from "
        "the driver in order, has kernelcast_gpu_detached instead.",
        action="Look for XID 79 in the table of XIDs and in the kernel's log; `kernelcast doctor` on that node shows "
        "NVML's answers.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(
            *_GONE,
            "If the GPU was removed on purpose while no exporter ran, silence the alert; it ends after five days.",
        ),
    )


def _unmeasured() -> AlertRule:
    answers = f"max by (Hostname, gpu, UUID) ({promql.name(gpu.GPU_UP)}) == 1"
    rows = "|".join(map(promql.name, promql.GPU_ROWS))
    lacking = f'{promql.name(gpu.FIELD_ABSENT)}{{field=~"{rows}"}}'
    return AlertRule(
        name="KernelcastGpuUnmeasured",
        expr=f"{answers} unless on (Hostname, UUID) {promql.measured()} unless on (Hostname, UUID) {lacking}",
        hold_seconds=10 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"{_GPU} answers, and its device metrics are missing",
        description="The exporter reads this GPU, but neither its memory nor its utilisation is in Prometheus, nor a "
        "reason why the GPU lacks them. Either a dcgm-exporter writes "
        "them that Prometheus does not scrape, or they were switched off.",
        action="Look at kernelcast_exporter_device_metrics_off, which has the reason. Then have Prometheus scrape the "
        "dcgm-exporter of that node, or stop it, or set exporter.device_metrics to on.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _pcie_link(profile: Profile) -> AlertRule:
    """By width, which does not change with load, and by retries; a link's generation is lowered while it is idle."""
    width, widest = promql.name(device.PCIE_LINK_WIDTH), promql.name(device.PCIE_MAX_LINK_WIDTH)
    own = f"min by (Hostname, gpu, UUID, modelName) ({width})"
    below_own = f"{own} < on (Hostname, UUID) group_left () max by (Hostname, UUID) ({widest})"
    below_peers = f"{own} < on (modelName) group_left () max by (modelName) ({width})"
    narrow = f"max by (Hostname, gpu, UUID) (({below_own}) or ({below_peers}))"
    a_minute = f"{MINUTE} * rate({promql.name(device.PCIE_REPLAY)}[{profile.window(10 * MINUTE)}])"
    retried = f"max by (Hostname, gpu, UUID) ({a_minute}) > {_REPLAYS_PER_MINUTE}"
    return AlertRule(
        name="KernelcastGpuPcieLinkDegraded",
        expr=f'label_replace({narrow}, "problem", "lanes", "", "") '
        f'or label_replace({retried}, "problem", "retries", "", "") unless on (Hostname, gpu, UUID) {narrow}',
        hold_seconds=10 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary='{{ if eq $labels.problem "lanes" }}' + f"{_GPU} has only {{{{ $value }}}} PCIe lanes"
        f"{_figure(profile, device.PCIE_MAX_LINK_WIDTH, '; the widest link of the node can have ', of=_NODE)}"
        f"{{{{ else }}}}The PCIe link of {_GPU} sends packets again, {{{{ $value | humanize }}}} times a minute"
        "{{ end }}",
        description="The link is narrower than GPU and slot allow, or than that of another GPU of the same model, or "
        f"it retries more than {_REPLAYS_PER_MINUTE} times a minute: its signal is bad. Copies between host and GPU "
        "take longer, and the link may lose lanes, or the GPU.",
        action="Look for PCIe errors (AER) in the kernel's log. Drain the node, power it off, and reseat the card or "
        "its riser; replace it if they return. If the slot is narrow by design (`nvidia-smi -q`, GPU Link Info), "
        "silence the alert.",
        subject=_NODE,
        dashboard=GPUS,
        source="NVML API reference, nvmlDeviceGetMaxPcieLinkWidth: of device and system together; NVIDIA/DCGM, "
        "DCGM_LIMIT_MAX_PCIREPLAY_RATE: 8 replays a minute are the most that is recommended",
    )


def _needs_recovery() -> AlertRule:
    return AlertRule(
        name="KernelcastGpuNeedsRecovery",
        expr=f"max by (Hostname, gpu, UUID) ({promql.name(device.RECOVERY_ACTION)}) > 0",
        hold_seconds=15 * MINUTE,  # longer than a planned reset; an XID that asks for one is announced at once
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_GPU} needs to be recovered: {_RECOVERY}",
        description="The driver recommends this for the GPU. Programs on it may have failed, or fail soon.",
        action="Drain the node, do what the driver recommends, then look at the GPU's XIDs for the cause.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(RELEASE_FIRST,),
        source="nvml.h, nvmlDeviceGpuRecoveryAction_t",
    )


def _unreadable() -> AlertRule:
    absent = f'{promql.name(gpu.FIELD_ABSENT)}{{reason=~"no_permission|error|lost"}}'
    return AlertRule(
        name="KernelcastGpuRowsUnreadable",
        expr=f"count by (Hostname, gpu, reason) (group by (Hostname, gpu, GPU_I_ID, field, reason) ({absent}))",
        hold_seconds=15 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"{{{{ $value }}}} rows of {_GPU} cannot be read: {{{{ $labels.reason }}}}",
        description="The GPU has these rows, but the exporter cannot read them. Rows that a GPU does not have are "
        "not counted.",
        action="Act on the reason. no_permission: give the exporter's user the driver's capabilities; error or lost: "
        "run `kernelcast doctor` and look at the kernel's log (Xid).",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _memory(profile: Profile) -> AlertRule:
    limit = profile.thresholds.memory_used_ratio
    used, window = f"{MEMORY_USED}{{Hostname=%q, gpu=%q}}", profile.window(5 * MINUTE)
    newest = f"last_over_time({used}[{duration(2 * profile.evaluation_seconds)}])"
    left = _asked(f"min((1 - {newest}) / (deriv({used}[{window}]) > 0))")
    return AlertRule(
        name="KernelcastGpuMemoryNearlyFull",
        who="owner of the program",
        expr=f"{MEMORY_USED} > {limit:g} and deriv({MEMORY_USED}[{profile.window(5 * MINUTE)}]) > 0",
        hold_seconds=10 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=f"{_GPU}{{{{ with $labels.pod }}}} (pod {{{{ . }}}}){{{{ end }}}} uses "
        f"{{{{ $value | humanizePercentage }}}} of its memory, and the use grows{{{{ range {left} }}}}; full in about "
        "{{ . | value | humanizeDuration }}{{ end }}",
        description=f"More than {limit * 100:g} % of the usable frame buffer is in use and use keeps growing. Memory "
        "that a framework allocates at start and keeps does not fire this alert.",
        action="Look at the memory pools of the programs on this GPU; free caches, or lower the batch size before "
        "memory runs out.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _remap_failure() -> AlertRule:
    return AlertRule(
        name="KernelcastGpuRowRemapFailure",
        expr=f"max by (Hostname, gpu, UUID) ({promql.name(device.ROW_REMAP_FAILURE)}) == 1",
        hold_seconds=0,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_GPU} cannot remap a failed memory row",
        description="The GPU ran out of spare rows; further memory errors will affect programs.",
        action="Drain the GPU and replace it (NVIDIA GPU memory error management, row remapping failure).",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _waiting_for_reset() -> AlertRule:
    pending = (promql.name(device.RETIRED_PENDING), promql.name(device.ROW_REMAP_PENDING))
    waiting = " or ".join(f"max by (Hostname, gpu, UUID) ({name}) > 0" for name in pending)
    return AlertRule(
        name="KernelcastGpuRepairPending",
        expr=unless_uncontained(waiting),
        hold_seconds=MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=f"{_GPU} has memory that is taken out of use with the next reset",
        description="Memory with errors is still in use: a page waits for its retirement (before Ampere), or a row for "
        "its replacement by a spare one. Programs can hit it again until the GPU is reset.",
        action="Let the GPU's programs end, then reset it (`nvidia-smi --gpu-reset -i INDEX`), or reboot the node.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(RELEASE_FIRST,),
        source="NVIDIA, GPU memory error management, <https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt>",
    )


def _single_bits(profile: Profile) -> AlertRule:
    a_minute = f"{MINUTE} * rate({promql.name(device.ECC_SBE_VOLATILE)}[{profile.window(10 * MINUTE)}])"
    many = f"max by (Hostname, gpu, UUID) ({a_minute}) > {_SINGLE_BITS_PER_MINUTE}"
    return AlertRule(
        name="KernelcastGpuSingleBitStorm",
        expr=unless_recent(many, _XID_SINGLE_BITS),
        hold_seconds=10 * MINUTE,  # as long as the window, in which a single burst counts, too
        severity=AlertSeverity.WARNING,
        summary=f"The memory of {_GPU} has {{{{ $value | humanize }}}} single-bit errors a minute",
        description=f"More than {_SINGLE_BITS_PER_MINUTE} errors a minute are corrected. Programs are not affected; "
        "such a memory often has uncorrectable errors later. The counters table has to name "
        f"{promql.name(device.ECC_SBE_VOLATILE)}.",
        action="Drain the GPU when its job has ended, reset it, and run NVIDIA's diagnostics; replace it if the errors "
        "return.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _fabric() -> AlertRule:
    place = promql.name(health.FABRIC)
    outside = (
        f'{place}{{state!="{health.COMPLETED}"}} or {place}{{state="{health.COMPLETED}", status!="{health.SUCCESS}"}}'
    )
    return AlertRule(
        name="KernelcastGpuFabricNotCompleted",
        expr=f"max by (Hostname, gpu, UUID, state, status) ({outside}) == 1",
        hold_seconds=10 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_GPU} is not in its NVLink fabric: {{{{ $labels.state }}}}, {{{{ $labels.status }}}}",
        description="The GPU is behind NVLink switches and has not been registered in their fabric, or with an error. "
        "CUDA programs on it fail at their start (error 802), or reach other GPUs over PCIe alone.",
        action="Look at the fabric manager on that node (`systemctl status nvidia-fabricmanager`, "
        "/var/log/fabricmanager.log; for NVLink between nodes: of the switches), restart it, then reset the GPUs.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(_IN_SMI, RELEASE_FIRST),
        source="NVML API reference, nvmlGpuFabricInfo_v3_t; NVIDIA/NVSentinel, issue 883; Azure/azhpc-images, 506",
    )


def _idle(profile: Profile) -> AlertRule:
    hours = profile.thresholds.idle_hours
    owner = "Hostname, gpu, UUID, namespace, pod, hpc_job"
    names = [f'{promql.name(device.GPU_UTIL)}{{{label}!=""}}' for label in ("pod", "hpc_job")]
    window, now = profile.window(int(hours * HOUR)), profile.window(RATE_WINDOW_SECONDS)
    busiest = " or ".join(f"max_over_time({name}[{window}])" for name in names)
    # An owner that has left has samples in the window for as long as the alert waits.
    still = " or ".join(f"present_over_time({name}[{now}])" for name in names)
    labelled = f"max by ({owner}) ({busiest}) < 1 and on ({owner}) ({still})"
    # Where owners have series of their own, those of the GPU go on from one owner to the next.
    idle = f"max by (Hostname, UUID) (max_over_time({promql.name(device.GPU_UTIL)}[{window}])) < 1"
    joined = f"max by ({owner}) ({promql.name(gpu.OWNER)}) * on (Hostname, UUID) group_left () ({idle})"
    return AlertRule(
        name="KernelcastGpuIdleAllocated",
        who="owner of the pod or job",
        expr=f"{labelled} or {joined}",
        hold_seconds=int(hours * HOUR),
        severity=AlertSeverity.INFO,
        summary=f"{_GPU} is allocated to {{{{ with $labels.pod }}}}pod {{{{ . }}}} of {{{{ $labels.namespace }}}}"
        "{{ else }}job {{ $labels.hpc_job }}{{ end }} and idle",
        description=f"A pod or a job has had this GPU for more than {hours:g} h, and no kernel ran on it in that time.",
        action="Ask the owner of the pod or job whether the GPU is still needed; a notebook that was left open is the "
        "usual reason.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )
