"""Machine code for the loops over every series and every point: without the GIL, cached on disk where that is possible.

numba looks for changes in a function's own file only, so functions that call each other stand in one file.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

UInt8Array = NDArray[np.uint8]
F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """A function that Python calls."""
    try:
        return cast("F", njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba's "no locator available": read-only installation and no writable home either
        return cast("F", njit(nogil=True)(function))


def part(function: F) -> F:
    """A small function that a kernel of the same file calls."""
    return cast("F", njit(nogil=True, forceinline=True)(function))


def _copy_bytes(_typing: Any, target: Any, _at: Any, source: Any, _start: Any, _stop: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, arguments[0])
        out_of = context.make_array(signature.args[2])(context, builder, arguments[2])
        length = builder.sub(arguments[4], arguments[3])
        destination = builder.gep(into.data, [arguments[1]])
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder, destination, builder.gep(out_of.data, [arguments[3]]), length, 1
        )
        return builder.add(arguments[1], length)

    return types.int64(target, types.int64, source, types.int64, types.int64), generate


def _prefetch(_typing: Any, source: Any, _at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        flag = ir.IntType(32)
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag]),
            "llvm.prefetch.p0i8" if not getattr(pointer.type, "is_opaque", False) else "llvm.prefetch.p0",
        )
        builder.call(function, [pointer, flag(0), flag(1), flag(1)])
        return context.get_dummy_value()

    return types.void(source, types.int64), generate


copy_bytes = cast("Callable[[UInt8Array, int, UInt8Array, int, int], int]", intrinsic(_copy_bytes))
"""Copy `source[start:stop]` to `target[at:]`, which do not overlap, and return where the copy ends.

The caller has checked that there is room. One memcpy, where a loop tests every index for being negative.
"""

prefetch = cast("Callable[[UInt8Array, int], None]", intrinsic(_prefetch))
"""Ask for the cache line at a position; a hint, harmless wherever it points."""
