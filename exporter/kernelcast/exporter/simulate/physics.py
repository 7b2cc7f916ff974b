"""The state of simulated GPUs: power, temperature, clocks, memory.

The model is simple on purpose: temperature follows power with one time constant, and throttling lowers the SM clock in
proportion to the excess of the temperature over the limit. Figures are those of an H100 SXM (NVIDIA H100 datasheet:
700 W, 80 GB, 1,980 MHz boost), rounded. `fleet` sets the shares of time for each step, then calls `Gpus.advance`.
"""

import math
from typing import Final

import numpy as np

from kernelcast.exporter.replay.trace import IntArray
from kernelcast.exporter.simulate.effects import PCIE_LANES, Influence
from kernelcast.exporter.simulate.program import FloatArray

POWER_LIMIT_W: Final = 700.0
IDLE_POWER_W: Final = 75.0
BOOST_CLOCK_MHZ: Final = 1980.0
LOWEST_CLOCK_MHZ: Final = 345.0
MEMORY_CLOCK_MHZ: Final = 2619.0
MEMORY_TOTAL_MIB: Final = 81_559.0
MEMORY_RESERVED_MIB: Final = 551.0
NVLINKS: Final = 18
"""Of an H100 SXM, 25 GB/s each in one direction. Source: NVIDIA H100 datasheet, 900 GB/s in both."""
SLOWDOWN_TEMP_C: Final = 87.0
HARD_SLOWDOWN_C: Final = 2.0
"""Degrees above SLOWDOWN_TEMP_C at which the hardware throttles as well as the driver."""

HOTTEST_C: Final = 6.0
"""Degrees above SLOWDOWN_TEMP_C beyond which `advance` lets no temperature rise; a real GPU would switch itself off."""

GPU_IDLE: Final = 0x1
SW_POWER_CAP: Final = 0x4
HW_SLOWDOWN: Final = 0x8
SW_THERMAL_SLOWDOWN: Final = 0x20
HW_THERMAL_SLOWDOWN: Final = 0x40
HW_POWER_BRAKE: Final = 0x80
"""Bits of the clock event reasons: NVML API reference, nvmlClocksEventReasons."""

_AMBIENT_C: Final = 30.0
_DEGREES_PER_WATT: Final = 0.07
_TIME_CONSTANT_SECONDS: Final = 25.0
_CLOCK_LOSS_PER_DEGREE: Final = 0.06
_USUAL_MEMORY_RATIO: Final = 0.55
_MEMORY_ABOVE_GPU_C: Final = 7.0
_FULL_POWER_RATIO: Final = 0.9
_WAITING_POWER_RATIO: Final = 0.4
"""A collective that waits for peers spins; it draws less than a kernel that computes."""


class Gpus:
    """State of all GPUs, arrays of shape (gpus,).

    Attributes:
        busy_ratio: Share of the step in which kernels ran, collectives included.
        waiting_ratio: Share of the step in which collectives ran, which mostly wait.
        copy_ratio: Share of the step in which memory was busy.
        power_w: Power.
        temp_c: Temperature of the GPU, not of its memory.
        clock_mhz: SM clock.
        energy_mj: Energy in millijoules since the start.
        used_mib: Memory of the program and its caches, without the reserved memory.
        reasons: Clock event reasons, bits as above.
        pcie_lanes: Lanes of the PCIe link.
        bit_errors: Single-bit errors of the memory since the start; fractions are kept.
        remapped_rows: Rows remapped since the start, likewise.
        silent: Whether the GPU's samples are missing.
    """

    def __init__(self, count: int, random: np.random.Generator) -> None:
        """Make idle GPUs; their cooling differs by a few per cent, as that of real GPUs does."""
        self._cooling = _DEGREES_PER_WATT * (1 + 0.03 * random.standard_normal(count))
        self.busy_ratio = np.zeros(count)
        self.waiting_ratio = np.zeros(count)
        self.copy_ratio = np.zeros(count)
        self.power_w = np.full(count, IDLE_POWER_W)
        self.temp_c = _AMBIENT_C + self._cooling * IDLE_POWER_W
        self.clock_mhz = np.full(count, BOOST_CLOCK_MHZ)
        self.energy_mj = np.zeros(count)
        self._program_mib = np.zeros(count)
        self.used_mib = np.zeros(count)
        self.reasons: IntArray = np.zeros(count, dtype=np.int64)
        self.pcie_lanes = np.full(count, PCIE_LANES)
        self.bit_errors = np.zeros(count)
        self.remapped_rows = np.zeros(count)
        self.silent = np.zeros(count, dtype=np.bool_)

    @property
    def memory_temp_c(self) -> FloatArray:
        """Temperature of the memory, which has the same cooler and is somewhat hotter than the GPU."""
        return self.temp_c + _MEMORY_ABOVE_GPU_C

    def settle(self, influence: Influence) -> None:
        """Set the temperature reached after a long time at the present load, so that a simulation needs no warm-up."""
        self.temp_c = _AMBIENT_C + influence.heat_c + self._cooling * self._power()

    def forget_memory(self, which: FloatArray | IntArray) -> None:
        """Free the memory of the programs that ended on some GPUs, given the GPUs' indices."""
        self._program_mib[which] = 0.0

    def allocate(self, influence: Influence, seconds: float) -> np.typing.NDArray[np.bool_]:
        """Let programs allocate for some seconds; returns a mask of the GPUs that are out of memory.

        A program that has just begun first takes the memory that programs take at their start.
        """
        usable = MEMORY_TOTAL_MIB - MEMORY_RESERVED_MIB
        fresh = np.where(influence.preallocated > 0, influence.preallocated, _USUAL_MEMORY_RATIO) * usable
        self._program_mib = np.where(self._program_mib > 0, self._program_mib, fresh)
        self._program_mib += influence.leak_mib * seconds
        full = self._program_mib >= usable
        self.used_mib = np.minimum(self._program_mib + influence.cache_mib, usable)
        return full

    def advance(self, influence: Influence, noise: FloatArray, seconds: float) -> None:
        """Compute power, energy, temperature and clock after some seconds.

        Args:
            influence: The faults and backgrounds that act now.
            noise: Shape (gpus,), standard normal; varies the power by 1 per cent.
            seconds: Length of the step.
        """
        self.power_w = np.minimum(self._power() * (1 + 0.01 * noise), POWER_LIMIT_W)
        self.energy_mj += self.power_w * seconds * 1000
        heated_c = _AMBIENT_C + influence.heat_c + self._cooling * self.power_w
        target_c = np.minimum(heated_c, SLOWDOWN_TEMP_C + HOTTEST_C)
        self.temp_c = target_c + (self.temp_c - target_c) * math.exp(-seconds / _TIME_CONSTANT_SECONDS)
        above_c = np.maximum(self.temp_c - SLOWDOWN_TEMP_C, 0.0)
        throttled = self.temp_c >= SLOWDOWN_TEMP_C
        kept = np.where(throttled, 1.0 - _CLOCK_LOSS_PER_DEGREE * (above_c + 1.0), 1.0)
        kept = np.minimum(kept, influence.clock_ratio)
        self.clock_mhz = np.maximum(np.rint(BOOST_CLOCK_MHZ * kept / 15) * 15, LOWEST_CLOCK_MHZ)
        self.pcie_lanes, self.silent = influence.pcie_lanes, influence.silent
        self.bit_errors += influence.bit_errors * seconds
        self.remapped_rows += influence.remapped_rows * seconds
        self.reasons = (
            np.where(throttled, SW_THERMAL_SLOWDOWN, 0).astype(np.int64)
            | np.where(above_c >= HARD_SLOWDOWN_C, HW_THERMAL_SLOWDOWN, 0)
            | np.where((self.power_w >= POWER_LIMIT_W) | influence.capped, SW_POWER_CAP, 0)
            | np.where(influence.braked, HW_SLOWDOWN | HW_POWER_BRAKE, 0)
            | np.where(self.busy_ratio <= 0, GPU_IDLE, 0)
        )

    def _power(self) -> FloatArray:
        """Return the power in watts: idle power, and dynamic power for the kernels that run.

        Dynamic power is proportional to the square of the clock, because the voltage follows the frequency.
        """
        drawing = self.busy_ratio - (1 - _WAITING_POWER_RATIO) * self.waiting_ratio
        dynamic = drawing * _FULL_POWER_RATIO * (POWER_LIMIT_W - IDLE_POWER_W)
        power: FloatArray = IDLE_POWER_W + dynamic * (self.clock_mhz / BOOST_CLOCK_MHZ) ** 2
        return power
