"""Theoretical occupancy: how many of a multiprocessor's warps a kernel's resources let be resident, 0 to 1.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (blocks, warps, shared memory per
multiprocessor) and "Shared Memory" of each capability (1 KiB of every block is the system's own from 8.0 on); Nsight
Compute's documentation, "Occupancy Calculator" (registers are given out by the warp, in units of 256, to the four
partitions of a multiprocessor; shared memory in units of 128 bytes, before 8.0 of 256).
"""

from typing import Final, NamedTuple

WARP_THREADS: Final = 32
REGISTERS: Final = 65_536
REGISTER_UNIT: Final = 256
PARTITIONS: Final = 4
KIB: Final = 1024


class Multiprocessor(NamedTuple):
    """Resources of one multiprocessor."""

    blocks: int
    warps: int
    shared_bytes: int
    reserved_bytes: int = KIB
    shared_unit: int = 128


MULTIPROCESSORS: Final = {
    (7, 0): Multiprocessor(32, 64, 96 * KIB, reserved_bytes=0, shared_unit=256),
    (7, 2): Multiprocessor(32, 64, 96 * KIB, reserved_bytes=0, shared_unit=256),
    (7, 5): Multiprocessor(16, 32, 64 * KIB, reserved_bytes=0, shared_unit=256),
    (8, 0): Multiprocessor(32, 64, 164 * KIB),
    (8, 6): Multiprocessor(16, 48, 100 * KIB),
    (8, 7): Multiprocessor(16, 48, 164 * KIB),
    (8, 9): Multiprocessor(24, 48, 100 * KIB),
    (9, 0): Multiprocessor(32, 64, 228 * KIB),
    (10, 0): Multiprocessor(32, 64, 228 * KIB),
    (10, 3): Multiprocessor(32, 64, 228 * KIB),
    (12, 0): Multiprocessor(24, 48, 100 * KIB),
}


def theoretical(capability: tuple[int, int], threads: int, registers: int, shared_bytes: int) -> float:
    """The share of a multiprocessor's warps that can be resident.

    Args:
        capability: Compute capability, as (9, 0).
        threads: Per block.
        registers: Per thread.
        shared_bytes: Per block, static and dynamic together.

    Returns:
        Above 0 and up to 1; 0 where the capability is not known or no block fits.
    """
    held = MULTIPROCESSORS.get(capability)
    if held is None or threads < 1:
        return 0.0
    warps = -(-threads // WARP_THREADS)
    blocks = min(held.blocks, held.warps // warps, _blocks_by_registers(warps, registers))
    if shared_bytes + held.reserved_bytes:
        blocks = min(blocks, held.shared_bytes // _up(shared_bytes + held.reserved_bytes, held.shared_unit))
    return blocks * warps / held.warps


def _blocks_by_registers(warps: int, registers: int) -> int:
    if registers < 1:
        return REGISTERS
    by_warp = _up(registers * WARP_THREADS, REGISTER_UNIT)
    return (REGISTERS // PARTITIONS // by_warp) * PARTITIONS // warps


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
