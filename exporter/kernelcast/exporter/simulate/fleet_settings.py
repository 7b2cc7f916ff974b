"""Size of a simulated fleet, and its faults."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.kinds.kind import ALL
from kernelcast.wire.errors import ConfigurationError

MAX_GPUS: Final = 4_096
MAX_SERIES: Final = 50_000
"""Bounds of memory: each pair of GPU and kernel has an array of 400 buckets."""
MAX_RATE: Final = 1e7
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings of a simulated fleet.

    Attributes:
        nodes: Nodes; each runs one program, a rank on each of its GPUs.
        gpus: GPUs of each node.
        kernels: Kernels of each program.
        rate: Kernel launches per second and GPU, at the usual load.
        seed: Same seed, same fleet.
        step_seconds: How finely time is simulated; the result does not depend on when it is polled.
        faults: Faults and backgrounds.

    Raises:
        ConfigurationError: A number is beyond its limits, or a fault names a node, GPU or kernel that does not exist.
    """

    nodes: int = 1
    gpus: int = 8
    kernels: int = 12
    rate: float = 1000.0
    seed: int = 0
    step_seconds: float = 1.0
    faults: tuple[SimulatedFault, ...] = ()

    def __post_init__(self) -> None:
        limits = {
            "nodes": (self.nodes, 1, MAX_GPUS),
            "gpus": (self.gpus, 1, MAX_GPUS),
            "kernels": (self.kernels, 1, 10_000),
            "rate": (self.rate, 0.1, MAX_RATE),
            "seed": (self.seed, 0, 2**63 - 1),
            "nodes times gpus": (self.count, 1, MAX_GPUS),
            "nodes times gpus times kernels": (self.count * self.kernels, 1, MAX_SERIES),
        }
        for name, (value, low, high) in limits.items():
            if not low <= value <= high:
                raise ConfigurationError(f"{name} is {value:g}; it must be {low:g} to {high:g}; choose another")
        for fault in self.faults:
            self._check(fault)

    @property
    def count(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus

    def where(self, fault: SimulatedFault) -> BoolArray:
        """Mask of the GPUs that a fault concerns, shape (count,)."""
        number = np.arange(self.count)
        node, gpu = number // self.gpus, number % self.gpus
        on_node = np.full(self.count, fault.node == ALL) | (node == fault.node)
        on_gpu = np.full(self.count, fault.gpu == ALL) | (gpu == fault.gpu)
        chosen: BoolArray = on_node & on_gpu
        return chosen

    def nodes_of(self, fault: SimulatedFault) -> BoolArray:
        """Mask of the GPUs on the nodes that a fault concerns, shape (count,)."""
        return self.where(replace(fault, gpu=ALL))

    def _check(self, fault: SimulatedFault) -> None:
        for name, value, count in (
            ("node", fault.node, self.nodes),
            ("gpu", fault.gpu, self.gpus),
            ("kernel", fault.kernel, self.kernels),
        ):
            if value >= count:
                raise ConfigurationError(
                    f"{fault.kind}: {name} is {value}; there are {count}, numbered from 0; choose one of them"
                )
