"""Registers, memory and occupancy of kernels that CuPy compiled."""

from types import SimpleNamespace

from kernelcast.probe.cupy.launch_facts import LaunchFacts
from kernelcast.probe.cupy.traced import Traced, TracedConfiguration


def test_a_kernel_that_is_compiled_with_other_macros_has_facts_of_its_own() -> None:
    """A tuned kernel keeps its name, and often its block, in each configuration."""
    registers = {111: 40, 222: 168}
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_NUM_REGS=4,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES=3,
        funcGetAttribute=lambda attribute, pointer: registers[pointer] if attribute == 4 else 0,
        occupancyMaxActiveBlocksPerMultiprocessor=lambda pointer, _threads, _shared: 8 if pointer == 111 else 2,
    )
    facts = LaunchFacts(driver, SimpleNamespace(deviceGetAttribute=lambda _attribute, _device: 2048))
    traced, configuration = Traced("stencil", 0), TracedConfiguration((64, 1, 1), (256, 1, 1), 0)
    plain, unrolled = (facts.name(SimpleNamespace(traced=traced, ptr=pointer), configuration) for pointer in (111, 222))
    assert (plain.registers, plain.occupancy) == (40, 1.0)
    assert (unrolled.registers, unrolled.occupancy) == (168, 0.25)
