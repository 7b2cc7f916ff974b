"""Settings of the C library's allocator, which the bridge and the exporter choose once, at their start.

Each function returns False where the C library does not have the setting (musl); then nothing changes.
"""

import ctypes
from typing import Final

LARGE_BYTES: Final = 4 * 1024 * 1024
"""Blocks from this size on are mapped each by itself. numpy asks for huge pages from the same size on, so a new block
costs few page faults."""
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Free memory that stays at the end of the heap: more than one batch of messages needs, from librdkafka's buffers to
decoded columns."""
M_MMAP_THRESHOLD: Final = -3
M_TRIM_THRESHOLD: Final = -1
M_ARENA_MAX: Final = -8
"""Numbers of settings in glibc's malloc.h."""


def return_large_blocks() -> bool:
    """Fix the size from which blocks are mapped by themselves.

    glibc otherwise raises it to 32 MiB as blocks are freed. Columns that grow and pieces of pages then leave holes in
    its heaps: at a million series almost half of the bridge's memory.
    """
    return _set(M_MMAP_THRESHOLD, LARGE_BYTES)


def share_one_heap() -> bool:
    """Have all threads allocate from one heap; call it before the first thread starts.

    glibc otherwise gives each thread a heap, up to eight for each processor, and each keeps its freed blocks. A thread
    then waits while another one allocates, which is short beside the cost of Python's own lock.
    """
    return _set(M_ARENA_MAX, 1)


def keep_freed_end() -> bool:
    """Keep the free end of the heap up to `KEPT_BYTES`.

    With a fixed size of large blocks, glibc returns it from 128 KiB on, and each batch of messages costs the same page
    faults again.
    """
    return _set(M_TRIM_THRESHOLD, KEPT_BYTES)


def return_freed_memory() -> bool:
    """Give the pages of the heaps that hold nothing any more back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and trim(0) == 1


def _set(name: int, value: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(name, value) == 1
