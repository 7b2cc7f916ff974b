"""Operations that numba's Python lacks, each an instruction or two or one call into C; compiled functions call them.

They check no index, whatever numba's settings are: the callers must have checked all ranges.
"""

from typing import TYPE_CHECKING, Any, cast

from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite publishes no types
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from kernelcast.columnar.columns import UInt8Array

# Each operation is a private function and, below, a public typed name for it. numba calls the private function with the
# types of the arguments; it returns the operation's signature and a function that emits LLVM code for one call.


def _load64(_typing: Any, buffer: Any, _position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(buffer, types.int64), generate


def _fold_multiply(_typing: Any, _left: Any, _right: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(high, builder.trunc(product, ir.IntType(64)))

    return types.uint64(types.uint64, types.uint64), generate


def _as_double(_typing: Any, _bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


def _declared(module: Any, name: str, signature: Any) -> Any:
    """A function from outside a module, declared there once."""
    return module.globals.get(name) or ir.Function(module, signature, name)


def _signed(_typing: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], signature.args[0], types.int64)

    return types.int64(value), generate


def _copy_bytes(_typing: Any, target: Any, _position: Any, source: Any, _start: Any, _stop: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, arguments[0])
        out_of = context.make_array(signature.args[2])(context, builder, arguments[2])
        length = builder.sub(arguments[4], arguments[3])
        destination = builder.gep(into.data, [arguments[1]])
        origin = builder.gep(out_of.data, [arguments[3]])
        copy = builder.module.declare_intrinsic("llvm.memcpy", [destination.type, origin.type, length.type])
        builder.call(copy, [destination, origin, length, ir.IntType(1)(0)])
        return builder.add(arguments[1], length)

    return types.int64(target, types.int64, source, types.int64, types.int64), generate


def _prefetch(_typing: Any, source: Any, _position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        flag = ir.IntType(32)
        name = "llvm.prefetch.p0" if getattr(pointer.type, "is_opaque", False) else "llvm.prefetch.p0i8"
        function = _declared(builder.module, name, ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag]))
        builder.call(function, [pointer, flag(0), flag(1), flag(1)])
        return context.get_dummy_value()

    return types.void(source, types.int64), generate


def _find_byte(_typing: Any, source: Any, _start: Any, _stop: Any, _byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        begin = builder.gep(array.data, [arguments[1]])
        word, flag = ir.IntType(64), ir.IntType(32)
        function = _declared(builder.module, "memchr", ir.FunctionType(begin.type, [begin.type, flag, word]))
        length = builder.sub(arguments[2], arguments[1])
        found = builder.ptrtoint(builder.call(function, [begin, builder.trunc(arguments[3], flag), length]), word)
        position = builder.add(arguments[1], builder.sub(found, builder.ptrtoint(begin, word)))
        return builder.select(builder.icmp_unsigned("==", found, word(0)), arguments[2], position)

    return types.int64(source, types.int64, types.int64, types.int64), generate


load64 = cast("Callable[[UInt8Array, int], np.uint64]", intrinsic(_load64))
"""Eight bytes at a position as a uint64; the caller has checked that they are there.

One load, where eight shifts and ors are not always merged into one. Little-endian machines only, as is every one that
CUDA runs on.
"""

fold_multiply = cast("Callable[[np.uint64, np.uint64], np.uint64]", intrinsic(_fold_multiply))
"""The high and low halves of a 128-bit product, xored: wyhash's mixing step."""

as_double = cast("Callable[[np.uint64], float]", intrinsic(_as_double))
"""Reinterpret 64 bits as a double."""

signed = cast("Callable[[Any], int]", intrinsic(_signed))
"""Convert any integer to int64. numba would convert an int64 and a uint64 in one expression to a double, and `int()`
does not change a uint64."""

copy_bytes = cast("Callable[[UInt8Array, int, UInt8Array, int, int], int]", intrinsic(_copy_bytes))
"""Copy `source[start:stop]` to `target[position:]`, which do not overlap, and return where the copy ends.

The caller has checked that there is room. One memcpy, where a loop tests every index for being negative.
"""

prefetch = cast("Callable[[UInt8Array, int], None]", intrinsic(_prefetch))
"""Prefetch the cache line at a position; a hint to the processor, harmless for any address."""

find_byte = cast("Callable[[UInt8Array, int, int, int], int]", intrinsic(_find_byte))
"""Return the first index of a byte in `source[start:stop]`, or `stop`; the caller has checked the range.

Calls C's memchr, which compares 32 bytes at once; a loop here would take a nanosecond or two for each.
"""
