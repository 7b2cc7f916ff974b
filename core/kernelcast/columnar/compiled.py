"""How functions become machine code: without the GIL, cached on disk where a disk can be written.

Without numba's reference counts, too (`_nrt`): nothing compiled here allocates, and the caller's arrays outlive the
call. With them, each array taken out of a tuple costs two atomic operations and pages of machine code.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba

from kernelcast.columnar.code_cache import on_disk

F = TypeVar("F", bound=Callable[..., Any])

_njit: Final = cast("Callable[..., Callable[[Any], Any]]", numba.njit)  # its stubs know neither `_nrt` nor the wrappers

_ENTRY: Final = {"nogil": True, "_nrt": False}
_INNER: Final = {**_ENTRY, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: F) -> F:
    """A function that other compiled ones call."""
    return cast("F", _njit(**_INNER)(function))


def inlined(function: F) -> F:
    """A small function on the path of every point, inlined by LLVM wherever it is called."""
    return cast("F", _njit(**_INNER, forceinline=True)(function))


def spliced(function: F) -> F:
    """A large function called from one place, made part of its caller before compilation.

    A compiled function is optimised together with everything below it: eight levels of a walk would be so eight times.
    """
    return cast("F", _njit(**_INNER, inline="always")(function))


def entry(function: F) -> F:
    """A function that Python calls; its machine code is kept if there is anywhere to write it."""
    return on_disk(cast("F", _njit(**_ENTRY)(function)))
