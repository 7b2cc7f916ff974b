"""Setting of the C library's allocator: large blocks go back to the system as soon as they are freed."""

import ctypes
from typing import Final

LARGE_BYTES: Final = 4 * 1024 * 1024
"""Blocks from this size on are mapped each by itself. numpy asks for huge pages from the same size on, so a new block
costs few page faults."""
M_MMAP_THRESHOLD: Final = -3
"""Number of the setting in glibc's malloc.h."""


def return_large_blocks() -> bool:
    """Fix the size from which blocks are mapped by themselves; returns whether the C library has this setting.

    glibc otherwise raises it to 32 MiB as blocks are freed. Columns that grow and pieces of pages then leave holes in
    its heaps: at a million series almost half of the bridge's memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) == 1
