"""The project's only interface to numba: decorators, operations of one instruction, machine code on disk.

No other module imports numba or llvmlite (`tests/unit/columnar/test_numba_imports.py`).
"""

from kernelcast.columnar.compiled.decorators import allocating_kernel, inlined, kernel, routine, spliced
from kernelcast.columnar.compiled.intrinsics import (
    as_double,
    copy_bytes,
    find_byte,
    fold_multiply,
    load64,
    prefetch,
    signed,
)

__all__ = [
    "allocating_kernel",
    "as_double",
    "copy_bytes",
    "find_byte",
    "fold_multiply",
    "inlined",
    "kernel",
    "load64",
    "prefetch",
    "routine",
    "signed",
    "spliced",
]
