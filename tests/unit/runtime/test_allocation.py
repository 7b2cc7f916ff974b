import platform
from pathlib import Path

import numpy as np
import pytest

from kernelcast.runtime.allocation import LARGE_BYTES, return_large_blocks

BLOCK_BYTES = 64 * LARGE_BYTES
"""More than any free part of the heap that earlier tests have left, which glibc would use first."""


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps large blocks that were freed")
def test_a_freed_block_of_the_large_size_goes_back_to_the_system() -> None:
    assert return_large_blocks()
    for _ in range(2):  # glibc would keep the second one: freeing the first raises its threshold
        before = mapped_bytes()
        block = np.empty(BLOCK_BYTES, np.uint8)
        assert mapped_bytes() - before >= len(block)
        del block
        assert mapped_bytes() - before < LARGE_BYTES
