"""Machine code for the loops over every series and point: without the GIL, kept on disk where that is possible."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from kernelcast.columnar.code_cache import on_disk

UInt8Array = NDArray[np.uint8]
F = TypeVar("F", bound=Callable[..., Any])

_njit = cast("Callable[..., Callable[[Any], Any]]", njit)  # its stubs do not know `_nrt`


def kernel(function: F) -> F:
    """A function that Python calls."""
    return on_disk(cast("F", njit(nogil=True)(function)))


def bare_kernel(function: F) -> F:
    """As `kernel`, of a function that allocates nothing, without numba's reference counts.

    With them, each array taken out of a tuple costs two atomic operations: with parts that pass tuples of columns to
    each other, more than everything else.
    """
    return on_disk(cast("F", _njit(nogil=True, _nrt=False)(function)))


def part(function: F) -> F:
    """A small function that a kernel calls, compiled into it."""
    return cast("F", njit(nogil=True, forceinline=True)(function))


def routine(function: F) -> F:
    """A larger function that a kernel calls; compiled by itself, for inlining it takes seconds."""
    return cast("F", njit(nogil=True)(function))


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


def _find_byte(_typing: Any, source: Any, _start: Any, _stop: Any, _byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        begin = builder.gep(array.data, [arguments[1]])
        word, flag = ir.IntType(64), ir.IntType(32)
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(begin.type, [begin.type, flag, word]), "memchr"
        )
        length = builder.sub(arguments[2], arguments[1])
        found = builder.ptrtoint(builder.call(function, [begin, builder.trunc(arguments[3], flag), length]), word)
        position = builder.add(arguments[1], builder.sub(found, builder.ptrtoint(begin, word)))
        return builder.select(builder.icmp_unsigned("==", found, word(0)), arguments[2], position)

    return types.int64(source, types.int64, types.int64, types.int64), generate


copy_bytes = cast("Callable[[UInt8Array, int, UInt8Array, int, int], int]", intrinsic(_copy_bytes))
"""Copy `source[start:stop]` to `target[at:]`, which do not overlap, and return where the copy ends.

The caller has checked that there is room. One memcpy, where a loop tests every index for being negative.
"""

prefetch = cast("Callable[[UInt8Array, int], None]", intrinsic(_prefetch))
"""Ask for the cache line at a position; a hint, harmless wherever it points."""

find_byte = cast("Callable[[UInt8Array, int, int, int], int]", intrinsic(_find_byte))
"""Where a byte first stands in `source[start:stop]`, the range checked by the caller; `stop` where it does not.

C's memchr, which looks at 32 bytes at once; a loop here takes a nanosecond or two for each.
"""
