"""Advice about each cause of a finding: the probable culprit in a few words, and what to do first.

Texts of alerts and runbooks have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue.meanings import Cause


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice about one cause.

    Attributes:
        culprit: Where to look, in a few words.
        first: What to do first.
    """

    culprit: str
    first: str


ADVICE: Final[Mapping[Cause, Advice]] = MappingProxyType(
    {
        Cause.THERMAL: Advice(
            "fan or airflow",
            "Check fans, filters and the inlet temperature; until then lower the power limit or move the job.",
        ),
        Cause.POWER_BRAKE: Advice("power supply", "Check the node's power supplies and the rack's power budget."),
        Cause.HARDWARE_SLOWDOWN: Advice("power or heat", "Check power cables, supplies and cooling of the node."),
        Cause.CLOCK_LOW: Advice(
            "clocks are lower than usual", "Look for locked clocks (`nvidia-smi -q -d CLOCK`), then reset them."
        ),
        Cause.CONTENTION: Advice(
            "another program on the GPU", "Find the other program on this GPU, and move one of the two."
        ),
        Cause.MEMORY_LEAK: Advice(
            "memory grows", "Restart the job from its checkpoint before the memory is full, then look for what grows."
        ),
        Cause.MEMORY_ERRORS: Advice("memory errors", "Drain the GPU, reset it, and replace it if errors come back."),
        Cause.ROW_REMAPPING: Advice("memory rows", "Drain the GPU and reset it, so that the rows are replaced."),
        Cause.XID: Advice("the driver reported an error", "Look the XID up, drain the GPU and reset it."),
        Cause.PCIE_ERRORS: Advice("PCIe connection", "Drain the node, power it off, reseat the board or its riser."),
        Cause.PCIE_LINK: Advice("PCIe connection", "Reset the GPU; if that does not help, reseat the board."),
        Cause.NVLINK: Advice("NVLink", "Look at `nvidia-smi nvlink --status`; drain the node and reset its GPUs."),
        Cause.TELEMETRY_LOST: Advice("the GPU stopped reporting", "Run `kernelcast doctor` on the node."),
        Cause.STRAGGLER: Advice(
            "slower than the other ranks", "Compare clock and temperature of this GPU with the others'; replace it."
        ),
        Cause.AGEING: Advice(
            "the GPU itself is slower", "Run a benchmark on the idle GPU; swap it if it is slower than its neighbours."
        ),
        Cause.DEPLOY: Advice(
            "a deploy", "Roll back, or accept the new duration: `kernelcast findings mark ID accepted`."
        ),
        Cause.LOAD: Advice("more load", "Spread the load over more GPUs, or raise the limit if it is usual now."),
        Cause.KERNEL_SLOWDOWN: Advice(
            "the kernel takes longer for the same work", "Open its heatmap, and look at what changed on its node."
        ),
        Cause.UNKNOWN: Advice("cause not known", "Open the page, and compare with other GPUs of the node."),
    }
)
