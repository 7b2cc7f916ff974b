"""Metrics that dcgm-exporter computes itself, under its names and labels and with its meaning.

The exporter writes them if its counters table names them (`exporter/nvml/windows.py` counts the events in a window).

Source: dcgm-exporter, internal/pkg/collector: expcollector.go, xid_collector.go, clock_events_collector.go and
p2p_status_collector.go.
"""

from typing import Final

from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS
from kernelcast.wire.catalogue.model import Kind, Metric

WINDOW_LABEL: Final = "window_size_in_ms"
"""Length of the window in which events are counted."""


def _row(field: str, help: str, source: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    name = f"DCGM_EXP_{field}"
    return Metric(name, Kind.GAUGE, help, name, "", (*DEVICE_LABELS, *labels), source)


CLOCK_EVENTS_COUNT: Final = _row(
    "CLOCK_EVENTS_COUNT",
    "Clock events observed during the configured time window.",
    "samples of nvmlDeviceGetCurrentClocksEventReasons in the window, by bit",
    WINDOW_LABEL,
    "clock_event",
)
XID_ERRORS_COUNT: Final = _row(
    "XID_ERRORS_COUNT",
    "XID errors observed during the configured time window.",
    "NVML event XidCriticalError; 0 without the label xid where there was none",
    WINDOW_LABEL,
    "xid",
)
P2P_STATUS: Final = _row(
    "P2P_STATUS",
    "Current NVLink P2P status per peer link.",
    "NVML nvmlDeviceGetP2PStatus(NVLINK)",
    "peer_gpu",
    "link_status",
)

ROWS: Final = (CLOCK_EVENTS_COUNT, XID_ERRORS_COUNT, P2P_STATUS)
