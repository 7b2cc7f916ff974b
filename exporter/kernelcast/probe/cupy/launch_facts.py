"""Facts of the CUDA driver about a kernel that CuPy compiled: registers, memory, theoretical occupancy.

Asked once per kernel and launch configuration, on the probe's own thread, of a device whose context exists.
Source: CUDA Driver API, sections 6.23 (cuFuncGetAttribute) and 6.27 (cuOccupancyMaxActiveBlocksPerMultiprocessor);
occupancy is resident warps over the most that a multiprocessor holds (CUDA C++ Best Practices Guide, 11.1).
"""

from math import prod
from typing import Any, Final

from kernelcast.probe.cupy.traced import TracedConfiguration
from kernelcast.probe.recording.texts import dimensions
from kernelcast.wire.frames import KernelName

# Bound of the cache; if it is full, it is emptied.
MAX_FACTS: Final = 4096
WARP: Final = 32
# cudaDevAttrMaxThreadsPerMultiProcessor.
THREADS_PER_MULTIPROCESSOR: Final = 39


class LaunchFacts:
    """A bounded cache of facts, by function and configuration.

    Args:
        driver: CuPy's `cupy.cuda.driver`, or its double.
        runtime: `cupy.cuda.runtime`.
    """

    def __init__(self, driver: Any, runtime: Any) -> None:
        self._driver = driver
        self._runtime = runtime
        self._known: dict[tuple[str, int, int, tuple[int, ...], int], tuple[int, int, int, float]] = {}

    def name(self, function: Any, configuration: TracedConfiguration) -> KernelName:
        """The launch configuration with the function's facts; 0 is unknown."""
        traced, block, shared = function.traced, configuration.block, configuration.shared
        # With the pointer: another compilation of a kernel, as with other macros, has the same signature.
        key = (traced.signature, function.ptr, traced.device, block, shared)
        if key not in self._known:
            if len(self._known) >= MAX_FACTS:
                self._known.clear()
            self._known[key] = self._ask(function.ptr, prod(block), shared, traced.device)
        registers, static_shared, local, occupancy = self._known[key]
        return KernelName(
            0,
            traced.signature,
            dimensions(configuration.grid),
            dimensions(block),
            registers,
            shared + static_shared,
            local,
            occupancy,
        )

    def _ask(self, pointer: int, threads: int, shared: int, device: int) -> tuple[int, int, int, float]:
        driver = self._driver
        try:
            registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, pointer)
            static_shared = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, pointer)
            local = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, pointer)
            blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(pointer, threads, shared)
            most = self._runtime.deviceGetAttribute(THREADS_PER_MULTIPROCESSOR, device)
        except Exception:  # noqa: BLE001  an older CuPy, or a context that ends: unknown, and the launch is no worse for it
            return 0, 0, 0, 0.0
        resident = blocks * -(-threads // WARP) * WARP
        return registers, static_shared, local, min(1.0, resident / most) if most else 0.0
