"""Alerts about jobs that stand still, ranks that have ended, and GPUs that are busy while nothing ends.

An exporter decides for each process whether it stands still. A job does where all of its ranks do: ranks that wait for
one in evaluation or checkpoint wait for a peer that is at work. The recordings join ranks of all nodes by the job.
"""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.rules.model import (
    HOUR,
    MINUTE,
    AlertRule,
    AlertSeverity,
    Profile,
    RecordingRule,
    RuleGroup,
    lately,
)
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

STILL: Final = "rank:kernelcast_program_standing_still_seconds:still"
HOLDER: Final = "rank:kernelcast_program_standing_still_seconds:holder"
ONE_PHASE: Final = "job:kernelcast_program_standing_still_seconds:onephase"
"""Jobs without a holder, recorded after it: an alert that compared both could see one before the other is written."""
BUSY_POWER: Final = "gpu:DCGM_FI_DEV_POWER_USAGE:busy"
USUAL_POWER: Final = "gpu:DCGM_FI_DEV_POWER_USAGE:usual"
JOB_OF: Final = "rank:kernelcast_program_standing_still_seconds:job"
"""1 for each rank that makes steps, with the job that it belongs to; none where two jobs of one name share its GPU."""

_JOB: Final = "program, job_id"
_RANK: Final = "program, job_id, Hostname, gpu, rank"
_OWN: Final = "Hostname, gpu, program, rank"
_APART: Final = "stopped|disk|silent|person"
"""States in which a rank waits for no peer."""
_AT_REST: Final = "person|ended"
"""States in which a program may wait for as long as it likes, unless a peer of its job waits for it."""
_BUSY_UTILIZATION: Final = 99
_IDLE_POWER_RATIO: Final = 0.6
"""Power over the GPU's own level while busy, its 90th percentile of six hours, below which it computes little."""
_SUBJECT: Final = ("program",)
"""All ranks of the program: what is wrong with one shows beside the others."""


def recordings() -> tuple[RuleGroup, ...]:
    """Ranks of jobs that stand still, those among them that hold up their job, and jobs in which none does."""
    standing = f"max without (instance) ({promql.name(kernel.STANDING)})"
    each = f"max by ({_RANK}) ({promql.name(kernel.STANDING)})"
    still = (
        f"({standing} > 0) and on ({_JOB}) (count by ({_JOB}) ({each} > 0) == count by ({_JOB}) ({each})) "
        f'and on ({_JOB}) ({promql.name(kernel.STANDING)}{{state!~"{_AT_REST}"}} > 0)'
    )
    apart = f'{STILL}{{state=~"{_APART}"}}'
    waiting = f'{STILL}{{state="backward"}}'
    ahead = f'({STILL}{{state!~"backward|{_APART}"}} and on ({_JOB}) {waiting} unless on ({_JOB}) {apart})'
    of_state = f"count by ({_JOB}, state) ({STILL})"
    most = f"max by ({_JOB}) ({of_state})"
    rarer = (
        f"({STILL} and on ({_JOB}, state) ({of_state} < on ({_JOB}) group_left () {most}) "
        f"unless on ({_JOB}) ({apart} or {waiting}))"
    )
    alone = f"({STILL} and on ({_JOB}) (count by ({_JOB}) ({STILL}) == 1))"
    differing = f"({apart} or {ahead} or {rarer})"
    some = f"({differing} and on ({_JOB}) (count by ({_JOB}) ({differing}) < count by ({_JOB}) ({STILL})))"
    busy = f"max without (instance) ({promql.name(device.POWER_USAGE)}) and max without (instance) ("
    busy += f"{promql.name(device.GPU_UTIL)}) >= {_BUSY_UTILIZATION}"
    jobs = f"group by ({_RANK}) ({promql.name(kernel.STANDING)})"
    rules = (
        RecordingRule(JOB_OF, f"{jobs} and on ({_OWN}) (count by ({_OWN}) ({jobs}) == 1)"),
        RecordingRule(STILL, still),
        RecordingRule(HOLDER, f"{some} or {alone}"),
        RecordingRule(ONE_PHASE, f"max by ({_JOB}, state) ({STILL} unless on ({_JOB}) {HOLDER})"),
        RecordingRule(BUSY_POWER, busy),
    )
    return (RuleGroup("kernelcast-standing", rules),)


def usual_power(profile: Profile) -> RecordingRule:
    """The power of a GPU while it is busy."""
    return RecordingRule(USUAL_POWER, f"quantile_over_time(0.9, {BUSY_POWER}[{profile.window(6 * HOUR)}])")


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """A job that stands still, by a rank that differs or in one phase; ranks that ended; a stuck GPU."""
    return (_holder(profile), _one_phase(profile), _ended(profile), _nothing_ends(profile))


def by_job(ranks: str) -> str:
    """Series of ranks, with `job_id` where their job is known: two jobs of one name are not compared."""
    return f"({ranks} * on ({_OWN}) group_left (job_id) {JOB_OF} or ({ranks} unless on ({_OWN}) {JOB_OF}))"


_MEANINGS: Final = {
    "stopped": "it is stopped",
    "disk": "it waits for a disk or a file system",
    "silent": "native code holds the interpreter's lock",
    "person": "it waits for a person",
    "data": "it waits for data",
    "checkpoint": "it writes a checkpoint",
    "ended": "its loop has ended",
}
"""What a state means of the rank that holds up its job."""
_FIRST: Final = {
    "stopped": "Find who stopped it: SIGSTOP, a debugger, or a frozen container; `kill -CONT PID`.",
    "disk": "Look at `dmesg` and the node's mounts.",
    "silent": "See in its stacks which native code it is in: `py-spy dump --native --pid PID`.",
    "person": "Find the breakpoint or the prompt that waits for input.",
    "data": "See what its loader's workers wait for: `py-spy dump` of each child; then look at their storage.",
    "checkpoint": "Look at the file system that it writes to.",
    "ended": "Compare its number of batches with its peers': it had fewer.",
}
"""And what to do first."""
_STEPS: Final = (
    "`py-spy dump --pid PID` on the node shows where it is now; the file of stacks, where it stopped.",
    *(f"`{state}`: {first}" for state, first in _FIRST.items()),
    "End the job and start it from its last checkpoint, without the node if the cause is there.",
)


def _by_state(texts: dict[str, str], otherwise: str) -> str:
    """The text of the alert's state, or that of all others."""
    chain = [
        f'{{{{ {"else if" if number else "if"} eq $labels.state "{state}" }}}}{text}'
        for number, (state, text) in enumerate(texts.items())
    ]
    return f"{''.join(chain)}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _elsewhere(profile: Profile) -> str:
    """Jobs with a rank on a node that is away: the alert about the node says why they stand still."""
    away = 'ALERTS{alertname="KernelcastExporterStale"}'
    return f"unless on ({_JOB}) (present_over_time({JOB_OF}[{profile.window(HOUR)}]) and on (Hostname) {away})"


def _holder(profile: Profile) -> AlertRule:
    who = "{{ with $labels.rank }}Rank {{ . }} of {{ end }}{{ $labels.program }}"
    return AlertRule(
        name="KernelcastJobStandsStill",
        expr=f"max without (source) ({HOLDER}) {_elsewhere(profile)}",
        hold_seconds=0,
        severity=AlertSeverity.CRITICAL,
        summary=f"{who} on GPU {{{{ $labels.gpu }}}} of {{{{ $labels.Hostname }}}} holds up its job for "
        f"{{{{ $value | humanizeDuration }}}}: {_by_state(_MEANINGS, 'it is in {{ $labels.state }}')}",
        description="No rank of the job has made progress for longer than its limit. This one differs from the others, "
        "which wait for it: they are in backward, or in a phase that most of them share. "
        "{{ with $labels.stacks }}Stacks of its threads: {{ . }} on that node. {{ end }}"
        "Progress is any mark: a batch, backward, a step, the end of a measured kernel. The limit in training is 10 "
        "times the 99th percentile of its own gaps, 60 s at least; in evaluation, checkpoint, compilation and work "
        "that no mark shows 5 times the longest seen, 10 min at least.",
        action=_by_state(_FIRST, "Look at its node, and at its stacks."),
        first="Do what its state asks for, as below; the message has it.",
        subject=_SUBJECT,
        steps=_STEPS,
    )


def _one_phase(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastJobStandsStillInOnePhase",
        expr=f"{ONE_PHASE} {_elsewhere(profile)}",
        hold_seconds=0,
        severity=AlertSeverity.CRITICAL,
        summary="{{ $labels.program }} stands still for {{ $value | humanizeDuration }}: all ranks in "
        "{{ $labels.state }}: a collective that not all have entered, or the network",
        description="No rank of job {{ $labels.job_id }} has made progress for longer than its limit, and none differs "
        "from the others. Either the ranks have called different collectives, or in another order, or messages between "
        "them are lost. In data it is rather the storage that all of them read.",
        action="Compare the stacks of the ranks (files named in the exporters' logs): different places in the program "
        "are a mismatched collective; one place is the network.",
        subject=_SUBJECT,
        steps=(
            "PyTorch: start again with `TORCH_FR_BUFFER_SIZE=2000` and `TORCH_NCCL_DUMP_ON_TIMEOUT=1`.",
            "Its flight recorder's files then name the collective and the rank that is missing.",
            "Look at the ports of the job's nodes: errors, links that are down, KernelcastInfinibandPortDown.",
        ),
    )


def _ended(profile: Profile) -> AlertRule:
    lost = f"increase({promql.name(kernel.LOST_PROCESSES)}[{profile.window(5 * MINUTE)}])"
    return AlertRule(
        name="KernelcastRankEnded",
        expr=f"max without (instance) ({lost}) > 0",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary="{{ with $labels.rank }}Rank {{ . }} of {{ end }}{{ $labels.program }} on GPU {{ $labels.gpu }} of "
        "{{ $labels.Hostname }} was killed or has crashed",
        description="The process ended without telling its exporter. Its peers get errors from "
        "their collectives and end with it. That is no job that stands still.",
        action="Look for the cause on that node: out of memory (`dmesg`, the pod's last state), an XID, a preemption.",
        subject=_SUBJECT,
    )


def _nothing_ends(profile: Profile) -> AlertRule:
    window = profile.window(2 * MINUTE)
    util, power = promql.name(device.GPU_UTIL), promql.name(device.POWER_USAGE)
    usual = lately(USUAL_POWER, profile)
    gpu = "Hostname, UUID"
    timed, measured = (
        f"sum by ({gpu}) (increase({promql.name(row)}[{window}]))"
        for row in (kernel.TIMED_LAUNCHES, kernel.PROBE_MEASURED)
    )
    low = f"max without (instance) (max_over_time({power}[{window}])) < {_IDLE_POWER_RATIO} * {usual}"
    busy = f"max without (instance) (min_over_time({util}[{window}])) >= {_BUSY_UTILIZATION}"
    return AlertRule(
        name="KernelcastGpuBusyNothingEnds",
        expr=f"{low} and {busy} and on ({gpu}) ({timed} == 0) and on ({gpu}) ({measured} > 0)",
        hold_seconds=MINUTE,
        severity=AlertSeverity.WARNING,
        summary="GPU {{ $labels.gpu }} of {{ $labels.Hostname }} is busy, and nothing ends: {{ $value | humanize }} W",
        description=f"Its utilization is {_BUSY_UTILIZATION} % or more, its power below {_IDLE_POWER_RATIO:g} of its "
        "own level while busy, and none of the kernels that are measured on it has ended. A kernel spins, as one of a "
        "collective does that waits for a peer.",
        action="See which collective the program waits in (its stacks, PyTorch's flight recorder), and whether the "
        "other ranks have entered it.",
        subject=("Hostname", "gpu"),
    )
