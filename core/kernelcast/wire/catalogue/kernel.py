"""Metrics of programs on their GPUs. The exporter writes them (`totals/emit.py`) from the totals that probes report.

A variant is one use of a kernel: launch configuration, region and type of data (`wire.kernels.variant`).
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import kafka_metric, translate
from kernelcast.wire.identity import VERSION_LABELS

PROGRAM_LABELS: Final = ("Hostname", "UUID", "gpu", "GPU_I_ID", "program", "rank", "source")
KERNEL_LABELS: Final = (*PROGRAM_LABELS, "kernel", "kernel_class")
_PROBE: Final = "probe, replay or simulation"


def _wire_only(otlp_name: str, help: str, unit: str) -> Metric:  # noqa: A002  the field's name
    kind = Kind.COUNTER
    labels = (*KERNEL_LABELS, "variant")
    return Metric(translate(otlp_name, unit, kind), kind, help, otlp_name, unit, labels, _PROBE, exposed=False)


DURATION: Final = kafka_metric(
    "cuda.kernel.duration",
    Kind.HISTOGRAM,
    "GPU time of timed kernel launches; buckets for the hottest kernels, sum and count for each.",
    unit="s",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
LAUNCHES: Final = kafka_metric(
    "cuda.kernel.launches",
    Kind.COUNTER,
    "Kernel launches, timed or not.",
    unit="{launch}",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
TIMED_LAUNCHES: Final = kafka_metric(
    "cuda.kernel.timed_launches",
    Kind.COUNTER,
    "Kernel launches whose duration was measured.",
    unit="{launch}",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
KERNEL_INFO: Final = kafka_metric(
    "cuda.kernel.info",
    Kind.INFO,
    "Launch configuration last seen: grid, block, registers per thread, shared and local memory in bytes.",
    unit="",
    labels=(*KERNEL_LABELS, "grid", "block", "registers", "shared_memory", "local_memory"),
    source=_PROBE,
)
QUEUE_DELAY: Final = kafka_metric(
    "cuda.kernel.queue_delay",
    Kind.COUNTER,
    "Time between the call that launched a kernel and its start on the GPU, of the launches where it is known.",
    unit="s",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
QUEUE_DELAYS: Final = kafka_metric(
    "cuda.kernel.queue_delays",
    Kind.COUNTER,
    "Kernel launches whose queue delay is known.",
    unit="{launch}",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
GRAPH_LAUNCHES: Final = kafka_metric(
    "cuda.kernel.graph_launches",
    Kind.COUNTER,
    "Kernel launches that came from a CUDA graph; a part of all launches.",
    unit="{launch}",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
OCCUPANCY: Final = kafka_metric(
    "cuda.kernel.theoretical_occupancy",
    Kind.GAUGE,
    "Resident warps of a multiprocessor with the last launch configuration, divided by their maximum.",
    unit="1",
    labels=KERNEL_LABELS,
    source=_PROBE,
)
VARIANT_LAUNCHES: Final = _wire_only("kernelcast.kernel.variant.launches", "Timed launches of one variant.", "{launch}")
VARIANT_SECONDS: Final = _wire_only("kernelcast.kernel.variant.duration", "GPU time of one variant.", "s")
VARIANT_SQUARES: Final = _wire_only(
    "kernelcast.kernel.variant.duration_squares", "Sum of squared durations of one variant, in square seconds.", ""
)
MEMCPY_BYTES: Final = kafka_metric(
    "cuda.memcpy.bytes",
    Kind.COUNTER,
    "Bytes copied, by direction.",
    unit="By",
    labels=(*PROGRAM_LABELS, "kind", "pinned"),
    source=_PROBE,
)
MEMCPY_OPERATIONS: Final = kafka_metric(
    "cuda.memcpy.operations",
    Kind.COUNTER,
    "Copies, by direction.",
    unit="{operation}",
    labels=(*PROGRAM_LABELS, "kind", "pinned"),
    source=_PROBE,
)
MEMCPY_SECONDS: Final = kafka_metric(
    "cuda.memcpy.seconds",
    Kind.COUNTER,
    "GPU time of copies, by direction.",
    unit="s",
    labels=(*PROGRAM_LABELS, "kind", "pinned"),
    source=_PROBE,
)
SYNC_WAIT: Final = kafka_metric(
    "cuda.sync.wait",
    Kind.COUNTER,
    "Time the program's threads waited for the GPU, by the kind of synchronisation.",
    unit="s",
    labels=(*PROGRAM_LABELS, "type"),
    source=_PROBE,
)
SYNC_CALLS: Final = kafka_metric(
    "cuda.sync.calls",
    Kind.COUNTER,
    "Waits of the program's threads for the GPU, by the kind of synchronisation.",
    unit="{call}",
    labels=(*PROGRAM_LABELS, "type"),
    source=_PROBE,
)
DEVICE_TIME: Final = kafka_metric(
    "cuda.device.time",
    Kind.COUNTER,
    "Wall time of the GPU by activity: compute, collective, copy, overlap of compute with either, idle between two "
    "activities, unknown without a record: idle, or a kernel that has not ended.",
    unit="s",
    labels=(*PROGRAM_LABELS, "state"),
    source=_PROBE,
)
LAUNCH_GAP: Final = kafka_metric(
    "cuda.launch.gap",
    Kind.HISTOGRAM,
    "Idle time of the GPU between two activities of the program.",
    unit="s",
    labels=PROGRAM_LABELS,
    source=_PROBE,
)
MEMORY_POOL: Final = kafka_metric(
    "cupy.memory_pool",
    Kind.GAUGE,
    "CuPy's memory pools, of GPU and of pinned host memory: used, free, total and limit; summed over live processes.",
    unit="By",
    labels=(*PROGRAM_LABELS, "pool", "state"),
    source="probe",
)
REGION_LAUNCHES: Final = kafka_metric(
    "cuda.region.launches",
    Kind.COUNTER,
    "Kernel launches within a region that the program named, or an NVTX range.",
    unit="{launch}",
    labels=(*PROGRAM_LABELS, "region"),
    source="probe or replay",
)
REGION_GPU: Final = kafka_metric(
    "cuda.region.gpu",
    Kind.COUNTER,
    "GPU time of the kernels launched within a region.",
    unit="s",
    labels=(*PROGRAM_LABELS, "region"),
    source="probe or replay",
)
REGION_WALL: Final = kafka_metric(
    "cuda.region.wall",
    Kind.COUNTER,
    "Wall time that the program's threads spent within a region.",
    unit="s",
    labels=(*PROGRAM_LABELS, "region"),
    source="probe or replay",
)
STEPS: Final = kafka_metric(
    "kernelcast.program.steps",
    Kind.COUNTER,
    "Steps that the program has ended: its optimizer's, or those of kernelcast.probe.step() once it calls that.",
    unit="{step}",
    labels=PROGRAM_LABELS,
    source="probe",
)
ITEMS: Final = kafka_metric(
    "kernelcast.program.items",
    Kind.COUNTER,
    "Units of work, such as samples or tokens: those of its DataLoader's batches, or of step(items=).",
    unit="{item}",
    labels=PROGRAM_LABELS,
    source="probe",
)
FLOPS: Final = kafka_metric(
    "kernelcast.program.flops",
    Kind.COUNTER,
    "Floating-point operations that the program's steps need, as it gives them to kernelcast.probe.step(flops=).",
    unit="{operation}",
    labels=PROGRAM_LABELS,
    source="probe",
)
STEP_SECONDS: Final = kafka_metric(
    "kernelcast.program.step",
    Kind.COUNTER,
    "Wall time between the ends of consecutive steps.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
STEP_DURATION: Final = kafka_metric(
    "kernelcast.program.step.duration",
    Kind.HISTOGRAM,
    "Wall time between the ends of consecutive steps, by its length.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
SKIPPED_STEPS: Final = kafka_metric(
    "kernelcast.program.skipped_steps",
    Kind.COUNTER,
    "Steps whose update the gradient scaler skipped, because a gradient was infinite or no number; part of all steps.",
    unit="{step}",
    labels=PROGRAM_LABELS,
    source="probe",
)
PHASE_SECONDS: Final = kafka_metric(
    "kernelcast.program.phase",
    Kind.COUNTER,
    "Wall time of the thread that trains, by phase, since the end of its first step: the phases of a step add up to "
    "it. A program that fetches its batches in a way that is not seen has no data.",
    unit="s",
    labels=(*PROGRAM_LABELS, "phase"),
    source="probe",
)
GPU_PHASE_SECONDS: Final = kafka_metric(
    "kernelcast.program.gpu_phase",
    Kind.COUNTER,
    "Time between the marks of the phases as PyTorch's current stream comes to them, the GPU's waits for the program "
    "included, so that data is the time in which the GPU lacks batches; in the steps that "
    "kernelcast_program_gpu_phase_steps_total counts.",
    unit="s",
    labels=(*PROGRAM_LABELS, "phase"),
    source="probe, CUDA events",
)
GPU_PHASE_STEPS: Final = kafka_metric(
    "kernelcast.program.gpu_phase_steps",
    Kind.COUNTER,
    "Steps whose phases were timed on the GPU, one a report of the probe; the time of a step is the quotient.",
    unit="{step}",
    labels=PROGRAM_LABELS,
    source="probe, CUDA events",
)
PHASE: Final = kafka_metric(
    "kernelcast.program_phase",
    Kind.GAUGE,
    "1 for each phase that a live process of the program is in now.",
    unit="",
    labels=(*PROGRAM_LABELS, "phase"),
    source="probe",
)
PROGRESS: Final = kafka_metric(
    "kernelcast.program.last_progress_timestamp",
    Kind.GAUGE,
    "Time of the last step or change of phase; of several processes the oldest.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
STANDING: Final = kafka_metric(
    "kernelcast.program.standing_still",
    Kind.GAUGE,
    "Time since the last progress of a program that has made none for longer than its limit: a program that stands "
    "still, with its state: the phase, or stopped, disk (uninterruptible), silent (its probe gets no time), person (a "
    "prompt or debugger waits), ended (its loop has). 0 without a state while it moves. Only programs that make steps.",
    unit="s",
    labels=(*PROGRAM_LABELS, "job_id", "state", "stacks"),
    source="exporter, from the probe's marks and /proc",
)
PROCESSES: Final = kafka_metric(
    "kernelcast.program.processes",
    Kind.GAUGE,
    "Live processes of the program whose sum the other series of these labels are: several, where two runs have one "
    "name.",
    unit="{process}",
    labels=PROGRAM_LABELS,
    source="exporter",
)
LOST_PROCESSES: Final = kafka_metric(
    "kernelcast.program.lost_processes",
    Kind.COUNTER,
    "Processes of the program that have ended without a word: killed, or crashed.",
    unit="{process}",
    labels=PROGRAM_LABELS,
    source="exporter",
)
COMPILATIONS: Final = kafka_metric(
    "kernelcast.program.compilations",
    Kind.COUNTER,
    "Compilations by the program's framework: torch.compile, or JAX.",
    unit="{compilation}",
    labels=PROGRAM_LABELS,
    source="probe",
)
COMPILATION_SECONDS: Final = kafka_metric(
    "kernelcast.program.compilation",
    Kind.COUNTER,
    "Wall time of compilations by the program's framework.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
ALLOCATOR: Final = kafka_metric(
    "kernelcast.program.allocator",
    Kind.GAUGE,
    "Memory of the GPU in PyTorch's own allocator: allocated, reserved, inactive_split, and the peak of allocated; "
    "summed over live processes.",
    unit="By",
    labels=(*PROGRAM_LABELS, "state"),
    source="probe",
)
ALLOCATOR_RETRIES: Final = kafka_metric(
    "kernelcast.program.allocator_retries",
    Kind.COUNTER,
    "Allocations that PyTorch's allocator repeated after it had given its unused memory back.",
    unit="{allocation}",
    labels=PROGRAM_LABELS,
    source="probe",
)
OUT_OF_MEMORY: Final = kafka_metric(
    "kernelcast.program.out_of_memory",
    Kind.COUNTER,
    "Allocations of PyTorch's allocator that failed.",
    unit="{allocation}",
    labels=PROGRAM_LABELS,
    source="probe",
)
JOB_INFO: Final = kafka_metric(
    "kernelcast.program.job_info",
    Kind.INFO,
    "A process's place in its job, as far as it is known: the job's identity from torchrun, Slurm, the master's "
    "address or the pod; local rank, world size, the backend of its collectives, its precision.",
    unit="",
    labels=(*PROGRAM_LABELS, "job", "local_rank", "world_size", "backend", "precision"),
    source="probe",
)
TRIAL_LOST: Final = kafka_metric(
    "kernelcast.trial.lost_time",
    Kind.COUNTER,
    "Time that trials of hints and spaces have cost beyond the kept values.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
TRIAL_ALLOWED: Final = kafka_metric(
    "kernelcast.trial.allowed_time",
    Kind.COUNTER,
    "Time that trials may have cost so far: a share of the running time, and 0.1 s and 20 launches of each hint and of "
    "each shape of a space; the difference to the time lost is left.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_INFO: Final = kafka_metric(
    "kernelcast.probe.info",
    Kind.INFO,
    "A process that reports to this exporter: its measurement method and its probe's version.",
    unit="",
    labels=(*PROGRAM_LABELS, "method", "version"),
    source="probe",
)
PROGRAM_INFO: Final = kafka_metric(
    "kernelcast.program.info",
    Kind.INFO,
    "Versions that a process of the program runs on, as far as they are known: its code, its container's image, the "
    "CUDA runtime, the NVIDIA driver.",
    unit="",
    labels=(*PROGRAM_LABELS, *VERSION_LABELS),
    source="probe",
)
PROBE_USER: Final = kafka_metric(
    "kernelcast.probe.user",
    Kind.INFO,
    "Pod, job and user of a program that reports to this exporter, as far as they are known; to join with the "
    "program's series. For several processes of one program: the values that they have in common.",
    unit="",
    labels=(*PROGRAM_LABELS, "pod", "namespace", "container", "hpc_job", "user"),
    source="exporter, the socket's peer credentials and its cgroup",
)
PROBE_COVERAGE: Final = kafka_metric(
    "kernelcast.probe.coverage",
    Kind.GAUGE,
    "Share of launches whose duration was measured. Launches that the method cannot see count as not measured, and so "
    "does the time in which nothing was.",
    unit="1",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_RUNNING: Final = kafka_metric(
    "kernelcast.probe.running",
    Kind.COUNTER,
    "Wall time of the program's processes since each began to use the GPU.",
    unit="s",
    labels=PROGRAM_LABELS,
    source=_PROBE,
)
PROBE_MEASURED: Final = kafka_metric(
    "kernelcast.probe.measured",
    Kind.COUNTER,
    "The part of kernelcast_probe_running_seconds_total in which kernels and copies were measured. Their totals "
    "hold what was seen in it: a rate per second of wall time divides by the share of the two.",
    unit="s",
    labels=PROGRAM_LABELS,
    source=_PROBE,
)
PROBE_WAITS_MEASURED: Final = kafka_metric(
    "kernelcast.probe.waits_measured",
    Kind.COUNTER,
    "The part of kernelcast_probe_running_seconds_total in which waits for the GPU were measured, which are left out "
    "first where measuring costs too much.",
    unit="s",
    labels=PROGRAM_LABELS,
    source=_PROBE,
)
PROBE_COST: Final = kafka_metric(
    "kernelcast.probe.cost",
    Kind.GAUGE,
    "Step time with measuring over step time without, from steps by turns: the median, and the bounds of its 99.9 % "
    "interval. Absent where it is unknown. Of several processes the highest.",
    unit="1",
    labels=(*PROGRAM_LABELS, "bound"),
    source="probe",
)
PROBE_OVERHEAD: Final = kafka_metric(
    "kernelcast.probe.overhead",
    Kind.COUNTER,
    "Time that the probe took: of the program's threads, where its marks of steps and phases are an estimate, and the "
    "processor time of its own thread.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_DECODING: Final = kafka_metric(
    "kernelcast.probe.decoding",
    Kind.COUNTER,
    "Processor time in which the probe's decoder read activity records, on a thread that never holds the program.",
    unit="s",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_DROPPED: Final = kafka_metric(
    "kernelcast.probe.dropped_frames",
    Kind.COUNTER,
    "Frames that the probe could not send; totals are cumulative, so the next frame that arrives includes them.",
    unit="{frame}",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_RECORDS: Final = kafka_metric(
    "kernelcast.probe.dropped_records",
    Kind.COUNTER,
    "Activity records that were lost before the probe could add them up.",
    unit="{record}",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_UNTIMED: Final = kafka_metric(
    "kernelcast.probe.untimed_records",
    Kind.COUNTER,
    "Activity records that CUPTI gave without a usable time; their launches, copies and waits are counted, not timed.",
    unit="{record}",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_OUTCOMES: Final = kafka_metric(
    "kernelcast.probe.dropped_outcomes",
    Kind.COUNTER,
    "Outcomes of hints that the probe dropped because its queue was full; the exporter never had them.",
    unit="{outcome}",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_MALFORMED: Final = kafka_metric(
    "kernelcast.probe.malformed_hints",
    Kind.COUNTER,
    "Hints and answers from the exporter that the probe could not read, such as those of a later version.",
    unit="{hint}",
    labels=PROGRAM_LABELS,
    source="probe",
)
PROBE_UNSEEN: Final = kafka_metric(
    "kernelcast.probe.unseen_launches",
    Kind.COUNTER,
    "Launches that the method counts but cannot time or name, by reason; they are in no kernel's series.",
    unit="{launch}",
    labels=(*PROGRAM_LABELS, "reason"),
    source="probe",
)
PROBE_STATE: Final = kafka_metric(
    "kernelcast.probe.state",
    Kind.GAUGE,
    "1 for each state that a live process of the program is in: active, backed_off, off, yielded or dormant, and why.",
    unit="",
    labels=(*PROGRAM_LABELS, "state", "reason"),
    source="probe",
)
PROBE_SAMPLE: Final = kafka_metric(
    "kernelcast.probe.sample",
    Kind.GAUGE,
    "Share of launches that the probe tries to time; of several processes the lowest.",
    unit="1",
    labels=PROGRAM_LABELS,
    source="probe",
)
TUNABLE_INFO: Final = kafka_metric(
    "kernelcast.tunable.info",
    Kind.INFO,
    "A tunable that a running program registered: its present value and its allowed values.",
    unit="",
    labels=(
        *PROGRAM_LABELS,
        "tunable",
        "value",
        "allowed",
        "kind",
        "scope",
        "granularity",
        "kernel",
        "device_model",
        "code_version",
        "changes_results",
    ),
    source="probe",
)
HINT_OUTCOMES: Final = kafka_metric(
    "kernelcast.hint.outcomes",
    Kind.COUNTER,
    "Hints that reached a program, and its own trials, by outcome: a state, or a decision inconclusive or failed.",
    unit="{hint}",
    labels=(*PROGRAM_LABELS, "tunable", "state"),
    source="exporter, from the program's own outcome",
)
HINT_MEASURED: Final = kafka_metric(
    "kernelcast.hint.measured",
    Kind.GAUGE,
    "Kernel time after the hint over kernel time before, as the program measured it; below 1 is faster.",
    unit="1",
    labels=(*PROGRAM_LABELS, "tunable"),
    source="exporter, from the program's own outcome",
)

ROWS: Final = (
    DURATION,
    LAUNCHES,
    TIMED_LAUNCHES,
    QUEUE_DELAY,
    QUEUE_DELAYS,
    GRAPH_LAUNCHES,
    OCCUPANCY,
    KERNEL_INFO,
    VARIANT_LAUNCHES,
    VARIANT_SECONDS,
    VARIANT_SQUARES,
    MEMCPY_BYTES,
    MEMCPY_OPERATIONS,
    MEMCPY_SECONDS,
    SYNC_WAIT,
    SYNC_CALLS,
    DEVICE_TIME,
    LAUNCH_GAP,
    MEMORY_POOL,
    REGION_LAUNCHES,
    REGION_GPU,
    REGION_WALL,
    STEPS,
    ITEMS,
    FLOPS,
    STEP_SECONDS,
    STEP_DURATION,
    SKIPPED_STEPS,
    PHASE_SECONDS,
    GPU_PHASE_SECONDS,
    GPU_PHASE_STEPS,
    PHASE,
    PROGRESS,
    STANDING,
    PROCESSES,
    LOST_PROCESSES,
    COMPILATIONS,
    COMPILATION_SECONDS,
    ALLOCATOR,
    ALLOCATOR_RETRIES,
    OUT_OF_MEMORY,
    JOB_INFO,
    TRIAL_LOST,
    TRIAL_ALLOWED,
    PROBE_INFO,
    PROGRAM_INFO,
    PROBE_USER,
    PROBE_COVERAGE,
    PROBE_RUNNING,
    PROBE_MEASURED,
    PROBE_WAITS_MEASURED,
    PROBE_COST,
    PROBE_OVERHEAD,
    PROBE_DECODING,
    PROBE_DROPPED,
    PROBE_RECORDS,
    PROBE_UNTIMED,
    PROBE_OUTCOMES,
    PROBE_MALFORMED,
    PROBE_UNSEEN,
    PROBE_STATE,
    PROBE_SAMPLE,
    TUNABLE_INFO,
    HINT_OUTCOMES,
    HINT_MEASURED,
)
