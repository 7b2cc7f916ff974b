"""Four operations that numba's Python lacks, each one instruction or two. Their callers prove what they assume."""

from typing import TYPE_CHECKING, Any, cast

from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite publishes no types
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from kernelcast.columnar.columns import UInt8Array

# Private twins with public, typed names: numba calls the function with types, its callers with values.


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


def _signed(_typing: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], signature.args[0], types.int64)

    return types.int64(value), generate


load64 = cast("Callable[[UInt8Array, int], np.uint64]", intrinsic(_load64))
"""Eight bytes at a position as a uint64; the caller has checked that they are there.

One load, where eight shifts and ors are not always merged into one. Little-endian machines only, as is every one that
CUDA runs on.
"""

fold_multiply = cast("Callable[[np.uint64, np.uint64], np.uint64]", intrinsic(_fold_multiply))
"""The high and low halves of a 128-bit product, xored: wyhash's mixing step."""

as_double = cast("Callable[[np.uint64], float]", intrinsic(_as_double))
"""The double that 64 bits stand for."""

signed = cast("Callable[[Any], int]", intrinsic(_signed))
"""Any integer as an int64: numba makes a double of an int64 and a uint64 together, and `int()` leaves a uint64 one."""
