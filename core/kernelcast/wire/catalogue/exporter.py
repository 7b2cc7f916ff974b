"""The metrics of Exporter processes about themselves, on their own `/metrics`; they do not travel through Kafka."""

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
    "Frames from programs by what became of them: used or bad.",
    labels=("outcome",),
    source=_PROBE_SERVER,
)
PROBE_REFUSED: Final = Metric(
    "kernelcast_exporter_probe_refused_total",
    Kind.COUNTER,
    "Connections refused or closed, by reason: user, limit, frames (too many bad ones), device (unknown GPU), "
    "foreign (another process's nonce).",
    labels=("reason",),
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
    "Outcomes of hints lost because nobody took them.",
    source=_PROBE_SERVER,
)
PROBE_ERRORS: Final = Metric(
    "kernelcast_exporter_probe_errors_total",
    Kind.COUNTER,
    "Unexpected errors in the probe socket's thread; it goes on.",
    source=_PROBE_SERVER,
)

PROBE_SERVER_ROWS: Final[tuple[Metric, ...]] = (
    PROBE_CONNECTIONS,
    PROBE_PROCESSES,
    PROBE_FRAMES,
    PROBE_REFUSED,
    PROBE_HINTS,
    PROBE_OUTCOMES_DROPPED,
    PROBE_ERRORS,
)
ROWS: Final[tuple[Metric, ...]] = (*PROBE_SERVER_ROWS,)
