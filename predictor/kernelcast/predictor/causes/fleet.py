"""Compares a kernel on a GPU with the baselines that the other nodes of the fleet have shared.

`cycle.faults.fleet_comparison` calls it once per block. A GPU that was slow from its first minute has no past that
shows it; the same kernel on the other nodes does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians
from kernelcast.wire.baselines import KernelBaseline, NodeBaseline

FEWEST_NODES: Final = 3
"""Other nodes that a reference needs."""
SLOWER: Final = 1.07
"""Ratio to the fleet from which a GPU counts as slow: four standard deviations of GPUs that differ by 1.75 %."""
SPREADS: Final = 4.0
"""Standard deviations above the median from which a GPU counts as slow, where nodes differ by more."""
MEDIAN_ERROR: Final = 0.5
"""Standard error of a median of nine blocks, in standard deviations of a block."""
LEAST_BLOCKS: Final = 9
"""Blocks, without the first minutes of the process, that a usual duration needs."""
SAME_RATIO: Final = 0.02
"""Change of a node's median that is noise, however little its blocks vary."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Usual duration of a kernel on the other nodes.

    Attributes:
        median_seconds: Median of the nodes' medians.
        spread_ratio: Standard deviation that a healthy node's ratio to the median has.
        nodes: Number of nodes that it is made of.
        sm_clock_mhz: Median of their usual SM clocks; NaN where fewer than three are known.
    """

    median_seconds: float
    spread_ratio: float
    nodes: int
    sm_clock_mhz: float = np.nan

    @property
    def bar_seconds(self) -> float:
        """Duration from which a GPU counts as slow."""
        return self.median_seconds * max(SLOWER, 1 + SPREADS * self.spread_ratio)


@dataclass(frozen=True, slots=True)
class NodeKernel:
    """A kernel on the GPUs of one node, as it is found among the shared baselines.

    Attributes:
        key: Key of its kernel, configuration and device model.
        hostname: Its node.
        program: The program that launches it.
        code_version: Version of that program; empty where it is not known.
    """

    key: str
    hostname: str
    program: str = ""
    code_version: str = ""


def reference(baseline: KernelBaseline, member: NodeKernel, *, oldest_ns: int = 0) -> Reference | None:
    """Robust reference for one node from the parts of the others; None with fewer than three.

    Parts of another version of the same program do not count: a slower release is no slow GPU. Parts of other
    programs, which launch the same configuration of the kernel, count where too few nodes run the same version.

    Args:
        baseline: The shared baseline.
        member: Its own part does not count.
        oldest_ns: Older parts do not count.
    """
    others = [
        part
        for part in baseline.nodes
        if part.hostname != member.hostname
        and part.time_ns >= oldest_ns
        and (part.program != member.program or part.code_version == member.code_version)
    ]
    same = [part for part in others if part.program == member.program]
    chosen = same if len(same) >= FEWEST_NODES else others
    return _reference(chosen) if len(chosen) >= FEWEST_NODES else None


def _reference(parts: Sequence[NodeBaseline]) -> Reference:
    medians = np.array([part.median_seconds for part in parts])
    middle = float(np.median(medians))
    # The spread of few values is often too small.
    between = MAD_TO_SIGMA * float(np.median(np.abs(medians / middle - 1))) * (1 + 2 / len(parts))
    within = MEDIAN_ERROR * float(np.median([part.spread_ratio for part in parts]))
    clocks = [part.sm_clock_mhz for part in parts if part.sm_clock_mhz > 0]
    clock = float(np.median(clocks)) if len(clocks) >= FEWEST_NODES else np.nan
    return Reference(middle, float(np.hypot(between, within)), len(parts), clock)


def references(
    members: Sequence[NodeKernel], baselines: Mapping[str, KernelBaseline], *, oldest_ns: int = 0
) -> list[Reference | None]:
    """Reference of each member; equal members are computed once.

    Args:
        members: The rows.
        baselines: The shared baselines by key.
        oldest_ns: Older parts do not count.
    """
    by_member: dict[NodeKernel, Reference | None] = {}
    for member in members:
        if member not in by_member:
            shared = baselines.get(member.key)
            by_member[member] = None if shared is None else reference(shared, member, oldest_ns=oldest_ns)
    return [by_member[member] for member in members]


def slow_from_birth(own_seconds: Floats, bar_seconds: Floats) -> Bools:
    """Whether each kernel is as slow as the bar of its reference or slower, shape (n,); False where either is NaN.

    A GPU's own past does not matter: one that was slow from its first minute is found as well.
    """
    slow: Bools = own_seconds >= bar_seconds
    return slow


def usual_durations(blocks: Floats) -> tuple[Floats, Floats]:
    """Median and robust standard deviation relative to it, both of shape (n,); NaN with fewer than nine blocks.

    Args:
        blocks: Shape (n, t), medians of blocks; NaN for those that do not count.
    """
    usual = row_medians(blocks)
    usual[np.isfinite(blocks).sum(axis=1) < LEAST_BLOCKS] = np.nan
    spread: Floats = MAD_TO_SIGMA * row_medians(np.abs(blocks / usual[:, None] - 1))
    return usual, spread


def changed(before: NodeBaseline, after: NodeBaseline) -> bool:
    """Whether two parts of a node differ by more than noise."""
    if (before.program, before.code_version) != (after.program, after.code_version):
        return True
    noise = max(SAME_RATIO, before.spread_ratio, after.spread_ratio)
    return abs(after.median_seconds / before.median_seconds - 1) > noise
