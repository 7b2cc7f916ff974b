"""The five decorators that compile a function to machine code, with numba; the only ones in the project.

Compiled code runs without the GIL. Except in an `allocating_kernel` it also runs without numba's reference counts
(`_nrt=False`): it makes no arrays, and its caller's arrays outlive the call. With reference counts, each array taken
out of a tuple costs two atomic operations and pages of machine code; the decoder is then nine times slower.

A function is compiled for the types of its first call, a `routine` not once more for each constant. Sizes and positions
are int64, hashes and bytes of a message uint8 or uint64.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
from numba import types

from kernelcast.columnar.compiled.code_cache import on_disk

F = TypeVar("F", bound=Callable[..., Any])

_njit: Final = cast("Callable[..., Callable[[Any], Any]]", numba.njit)  # its stubs know neither `_nrt` nor the wrappers

_ENTRY: Final = {"nogil": True, "_nrt": False}
_INNER: Final = {**_ENTRY, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _by_type(dispatcher: Any) -> Any:
    """Have callers compile a function once for the types of its arguments; numba does so for each constant, too."""
    compile_for_call, without_value = dispatcher.get_call_template, cast("Any", types).unliteral
    dispatcher.get_call_template = lambda args, kws: compile_for_call([without_value(each) for each in args], kws)
    return dispatcher


def kernel(function: F) -> F:
    """Compile a function that Python calls; its machine code is kept on disk where that can be written.

    It can make no array and return none, and it cannot take a slice of one: numba then refuses to compile it.
    """
    return on_disk(cast("F", _njit(**_ENTRY)(function)))


def allocating_kernel(function: F) -> F:
    """Compile as `kernel` does, for a function that makes arrays or slices them."""
    return on_disk(cast("F", _njit(nogil=True)(function)))


def routine(function: F) -> F:
    """Compile a function that only compiled ones call; it has machine code of its own, which LLVM may inline."""
    return cast("F", _by_type(_njit(**_INNER)(function)))


def inlined(function: F) -> F:
    """Compile a small function that LLVM inlines wherever it is called."""
    return cast("F", _njit(**_INNER, forceinline=True)(function))


def spliced(function: F) -> F:
    """Make a large function that is called from one place part of its caller, before compilation.

    A compiled function is optimised together with everything below it: eight levels of a walk would be so eight times.
    """
    return cast("F", _njit(**_INNER, inline="always")(function))
