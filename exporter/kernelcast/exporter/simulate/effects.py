"""The combined effects of faults and backgrounds on a fleet at one moment, as arrays.

`influence.py` makes an `Influence` for each step; physics, workload and health read it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.fleet_settings import BoolArray
from kernelcast.exporter.simulate.program import FloatArray

SECONDS_PER_MINUTE: Final = 60.0
SECONDS_PER_HOUR: Final = 3600.0
PCIE_LANES: Final = 16.0


@dataclass(slots=True, eq=False)
class Influence:
    """Effects of everything that acts at one moment, combined.

    Attributes:
        load: Shape (gpus,), work asked for, as a share of the usual.
        heat_c: Shape (gpus,), degrees above the temperature that the power explains.
        kernel_factor: Shape (gpus, kernels), times as long, unexplained.
        bandwidth_factor: Shape (gpus,), times as long for what depends on memory bandwidth.
        compute_factor: Shape (gpus,), times as long for everything but collectives.
        leak_mib: Shape (gpus,), MiB per second.
        preallocated: Shape (gpus,), share of the memory that the program takes at its start; 0 for the usual.
        cache_mib: Shape (gpus,), MiB in caches that the program empties by itself.
        clock_ratio: Shape (gpus,), highest clock, as a share of the boost clock.
        braked: Shape (gpus,), whether the power supply asks for a slower clock.
        capped: Shape (gpus,), whether the power limit is lowered.
        pcie_lanes: Shape (gpus,), lanes of the PCIe link.
        bit_errors: Shape (gpus,), single-bit errors per second.
        remapped_rows: Shape (gpus,), rows remapped per second, for uncorrectable errors.
        silent: Shape (gpus,), whether the GPU's samples are missing.
        lost: Shape (gpus,), whether the GPU fell off the bus.
        hung: Shape (gpus,), whether NVML hangs on the GPU's node.
        links_down: Shape (gpus,), NVLinks that are down.
        pcie_replays: Shape (gpus,), packets sent again per second.
        recovery: Shape (gpus,), recovery action that the driver recommends; 0 for none.
        ahead_seconds: Shape (gpus,), how far the clock of the GPU's node is ahead.
    """

    load: FloatArray
    heat_c: FloatArray
    kernel_factor: FloatArray
    bandwidth_factor: FloatArray
    compute_factor: FloatArray
    leak_mib: FloatArray
    preallocated: FloatArray
    cache_mib: FloatArray
    clock_ratio: FloatArray
    braked: BoolArray
    capped: BoolArray
    pcie_lanes: FloatArray
    bit_errors: FloatArray
    remapped_rows: FloatArray
    silent: BoolArray
    lost: BoolArray
    hung: BoolArray
    links_down: FloatArray
    pcie_replays: FloatArray
    recovery: FloatArray
    ahead_seconds: FloatArray

    @classmethod
    def none(cls, count: int, kernels: int) -> "Influence":
        """Nothing acts: every GPU has its usual load."""
        return cls(
            load=np.ones(count),
            heat_c=np.zeros(count),
            kernel_factor=np.ones((count, kernels)),
            bandwidth_factor=np.ones(count),
            compute_factor=np.ones(count),
            leak_mib=np.zeros(count),
            preallocated=np.zeros(count),
            cache_mib=np.zeros(count),
            clock_ratio=np.ones(count),
            braked=np.zeros(count, dtype=np.bool_),
            capped=np.zeros(count, dtype=np.bool_),
            pcie_lanes=np.full(count, PCIE_LANES),
            bit_errors=np.zeros(count),
            remapped_rows=np.zeros(count),
            silent=np.zeros(count, dtype=np.bool_),
            lost=np.zeros(count, dtype=np.bool_),
            hung=np.zeros(count, dtype=np.bool_),
            links_down=np.zeros(count),
            pcie_replays=np.zeros(count),
            recovery=np.zeros(count),
            ahead_seconds=np.zeros(count),
        )


Effect: TypeAlias = Callable[[Influence, SimulatedFault, BoolArray, float], None]
