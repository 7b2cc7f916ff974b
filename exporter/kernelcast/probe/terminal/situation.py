"""What a probe can say of itself at a moment: what it measures, and whether an exporter has it."""

from dataclasses import dataclass, field
from typing import Final

from kernelcast.wire.frames import Reception, Status

CALL_STEP: Final = "call kernelcast.probe.step() after each pass of the loop"
"""Remedy for a program whose steps the probe does not see."""


@dataclass(frozen=True, slots=True)
class Situation:
    """State of a probe.

    Attributes:
        has_begun: Whether there is something to report: a step, a GPU's context, a report of the program.
        uses_gpu: Whether the process has a GPU's context.
        reports_itself: Whether the program measures itself, and says so or has no GPU.
        source: Source of what is reported: empty for a live GPU, `cpu` or `simulated`.
        status: Present method and state; None before a GPU was used.
        cupti: Value of `KERNELCAST_CUPTI`; empty where CUPTI is neither asked for nor forbidden.
        framework: Framework that the program has imported, `PyTorch`, `JAX` or `TensorFlow`; empty for none.
        socket_path: Path of the exporter's socket.
        is_connected: Whether the exporter is connected, as far as known.
        failure: Reason why the last attempt to connect failed.
        reception: The exporter's answer.
        starts_exporter: Whether the program has an exporter of its own, beside it.
        trouble: Reason why there is none although it should be; empty while it may still come.
    """

    has_begun: bool
    uses_gpu: bool = False
    reports_itself: bool = False
    source: str = ""
    status: Status | None = None
    cupti: str = ""
    framework: str = ""
    socket_path: str = ""
    is_connected: bool = False
    failure: str = ""
    reception: Reception = field(default_factory=Reception)
    starts_exporter: bool = False
    trouble: str = ""
