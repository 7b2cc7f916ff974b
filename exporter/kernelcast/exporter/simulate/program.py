"""Simulated programs: kernels with a class, a share of the time, and the clocks that their speed depends on."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kernelcast.wire.frames import KernelName
from kernelcast.wire.kernels import COLLECTIVE, kernel_class, kernel_id, normalise

FloatArray = npt.NDArray[np.float64]

USUAL_BUSY_RATIO: Final = 0.6
"""Share of the time that kernels run, at the usual load."""
BAD_BLOCK_SIZE: Final = 48
GOOD_BLOCK_SIZE: Final = 256
_SHARED_MEMORY_BYTES: Final = 16_384
_GOOD_OCCUPANCY: Final = 0.5
_BAD_OCCUPANCY: Final = 0.40625
"""Theoretical occupancy on compute capability 9.0 with blocks of 256 and of 48 threads, 64 registers a thread and
16 KiB of shared memory a block, as `probe.cupti.occupancy` computes it."""
_GRAPH_MEMORY_BOUND: Final = 0.85
"""Kernels from this dependence on memory bandwidth on are launched from a CUDA graph."""

_SIGNATURES: Final = (
    ("void gemm_tensorop_kernel<float, 128, {0}>(float const*, float const*, float*, int)", 0.1, 8.0),
    ("void flash_attention_forward_kernel<__half, 64, {0}>(AttentionParameters)", 0.25, 6.0),
    ("void layer_norm_kernel<float, {0}>(float const*, float*, int)", 0.85, 2.0),
    ("void at::native::direct_copy_kernel<float, {0}>(int, float const*, float*)", 1.0, 1.5),
    ("void elementwise_gelu_kernel<float, {0}>(float const*, float*, int)", 0.9, 1.5),
    ("void softmax_backward_kernel<float, {0}>(float const*, float*, int)", 0.7, 2.0),
)
_ALL_REDUCE: Final = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_ALL_REDUCE_WEIGHT: Final = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One version of a simulated program: columns of one length k, hottest kernel first.

    Attributes:
        names: Identities and launch configurations.
        base_ns: Shape (k,), mean duration at full clock.
        share: Shape (k,), share of the launches; sums to 1.
        memory_bound: Shape (k,), 0 where speed follows the SM clock, 1 where it follows memory bandwidth.
        collective: Shape (k,), whether it waits for peers.
    """

    names: tuple[KernelName, ...]
    base_ns: FloatArray
    share: FloatArray
    memory_bound: FloatArray
    collective: npt.NDArray[np.bool_]

    @property
    def collective_ratio(self) -> float:
        """Share of the GPU time that collectives take where no rank waits."""
        time_ns = self.base_ns * self.share
        return float(time_ns[self.collective].sum() / time_ns.sum())

    @property
    def from_graphs(self) -> list[bool]:
        """Whether each kernel is launched from a CUDA graph."""
        return [bound >= _GRAPH_MEMORY_BOUND for bound in self.memory_bound.tolist()]

    @property
    def variants(self) -> tuple[str, ...]:
        """Each kernel's configuration."""
        return tuple(f"{name.grid}|{name.block}" for name in self.names)


def make_program(kernels: int, *, rate: float, distributed: bool, version: int, bad: int | None) -> Program:
    """A program that keeps a GPU busy `USUAL_BUSY_RATIO` of the time.

    Args:
        kernels: How many kernels.
        rate: Launches per second; the rarer they are, the longer they take.
        distributed: Whether it has peers, and so a collective.
        version: A deploy makes another version: other configurations, and other kernels in part.
        bad: The kernel that is launched with a block that is no whole number of warps.
    """
    signatures, memory_bound, weights = [], [], []
    for number in range(kernels):
        if distributed and number == min(2, kernels - 1) and kernels > 1:
            signature, bound, weight = _ALL_REDUCE, 0.0, _ALL_REDUCE_WEIGHT
        else:
            signature, bound, weight = _SIGNATURES[number % len(_SIGNATURES)]
            # Every other kernel was rewritten by the deploy, the rest is only launched differently.
            signature = signature.format(number + 1000 * (version if number % 2 else 0))
            weight /= 1 + number // len(_SIGNATURES)
        signatures.append(normalise(signature))
        memory_bound.append(bound)
        weights.append(weight)
    share = np.full(kernels, 1.0 / kernels)
    relative = np.array(weights)
    base_ns = USUAL_BUSY_RATIO * 1e9 / rate * relative / float(relative @ share)
    return Program(
        names=tuple(
            KernelName(
                kernel=kernel_id(signature),
                signature=signature,
                grid=f"{128 * (version + 1)}x{number + 1}x1",
                block=f"{BAD_BLOCK_SIZE if number == bad else GOOD_BLOCK_SIZE}x1x1",
                registers=64 + version,
                shared_memory_bytes=_SHARED_MEMORY_BYTES,
                occupancy=_BAD_OCCUPANCY if number == bad else _GOOD_OCCUPANCY,
            )
            for number, signature in enumerate(signatures)
        ),
        base_ns=base_ns,
        share=share,
        memory_bound=np.array(memory_bound),
        collective=np.array([kernel_class(signature) == COLLECTIVE for signature in signatures]),
    )
