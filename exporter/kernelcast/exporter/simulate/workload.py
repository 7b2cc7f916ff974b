"""Launches of the simulated programs in one step, and their durations."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.exporter.replay.trace import IntArray
from kernelcast.exporter.simulate.effects import Influence
from kernelcast.exporter.simulate.fleet_settings import SimulationSettings
from kernelcast.exporter.simulate.physics import BOOST_CLOCK_MHZ, NVLINKS
from kernelcast.exporter.simulate.program import FloatArray, Program

_JITTER: Final = 0.01
_COMPUTE_SPREAD: Final = 0.05
_COLLECTIVE_SPREAD: Final = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step's launches.

    Attributes:
        launches: Shape (gpus, kernels).
        mean_ns: Shape (gpus, kernels).
        spread: Shape (kernels,).
        slower_ratio: Shape (gpus, kernels), over the undisturbed duration, without jitter; 1 for collectives.
        compute_ratio: Shape (gpus,), the same over all compute of a GPU.
    """

    launches: IntArray
    mean_ns: FloatArray
    spread: FloatArray
    slower_ratio: FloatArray
    compute_ratio: FloatArray


def slowdown_ratio(bandwidth_factor: FloatArray, clock_mhz: FloatArray, memory_bound: FloatArray) -> FloatArray:
    """Duration over the undisturbed duration, by contention for memory bandwidth and by the SM clock.

    Args:
        bandwidth_factor: Times as long for a kernel that depends on bandwidth alone.
        clock_mhz: SM clock.
        memory_bound: As `Program.memory_bound`; all three of shapes that broadcast.
    """
    contended = 1 + (bandwidth_factor - 1) * memory_bound
    ratio: FloatArray = contended * (BOOST_CLOCK_MHZ / clock_mhz) ** (1 - memory_bound)
    return ratio


class Workload:
    """Programs on all GPUs: each node's GPUs are the ranks of one job, which goes as fast as its slowest rank."""

    def __init__(self, settings: SimulationSettings, programs: list[Program]) -> None:
        """Start with one program per GPU, in the order of the GPUs."""
        self._settings = settings
        self._owed = np.zeros((settings.count, settings.kernels))
        self._base_ns = np.stack([program.base_ns for program in programs])
        self._memory_bound = programs[0].memory_bound
        self._collective = programs[0].collective
        self._share = programs[0].share
        self._spread = np.where(self._collective, _COLLECTIVE_SPREAD, _COMPUTE_SPREAD)

    def replace(self, gpu: int, program: Program) -> None:
        """Another version runs on a GPU from now on."""
        self._base_ns[gpu] = program.base_ns

    @property
    def base_ns(self) -> FloatArray:
        """Shape (gpus, kernels), mean durations that nothing disturbs."""
        return self._base_ns

    @property
    def memory_bound(self) -> FloatArray:
        """Shape (kernels,), as `Program.memory_bound`."""
        return self._memory_bound

    @property
    def collective(self) -> np.typing.NDArray[np.bool_]:
        """Shape (kernels,), as `Program.collective`."""
        return self._collective

    def step(self, influence: Influence, clock_mhz: FloatArray, noise: FloatArray, seconds: float) -> Step:
        """Compute the launches of one step.

        Args:
            influence: The faults and backgrounds that act now.
            clock_mhz: Shape (gpus,), SM clock.
            noise: Shape (gpus, kernels), standard normal.
            seconds: Length of the step.
        """
        bound = self._memory_bound
        slower = influence.kernel_factor * influence.compute_factor[:, None]
        slower *= slowdown_ratio(influence.bandwidth_factor[:, None], clock_mhz[:, None], bound)
        links_lost = (NVLINKS / (NVLINKS - influence.links_down).clip(1))[:, None]
        slower = np.where(self._collective, influence.kernel_factor * links_lost, slower)
        mean_ns = self._base_ns * slower * (1 + _JITTER * noise)
        per_second = self._settings.rate * influence.load[:, None] * self._share
        mean_ns += self._waiting(mean_ns, per_second)
        launches = self._launches(mean_ns, per_second, seconds)
        weight = np.where(self._collective, 0.0, self._base_ns * self._share)
        ratio = (weight * slower).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)
        return Step(launches, mean_ns, self._spread, np.where(self._collective, 1.0, slower), ratio)

    def _waiting(self, mean_ns: FloatArray, per_second: FloatArray) -> FloatArray:
        """Extra duration of each collective because the slowest rank of the node arrives late."""
        compute_ns = np.where(self._collective, 0.0, mean_ns * per_second).sum(axis=1)
        by_node = compute_ns.reshape(self._settings.nodes, self._settings.gpus)
        late_ns = (by_node.max(axis=1, keepdims=True) - by_node).reshape(-1)
        calls = np.where(self._collective, per_second, 0.0).sum(axis=1)
        each_ns = np.divide(late_ns, calls, out=np.zeros_like(late_ns), where=calls > 0)
        return np.where(self._collective, each_ns[:, None], 0.0)

    def _launches(self, mean_ns: FloatArray, per_second: FloatArray, seconds: float) -> IntArray:
        """Whole launches; launches that do not fit into the time are not made, the rest of one comes later."""
        busy = (mean_ns * per_second).sum(axis=1) / 1e9
        by_node = busy.reshape(self._settings.nodes, self._settings.gpus).max(axis=1, keepdims=True)
        pace = np.broadcast_to(1 / np.maximum(by_node, 1.0), (self._settings.nodes, self._settings.gpus)).reshape(-1)
        self._owed += per_second * pace[:, None] * seconds
        launches = np.floor(self._owed).astype(np.int64)
        self._owed -= launches
        return launches
