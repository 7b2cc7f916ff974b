"""The probe socket's own metrics, made from the catalogue's rows."""

from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue.exporter import (
    PROBE_CONNECTIONS,
    PROBE_ERRORS,
    PROBE_FRAMES,
    PROBE_HINTS,
    PROBE_LEFT,
    PROBE_OUTCOMES_DROPPED,
    PROBE_OUTCOMES_REFUSED,
    PROBE_PROCESSES,
    PROBE_REFUSED,
)

REFUSALS: Final = ("user", "limit", "displaced", "hello", "frames", "device", "foreign")
"""Reasons to refuse or close a connection."""
USED: Final = "used"
LEFT_OUTCOMES: Final = (USED, "file", "user", "size", "total", "device", "foreign", "frames")
"""What becomes of a file that a program has left: used, or the reason to refuse it."""


class ProbeCounts:
    """The collectors; every known label value starts at 0.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = gauge(PROBE_CONNECTIONS, registry)
        self.processes = gauge(PROBE_PROCESSES, registry)
        frames = counter(PROBE_FRAMES, registry)
        self.frames_used = frames.labels("used")
        self.frames_bad = frames.labels("bad")
        refused = counter(PROBE_REFUSED, registry)
        self.refused = {reason: refused.labels(reason) for reason in REFUSALS}
        left = counter(PROBE_LEFT, registry)
        self.left = {outcome: left.labels(outcome) for outcome in LEFT_OUTCOMES}
        hints = counter(PROBE_HINTS, registry)
        self.hints_delivered = hints.labels("delivered")
        self.hints_dropped = hints.labels("dropped")
        self.outcomes_dropped = counter(PROBE_OUTCOMES_DROPPED, registry)
        self.outcomes_refused = counter(PROBE_OUTCOMES_REFUSED, registry)
        self.errors = counter(PROBE_ERRORS, registry)
