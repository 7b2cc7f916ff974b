"""Comparison of a GPU with the baselines that the other nodes of the fleet have shared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.causes.observed import usual_low
from kernelcast.predictor.screening.blocks import MAD_TO_SIGMA, row_medians
from kernelcast.wire.baselines import KernelBaseline, NodeBaseline

FEWEST_NODES: Final = 3
SLOWER: Final = 1.1
SPREADS: Final = 4.0
LEAST_INTERVALS: Final = 15


@dataclass(frozen=True, slots=True)
class Reference:
    """Usual duration of a kernel on the other nodes.

    Attributes:
        median_seconds: Median of the nodes' medians.
        spread_ratio: Robust standard deviation, of a node's intervals or between nodes, whichever is larger.
        nodes: Nodes that it is made of.
    """

    median_seconds: float
    spread_ratio: float
    nodes: int


def reference(baseline: KernelBaseline, *, without: str, code_version: str = "") -> Reference | None:
    """Robust reference for one node from the parts of all others; None with fewer than three.

    Args:
        baseline: The shared baseline.
        without: Hostname of the node that is compared: its own part does not count.
        code_version: Version that it runs. Parts of other versions count only where too few have the same.
    """
    others = [part for part in baseline.nodes if part.hostname != without]
    same = [part for part in others if part.code_version == code_version]
    chosen = same if len(same) >= FEWEST_NODES else others
    if len(chosen) < FEWEST_NODES:
        return None
    medians = np.array([part.median_seconds for part in chosen])
    middle = float(np.median(medians))
    between = MAD_TO_SIGMA * float(np.median(np.abs(medians / middle - 1)))
    within = float(np.median([part.spread_ratio for part in chosen]))
    return Reference(middle, max(between, within), len(chosen))


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel on one GPU, as it is found among the shared baselines.

    Attributes:
        key: Key of its kernel, configuration and device model.
        hostname: Its node.
        code_version: Version of its program; empty where it is not known.
    """

    key: str
    hostname: str
    code_version: str = ""


def references(members: Sequence[Member], baselines: Mapping[str, KernelBaseline]) -> tuple[Floats, Floats]:
    """Median and spread ratio of each member's reference, both of shape (n,); NaN without one.

    Args:
        members: The rows.
        baselines: The shared baselines by key.
    """
    found = [
        reference(shared, without=one.hostname, code_version=one.code_version)
        if (shared := baselines.get(one.key)) is not None
        else None
        for one in members
    ]
    medians = np.array([np.nan if one is None else one.median_seconds for one in found])
    return medians, np.array([np.nan if one is None else one.spread_ratio for one in found])


def slow_from_birth(own_seconds: Floats, median_seconds: Floats, spread_ratio: Floats) -> Bools:
    """Whether each GPU is slower than the fleet by 10 % and by four standard deviations; all of shape (n,).

    A GPU's own past does not matter: one that was slow from its first minute is found as well.
    """
    bar = np.maximum(SLOWER, 1 + SPREADS * spread_ratio)
    slow: Bools = own_seconds >= bar * median_seconds
    return slow


def node_part(
    durations: Floats, healthy: Bools, *, hostname: str, code_version: str, time_ns: int
) -> NodeBaseline | None:
    """Part of one node: from its healthy GPUs, robustly; None while too few intervals are known.

    Args:
        durations: Shape (gpus, t), of one kernel and configuration on GPUs of one model.
        healthy: Shape (gpus,), GPUs without a finding: a baseline is not learnt from a slow one.
        hostname: The node.
        code_version: Version of the program.
        time_ns: Time of the newest interval.
    """
    values = durations[healthy]
    usual = usual_low(values) if values.size else np.zeros(0)
    known = np.isfinite(values)
    enough = known.sum(axis=1) >= LEAST_INTERVALS if values.size else np.zeros(0, np.bool_)
    if not enough.any():
        return None
    middle = float(np.median(usual[enough]))
    within = row_medians(np.abs(values[enough] / usual[enough][:, None] - 1))
    spread = MAD_TO_SIGMA * float(np.median(within))
    return NodeBaseline(hostname, middle, spread, int(known[enough].sum()), code_version, time_ns)
