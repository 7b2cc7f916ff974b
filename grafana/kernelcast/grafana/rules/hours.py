"""Recording rules about where GPU-hours go: each allocated GPU's time is divided into parts that add up to it.

A GPU is allocated while a pod or a job holds it, or a program reports from it. Several owners share it equally, and a
MIG instance is its slices of a GPU. What its time is spent on is taken from the first of these that knows: programs
that stand still while none on the GPU moves, phases of steps, device time, utilization of the GPU or instance; what
none of them knows is `unknown`, never `idle`. Recorded are GPUs, which are GPU-hours an hour: the hours of a month are
`sum_over_time` of the recordings, divided by evaluations an hour. A price only multiplies.
"""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.rules import standing
from kernelcast.grafana.rules.model import Profile, RecordingRule, RuleGroup
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, gpu, profiling
from kernelcast.wire.catalogue.peaks import PEAKS, PRECISIONS

OWNER: Final = "gpu:kernelcast_allocated_gpus:owner"
SHARE: Final = "gpu:kernelcast_allocated_gpus:share"
KNOWN: Final = "gpu:kernelcast_allocated_gpus:known"
PART: Final = "gpu:kernelcast_allocated_gpus:part"
HOURS: Final = "owner:kernelcast_allocated_gpus:part"
PRICE: Final = "gpu:kernelcast_gpu_price:hourly"
COST: Final = "owner:kernelcast_allocated_cost:part"
WATTS: Final = "owner:kernelcast_allocated_gpus:watts"
PEAK: Final = "gpu:kernelcast_gpu_peak_flops:dense"
UTILIZATION: Final = "program:kernelcast_program_flops:utilization"
ITEMS: Final = "program:kernelcast_program_items:rate"
GPU_SECONDS_PER_ITEM: Final = "program:kernelcast_program_items:gpuseconds"
JOULES_PER_ITEM: Final = "program:kernelcast_program_items:joules"

MAX_OWNERS: Final = 100
"""Owners with a series of their own for each part; the others are one, `namespace="other"`."""
TEAM: Final = "team"
"""Label of pods that names the team, where `exporter.kubernetes_pod_label_allowlist_regex` allows it."""
OPENCOST_PRICE: Final = "node_gpu_hourly_cost"
"""OpenCost's price of a GPU-hour, by its label `node`."""
COMPUTING, DATA, PEERS, STILL, IDLE, UNKNOWN = "computing", "data", "peers", "still", "idle", "unknown"
OF_PHASE: Final = {
    **dict.fromkeys(("forward", "backward", "optimizer", "evaluation"), COMPUTING),
    "data": DATA,
    "checkpoint": "checkpoint",
    "compilation": "compilation",
}
"""Part of each phase; `other`, work that no mark shows, is unknown."""
OF_STATE: Final = {"compute": COMPUTING, "copy": COMPUTING, "overlap": COMPUTING, "collective": PEERS, "idle": IDLE}
"""Part of each state of a device; `unknown` is unknown."""
_STEADY: Final = 0.05
"""Share by which the phases of a window may differ from its time."""
PARTS: Final = (COMPUTING, DATA, PEERS, STILL, "compilation", "checkpoint", IDLE, UNKNOWN)

_GPU: Final = "Hostname, UUID, GPU_I_ID"
_OWNER: Final = f"namespace, {TEAM}, hpc_job, user"
_HOLDS: Final = ('namespace!=""', 'hpc_job!=""')
_WITH_GPU: Final = 'UUID!="cpu"'
"""Of programs, those that have a GPU."""
_SLICES: Final = (
    (7, 'modelName!~"NVIDIA (A30.*|RTX PRO .*)"', (1, 2, 3, 4)),
    (4, 'modelName=~"NVIDIA (A30.*|RTX PRO 6000 .*)"', (1, 2)),
    (2, 'modelName=~"NVIDIA RTX PRO (5000|4500) .*"', (1,)),
)
"""Slices of a GPU, its model, and the slices of its smaller MIG instances, with which their profiles begin, such as
`1g.10gb`. Source: NVIDIA's user guide of MIG, supported profiles."""


def recordings(profile: Profile, window: str, watts: str, state_seconds: str) -> tuple[RuleGroup, ...]:
    """Owners, parts, and their sums by owner.

    Args:
        profile: Clock of the rules, and the site's prices.
        window: Of rates.
        watts: The recording of a GPU's power.
        state_seconds: The recording of device time by state, in seconds a second.
    """
    each_part = " or ".join(f'label_replace({SHARE}, "part", "{part}", "", "")' for part in PARTS)
    part_of_owner = f"({each_part}) * on ({_GPU}, part) group_left () {PART}"
    rules = (
        RecordingRule(OWNER, _owners()),
        RecordingRule(SHARE, f"{OWNER} / on ({_GPU}) group_left () count by ({_GPU}) ({OWNER}) {_times_its_slices()}"),
        *_known(window, state_seconds),
        # The first source that knows counts alone: its parts are at most the whole, the rest is unknown.
        RecordingRule(PART, f"{KNOWN} / on ({_GPU}) group_left () clamp_min(sum by ({_GPU}) ({KNOWN}), 1)"),
        RecordingRule(PART, f"clamp_min(1 - (sum by ({_GPU}) ({KNOWN}) or 0 * {_each()}), 0)", {"part": UNKNOWN}),
        # A part that has ended is 0: a graph's legend would go on with its last value, beside the part that took over.
        RecordingRule(HOURS, _bounded(f"sum by ({_OWNER}, part) ({part_of_owner} or 0 * ({each_part}))")),
        RecordingRule(PRICE, _prices(profile)),
        RecordingRule(
            COST,
            _bounded(f"sum by ({_OWNER}, part) ({part_of_owner} * on (Hostname, UUID) group_left () {PRICE})"),
        ),
        RecordingRule(WATTS, f"sum by ({_OWNER}) ({SHARE} * on (Hostname, UUID) group_left () {_whole(watts)})"),
        *_per_item(window, watts),
    )
    return (RuleGroup("kernelcast-gpu-hours", rules), RuleGroup("kernelcast-flops", _flops(window)))


def _flops(window: str) -> tuple[RecordingRule, ...]:
    """Peaks of GPUs, and the share of the peak of its GPUs that a program uses at least, in each precision."""
    peaks = (
        RecordingRule(
            PEAK,
            " or ".join(
                f'{peak.of(precision):g} * group by (Hostname, UUID) ({promql.name(row)}{{modelName=~"{peak.models}"}})'
                for peak in PEAKS
                for row in promql.GPU_ROWS
                if peak.of(precision)
            ),
            {"precision": precision},
        )
        for precision in PRECISIONS
    )
    flops = promql.name(kernel.FLOPS)
    done = f"sum by (program) (sum without (instance) (rate({flops}[{window}])))"
    gpus = f"group by (program, Hostname, UUID) ({flops})"
    each = (
        RecordingRule(
            UTILIZATION,
            f'{done} / sum by (program) ({gpus} * on (Hostname, UUID) group_left () {PEAK}{{precision="{precision}"}})',
            {"precision": precision},
        )
        for precision in PRECISIONS
    )
    return (*peaks, *each)


def _owners() -> str:
    """The owners of each allocated GPU, by the first series that names one; with the user if there is one of each."""
    rows = [promql.name(row) for row in (gpu.OWNER, *promql.GPU_ROWS)]
    held = f" or on ({_GPU}) ".join(f"({' or '.join(f'{row}{{{holds}}}' for holds in _HOLDS)})" for row in rows)
    owned = f"group by ({_GPU}, namespace, {TEAM}, hpc_job) ({held})"
    users = f'group by ({_GPU}, user) ({promql.name(kernel.PROBE_USER)}{{user!="", {_WITH_GPU}}})'
    several = f"(count by ({_GPU}) ({users}) > 1 or count by ({_GPU}) ({owned}) > 1)"
    only_user = f"({users} unless on ({_GPU}) {several})"
    with_user = f"{owned} * on ({_GPU}) group_left (user) {only_user}"
    reporting = f"group by ({_GPU}) ({promql.name(kernel.PROBE_RUNNING)}{{{_WITH_GPU}}})"
    without = f"({users} or on ({_GPU}) {reporting}) unless on ({_GPU}) {owned}"
    return f"{with_user} or {owned} unless on ({_GPU}) {only_user} or {without}"


def _times_its_slices() -> str:
    """The factor of a MIG instance; 1 for a GPU, and for an instance that is all of it."""
    memory = promql.name(device.FB_USED)
    smaller = " or ".join(
        f'{slices / whole:g} * group by ({_GPU}) ({memory}{{GPU_I_PROFILE=~"{slices}g[.].*", {model}}})'
        for whole, model, parts in _SLICES
        for slices in parts
    )
    return f"* on ({_GPU}) group_left () ({smaller} or {_each()})"


def _each() -> str:
    return f"group by ({_GPU}) ({OWNER})"


def _known(window: str, state_seconds: str) -> tuple[RecordingRule, ...]:
    """Parts of GPUs by the first source that knows, one rule for each part; a later source has no GPU of an earlier.

    Phases are timed when they end. In the midst of one that is longer than the window, and for a window after it, their
    rates do not add up to the time: then the present phase counts alone.
    """
    none_moves = f"unless on ({_GPU}) {promql.name(kernel.STANDING)} == 0"
    stands = f"(group by ({_GPU}) ({promql.name(kernel.STANDING)} > 0) {none_moves})"
    still = f"(group by ({_GPU}) ({standing.STILL}) {none_moves})"
    at_rest = f'(group by ({_GPU}) ({promql.name(kernel.STANDING)}{{state=~"person|ended"}} > 0) {none_moves})'
    phases = f"sum without (instance) (rate({promql.name(kernel.PHASE_SECONDS)}[{window}]))"
    ranks = f"count by ({_GPU}) (group by ({_GPU}, program, rank) ({promql.name(kernel.PHASE)}))"
    steps = f"group by ({_GPU}) ({promql.name(kernel.PHASE)})"
    states = f"group by ({_GPU}) ({state_seconds})"
    devices = f"count by ({_GPU}) (group by ({_GPU}, program, rank) ({state_seconds}))"
    used = f"max by ({_GPU}) (avg_over_time({promql.name(device.GPU_UTIL)}[{window}])) / 100"
    used = f"({used} or max by ({_GPU}) (avg_over_time({promql.name(profiling.GR_ENGINE_ACTIVE)}[{window}])))"
    backward = standing.by_job(_selected(phases, "phase", ("backward",)))
    shortest = f"min by (program, job_id) ({backward})"
    waited = f"sum by ({_GPU}) ({backward} - on (program, job_id) group_left () {shortest})"
    of_phases = {
        part: f"sum by ({_GPU}) ({_selected(phases, 'phase', names)})" for part, names in _by_part(OF_PHASE).items()
    }
    of_phases[PEERS] = waited
    of_phases[COMPUTING] = f"{of_phases[COMPUTING]} - on ({_GPU}) ({waited} or 0 * {of_phases[COMPUTING]})"
    of_states = {
        part: f"sum by ({_GPU}) ({_selected(state_seconds, 'state', names)})"
        for part, names in _by_part(OF_STATE).items()
    }
    now = {
        part: f"sum by ({_GPU}) ({promql.name(kernel.PHASE)}{_matching('phase', names)})"
        for part, names in _by_part(OF_PHASE).items()
    }
    in_phases = f"sum by ({_GPU}) ({promql.name(kernel.PHASE)})"
    steady = f"(sum by ({_GPU}) ({phases}) / on ({_GPU}) {ranks} > {1 - _STEADY:g} < {1 + _STEADY:g})"
    of_use = {COMPUTING: used, IDLE: f"1 - {used}"}
    rest = {STILL: still, PEERS: f"{stands} unless on ({_GPU}) {still} unless on ({_GPU}) {at_rest}"}
    rest[IDLE] = f"{at_rest} unless on ({_GPU}) {still}"

    def of_part(part: str) -> str:
        found = [rest[part]] if part in rest else []
        if part in of_phases:
            share = f"{of_phases[part]} / on ({_GPU}) {ranks}"
            if part in now:
                found.append(f"{now[part]} / on ({_GPU}) {in_phases} unless on ({_GPU}) ({stands} or {steady})")
            found.append(f"({share}) and on ({_GPU}) {steady} unless on ({_GPU}) {stands}")
        if part in of_states:
            share = f"{of_states[part]} / on ({_GPU}) {devices}"
            found.append(f"{share} unless on ({_GPU}) ({stands} or {steps})")
        if part in of_use:
            found.append(f"{of_use[part]} unless on ({_GPU}) ({stands} or {steps} or {states})")
        return " or ".join(f"({expr})" for expr in found)

    return tuple(
        RecordingRule(KNOWN, f"clamp_min({of_part(part)}, 0) and on ({_GPU}) {OWNER}", {"part": part})
        for part in PARTS
        if part != UNKNOWN
    )


def _by_part(parts: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {part: tuple(name for name, its in parts.items() if its == part) for part in dict.fromkeys(parts.values())}


def _selected(expr: str, label: str, values: tuple[str, ...]) -> str:
    """An expression's series with some values of a label; its selector has no matchers yet."""
    name = expr if ":" in expr else promql.name(kernel.PHASE_SECONDS)
    return expr.replace(name, f"{name}{_matching(label, values)}")


def _matching(label: str, values: tuple[str, ...]) -> str:
    return f'{{{label}=~"{"|".join(values)}"}}'


def _bounded(expr: str) -> str:
    """The largest owners with a series of their own, the others as one."""
    largest = f"topk({MAX_OWNERS}, sum by ({_OWNER}) ({SHARE}))"
    others = f"sum by (part) ({expr} unless on ({_OWNER}) {largest})"
    return f'{expr} and on ({_OWNER}) {largest} or label_replace({others}, "namespace", "other", "", "")'


def _whole(watts: str) -> str:
    return f"max by (Hostname, UUID) ({watts})"


def _prices(profile: Profile) -> str:
    """The price of a GPU-hour: the site's by model, else OpenCost's of the node."""
    models = f"group by (Hostname, UUID, modelName) ({promql.name(device.FB_USED)} or {promql.name(device.GPU_UTIL)})"
    named = " or ".join(
        f'{price:g} * group by (Hostname, UUID) ({promql.name(row)}{{modelName="{model}"}})'
        for model, price in sorted(profile.prices.items())
        for row in promql.GPU_ROWS
    )
    node = f'max by (Hostname) (label_replace({OPENCOST_PRICE}, "Hostname", "$1", "node", "(.+)"))'
    opencost = f"group by (Hostname, UUID) ({models}) * on (Hostname) group_left () {node}"
    return f"{named} or {opencost}" if named else opencost


def _per_item(window: str, watts: str) -> tuple[RecordingRule, ...]:
    """GPU time and energy of an item, for each model of GPU and precision that a program runs in, over all ranks.

    What others of a shared GPU take is in its energy. A program whose precision is not known has no such label.
    """
    process = "UUID, program, rank"
    items = f"sum by (Hostname, {process}) (sum without (instance) (rate({promql.name(kernel.ITEMS)}[{window}])))"
    known = f'group by ({process}, precision) ({promql.name(kernel.JOB_INFO)}{{precision!=""}})'
    known = f"topk by ({process}) (1, {known})"
    named = f"{items} * on ({process}) group_left (precision) {known} or {items} unless on ({process}) {known}"
    rows = " or ".join(promql.name(row) for row in promql.GPU_ROWS)
    model = f"group by (Hostname, UUID, modelName) ({rows})"
    done = f"sum by (program, modelName, precision) ({ITEMS}) > 0"
    gpus = f"sum by (program, modelName, precision) (group by (Hostname, UUID, program, modelName, precision) ({ITEMS})"
    of_gpu = "Hostname, UUID, program, precision"
    return (
        RecordingRule(ITEMS, f"sum by ({of_gpu}) ({named}) * on (Hostname, UUID) group_left (modelName) {model}"),
        RecordingRule(GPU_SECONDS_PER_ITEM, f"{gpus}) / ({done})"),
        RecordingRule(JOULES_PER_ITEM, f"{gpus} * on (Hostname, UUID) group_left () {_whole(watts)}) / ({done})"),
    )
