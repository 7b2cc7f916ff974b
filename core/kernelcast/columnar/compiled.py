"""How functions become machine code: without the GIL, cached on disk where a disk can be written."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Without numba's reference counts (`_nrt=False`): nothing here allocates, and the caller's arrays outlive the call. With
# them, each array taken out of a tuple costs two atomic operations and pages of machine code.

F = TypeVar("F", bound=Callable[..., Any])


# No wrappers either, save for entries: only compiled code calls the others.
_INNER = {"nogil": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: F) -> F:
    """A function that other compiled ones call."""
    return cast("F", njit(**_INNER)(function))


def inlined(function: F) -> F:
    """A small function on the path of every point, inlined by LLVM wherever it is called."""
    return cast("F", njit(**_INNER, forceinline=True)(function))


def spliced(function: F) -> F:
    """A large function called from one place, made part of its caller before compilation.

    Each compiled function is optimised together with everything below it; eight levels of a walk would be so eight times.
    """
    return cast("F", njit(**_INNER, inline="always")(function))


def entry(function: F) -> F:
    """A function that Python calls; its machine code is cached if there is anywhere to write it.

    numba looks for changes in the entry's own file only. An entry is therefore a closure over `source_digest()`: what a
    closure holds is part of the cache's key, so a change in any file of this package compiles anew.
    """
    try:
        return cast("F", njit(nogil=True, _nrt=False, cache=True)(function))
    except RuntimeError:  # numba's "no locator available": read-only installation and no writable home either
        return cast("F", njit(nogil=True, _nrt=False)(function))


def source_digest() -> str:
    """A digest of this package's sources; empty where they are not plain files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@intrinsic  # type: ignore[untyped-decorator]
def load64(_typing: Any, buffer: Any, _position: Any) -> Any:
    """Eight bytes as a uint64; the caller has checked that they are there.

    One machine load, where eight shifts and ors are not always merged into one. Little-endian machines only, as is every
    one that CUDA runs on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(buffer, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def fold_multiply(_typing: Any, _left: Any, _right: Any) -> Any:
    """The high and low halves of a 128-bit product, xored: wyhash's mixing step."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(high, builder.trunc(product, ir.IntType(64)))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_double(_typing: Any, _bits: Any) -> Any:
    """The double that 64 bits stand for."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate
