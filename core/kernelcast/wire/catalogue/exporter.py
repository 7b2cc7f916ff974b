"""Metrics of the exporter itself, on its `/metrics`; they do not travel through Kafka.

The exporter makes counters and gauges from these rows (`exporter/instruments.py` and others). Panels and rules name
them.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

_PROBE_SERVER: Final = "exporter, probe socket"

PROBE_CONNECTIONS: Final = Metric(
    "kernelcast_exporter_probe_connections", Kind.GAUGE, "Programs connected to the probe socket.", source=_PROBE_SERVER
)
PROBE_PROCESSES: Final = Metric(
    "kernelcast_exporter_probe_processes",
    Kind.GAUGE,
    "Processes whose totals are not final yet, connected or not.",
    source=_PROBE_SERVER,
)
PROBE_FRAMES: Final = Metric(
    "kernelcast_exporter_probe_frames_total",
    Kind.COUNTER,
    "Frames from programs, by outcome: used or bad.",
    labels=("outcome",),
    source=_PROBE_SERVER,
)
PROBE_REFUSED: Final = Metric(
    "kernelcast_exporter_probe_refused_total",
    Kind.COUNTER,
    "Connections refused or closed, by reason: user, limit (all places are taken), displaced (gave its place to "
    "another user's program), hello (none came in time), frames (too many bad ones), device (unknown GPU), foreign "
    "(another process's nonce).",
    labels=("reason",),
    source=_PROBE_SERVER,
)
PROBE_LEFT: Final = Metric(
    "kernelcast_exporter_probe_left_reports_total",
    Kind.COUNTER,
    "Files with the totals of programs that had no exporter, by outcome: used, or the reason to refuse it: file (wrong "
    "name or type, several links, cannot be read), user, size (beyond 1 MiB), total (beyond 64 MiB together), device "
    "(unknown GPU), foreign (another process's nonce), frames (too many bad ones).",
    labels=("outcome",),
    source=_PROBE_SERVER,
)
PROBE_HINTS: Final = Metric(
    "kernelcast_exporter_probe_hints_total",
    Kind.COUNTER,
    "Hints for processes of this node: delivered, or dropped because too many waited.",
    labels=("outcome",),
    source=_PROBE_SERVER,
)
PROBE_OUTCOMES_DROPPED: Final = Metric(
    "kernelcast_exporter_probe_outcomes_dropped_total",
    Kind.COUNTER,
    "Outcomes of hints that were lost because the exporter did not read them in time.",
    source=_PROBE_SERVER,
)
PROBE_OUTCOMES_REFUSED: Final = Metric(
    "kernelcast_exporter_probe_outcomes_refused_total",
    Kind.COUNTER,
    "Outcomes of hints from a user none of whose processes got the hint.",
    source=_PROBE_SERVER,
)
PROBE_ERRORS: Final = Metric(
    "kernelcast_exporter_probe_errors_total",
    Kind.COUNTER,
    "Unexpected errors in the probe socket's thread; the thread continues.",
    source=_PROBE_SERVER,
)

PROBE_SERVER_ROWS: Final[tuple[Metric, ...]] = (
    PROBE_CONNECTIONS,
    PROBE_PROCESSES,
    PROBE_FRAMES,
    PROBE_REFUSED,
    PROBE_LEFT,
    PROBE_HINTS,
    PROBE_OUTCOMES_DROPPED,
    PROBE_OUTCOMES_REFUSED,
    PROBE_ERRORS,
)
_DAEMON: Final = "exporter"

TICKS: Final = Metric("kernelcast_exporter_ticks_total", Kind.COUNTER, "Intervals completed.", source=_DAEMON)
TICKS_MISSED: Final = Metric(
    "kernelcast_exporter_missed_ticks_total",
    Kind.COUNTER,
    "Intervals that were skipped because the previous one took too long.",
    source=_DAEMON,
)
TICK_LATENESS: Final = Metric(
    "kernelcast_exporter_tick_lateness_seconds",
    Kind.GAUGE,
    "Time between the deadline and the sampling of the last interval.",
    source=_DAEMON,
)
TICK_DURATION: Final = Metric(
    "kernelcast_exporter_tick_duration_seconds",
    Kind.GAUGE,
    "Duration of the last interval: reading, saving, encoding.",
    source=_DAEMON,
)
TICK_ERRORS: Final = Metric(
    "kernelcast_exporter_tick_errors_total",
    Kind.COUNTER,
    "Intervals in which a source failed; nothing was published, and the next interval includes the missing counts.",
    source=_DAEMON,
)
POINTS: Final = Metric(
    "kernelcast_exporter_points_total", Kind.COUNTER, "Data points handed to the Kafka client.", source=_DAEMON
)
PROGRAMS: Final = Metric(
    "kernelcast_exporter_programs", Kind.GAUGE, "Programs with series, each rank and GPU by itself.", source=_DAEMON
)
KERNELS: Final = Metric(
    "kernelcast_exporter_kernels",
    Kind.GAUGE,
    'Kernels of all programs: admitted to a series of their own, or summed in kernel="other".',
    labels=("state",),
    source=_DAEMON,
)
TOTALS_IGNORED: Final = Metric(
    "kernelcast_exporter_ignored_totals_total",
    Kind.COUNTER,
    "Reported totals that were not used: fallen (lower than the same process's last), refused (beyond a limit), "
    "late (of a process that ended long ago).",
    labels=("reason",),
    source=_DAEMON,
)
PROGRAMS_RETIRED: Final = Metric(
    "kernelcast_exporter_retired_programs_total",
    Kind.COUNTER,
    "Programs whose series are no longer written because they ended a while ago.",
    source=_DAEMON,
)
HINTS: Final = Metric(
    "kernelcast_exporter_hints_total",
    Kind.COUNTER,
    "Hints read from Kafka, by outcome: delivered (to a process here), elsewhere (no process here wants it), "
    "expired, superseded, withdrawn or invalid.",
    labels=("outcome",),
    source=_DAEMON,
)
OUTCOMES: Final = Metric(
    "kernelcast_exporter_outcomes_total",
    Kind.COUNTER,
    "Outcomes of hints from programs: published, unmatched (published too, but the program has no series) or "
    "dropped (too long for an event).",
    labels=("outcome",),
    source=_DAEMON,
)
STATE_SAVES: Final = Metric(
    "kernelcast_exporter_state_saves_total", Kind.COUNTER, "Snapshots of the totals written to disk.", source=_DAEMON
)
STATE_ERRORS: Final = Metric(
    "kernelcast_exporter_state_errors_total",
    Kind.COUNTER,
    "Snapshots that could not be saved, or found at the start and not usable (load); last reports of programs that "
    "could not be kept until the next snapshot, and outcomes of ended programs until Kafka has them (final).",
    labels=("operation",),
    source=_DAEMON,
)
NVML_ERRORS: Final = Metric(
    "kernelcast_exporter_nvml_errors_total",
    Kind.COUNTER,
    "NVML calls that failed for another reason than that the GPU does not support them.",
    labels=("call",),
    source=_DAEMON,
)
_NVML: Final = "exporter, NVML's process"

NVML_IMPLAUSIBLE: Final = Metric(
    "kernelcast_exporter_nvml_implausible_readings_total",
    Kind.COUNTER,
    "Readings of a GPU that were left out: an energy lower than the last one, or beyond what twice its power limit "
    "allows since then; a power, temperature or clock that no GPU has.",
    source=_NVML,
)

NVML_STARTS: Final = Metric(
    "kernelcast_exporter_nvml_starts_total",
    Kind.COUNTER,
    "Processes started to ask NVML; one is replaced when it hangs, crashes, or has lost its driver.",
    source=_NVML,
)
NVML_CRASHES: Final = Metric(
    "kernelcast_exporter_nvml_crashes_total", Kind.COUNTER, "Of those, how many ended by themselves.", source=_NVML
)
NVML_HANGS: Final = Metric(
    "kernelcast_exporter_nvml_hangs_total",
    Kind.COUNTER,
    "Of those, how many hung for exporter.nvml_timeout_seconds and were killed.",
    source=_NVML,
)
NVML_HUNG: Final = Metric(
    "kernelcast_exporter_nvml_hung",
    Kind.GAUGE,
    "The NVML call that hung last, always 1; there until NVML answers again.",
    labels=("call",),
    source=_NVML,
)
NVML_UNUSABLE: Final = Metric(
    "kernelcast_exporter_nvml_unusable",
    Kind.GAUGE,
    "1 while NVML cannot be used although the node has an NVIDIA GPU, as with a broken driver; else 0.",
    source=_NVML,
)

DEVICE_METRICS_OFF: Final = Metric(
    "kernelcast_exporter_device_metrics_off",
    Kind.GAUGE,
    "Always 1; present while device metrics are not written, by reason: dcgm_exporter (one runs on this node, and "
    "every sum would be doubled) or setting (exporter.device_metrics).",
    labels=("reason",),
    source=_DAEMON,
)
NVML_ROWS: Final[tuple[Metric, ...]] = (
    DEVICE_METRICS_OFF,
    NVML_IMPLAUSIBLE,
    NVML_STARTS,
    NVML_CRASHES,
    NVML_HANGS,
    NVML_HUNG,
    NVML_UNUSABLE,
)
_SPOOL: Final = "exporter, spool"

SPOOL_BYTES: Final = Metric(
    "kernelcast_exporter_spool_bytes", Kind.GAUGE, "Size on disk of messages for Kafka.", source=_SPOOL
)
SPOOL_MAX_BYTES: Final = Metric(
    "kernelcast_exporter_spool_max_bytes",
    Kind.GAUGE,
    "Size on disk beyond which the oldest messages are lost: exporter.spool.max_bytes.",
    source=_SPOOL,
)
SPOOL_MESSAGES: Final = Metric(
    "kernelcast_exporter_spool_messages",
    Kind.GAUGE,
    "Messages on disk that Kafka has not confirmed.",
    source=_SPOOL,
)
SPOOL_WRITTEN: Final = Metric(
    "kernelcast_exporter_spool_written_total",
    Kind.COUNTER,
    "Messages written to disk because Kafka did not confirm them in time.",
    source=_SPOOL,
)
SPOOL_REPLAYED: Final = Metric(
    "kernelcast_exporter_spool_replayed_total",
    Kind.COUNTER,
    "Messages from disk that Kafka has confirmed since.",
    source=_SPOOL,
)
SPOOL_DROPPED: Final = Metric(
    "kernelcast_exporter_spool_dropped_total",
    Kind.COUNTER,
    "Messages lost, by reason: bound (the oldest, over exporter.spool.max_bytes), age (over max_age_seconds), disk (it "
    "is full or fails), torn (cut short by a crash) or refused (Kafka will never take them).",
    labels=("reason",),
    source=_SPOOL,
)

SPOOL_ROWS: Final[tuple[Metric, ...]] = (
    *(SPOOL_BYTES, SPOOL_MAX_BYTES, SPOOL_MESSAGES),
    *(SPOOL_WRITTEN, SPOOL_REPLAYED, SPOOL_DROPPED),
)

ATTRIBUTION_ERRORS: Final = Metric(
    "kernelcast_exporter_attribution_errors_total",
    Kind.COUNTER,
    "Failed attempts to read the users of the GPUs, by source: kubelet, pod_names (its log directories), "
    "jobs (the mapping directory, or a file in it), users.",
    labels=("source",),
    source=_DAEMON,
)
TPU_ERRORS: Final = Metric(
    "kernelcast_exporter_tpu_errors_total",
    Kind.COUNTER,
    "Failed readings of a TPU's runtime: no answer in time (timeout) or a wrong answer (error); an absent runtime is "
    "no error.",
    labels=("reason",),
    source=_DAEMON,
)
NCCL_INSPECTOR_ERRORS: Final = Metric(
    "kernelcast_exporter_nccl_inspector_errors_total",
    Kind.COUNTER,
    "Failed readings of the folder of NCCL Inspector, and lines of its files that were left out.",
    source=_DAEMON,
)
SCRAPE_ERRORS: Final = Metric(
    "kernelcast_exporter_scrape_errors_total",
    Kind.COUNTER,
    "Failed readings of pages of engines and other vendors' exporters, or of the list of the node's pods.",
    source=_DAEMON,
)
KERNEL_LOG_ERRORS: Final = Metric(
    "kernelcast_exporter_kernel_log_errors_total",
    Kind.COUNTER,
    "Failed readings of the kernel's log, mostly because of missing permissions.",
    source=_DAEMON,
)
KERNEL_LOG_LOST: Final = Metric(
    "kernelcast_exporter_kernel_log_lost_total",
    Kind.COUNTER,
    "Records that the kernel had overwritten before they were read; XIDs may have been among them.",
    source=_DAEMON,
)
ATTRIBUTION_AGE: Final = Metric(
    "kernelcast_exporter_attribution_age_seconds",
    Kind.GAUGE,
    "Age of the answer that gives labels such as pod and hpc_job.",
    labels=("source",),
    source=_DAEMON,
)
ATTRIBUTION_KEPT: Final = Metric(
    "kernelcast_exporter_attribution_kept_seconds",
    Kind.GAUGE,
    "Age up to which an answer is used; beyond it labels such as pod and hpc_job are left out.",
    labels=("source",),
    source=_DAEMON,
)

DAEMON_ROWS: Final[tuple[Metric, ...]] = (
    TICKS,
    TICKS_MISSED,
    TICK_LATENESS,
    TICK_DURATION,
    TICK_ERRORS,
    POINTS,
    PROGRAMS,
    KERNELS,
    TOTALS_IGNORED,
    PROGRAMS_RETIRED,
    HINTS,
    OUTCOMES,
    STATE_SAVES,
    STATE_ERRORS,
    NVML_ERRORS,
    ATTRIBUTION_ERRORS,
    ATTRIBUTION_AGE,
    ATTRIBUTION_KEPT,
    TPU_ERRORS,
    NCCL_INSPECTOR_ERRORS,
    SCRAPE_ERRORS,
    KERNEL_LOG_ERRORS,
    KERNEL_LOG_LOST,
)
ROWS: Final[tuple[Metric, ...]] = (*PROBE_SERVER_ROWS, *DAEMON_ROWS, *NVML_ROWS, *SPOOL_ROWS)
