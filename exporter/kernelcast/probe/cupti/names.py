"""Kernel names as people write them: CUPTI gives mangled ones, a Kineto trace has none, and both are one kernel."""

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

LIBRARIES: Final = ("libstdc++.so.6", "libc++abi.so.1")
MANGLED: Final = "_Z"

Demangle = Callable[[str], str]


def demangler(load: Callable[[str], Any] | None = None) -> Demangle:
    """A function from mangled to readable names, of the C++ runtime that the process has loaded already.

    Args:
        load: Opens a library by name; the process's own where None.

    Returns:
        It leaves a name as it is where that is not mangled, or no C++ runtime is loaded. Each name is asked for once.
    """
    for name in LIBRARIES:
        try:
            library = (load or _loaded)(name)
            return _with(getattr(library, "__cxa_demangle"))
        except (OSError, AttributeError):
            continue
    return str


def _loaded(name: str) -> Any:
    return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def _with(function: Any) -> Demangle:
    """Itanium C++ ABI, section 3.4: the result is malloc's, and ours to free."""
    function.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free

    @lru_cache(maxsize=16_384)
    def readable(name: str) -> str:
        if not name.startswith(MANGLED):
            return name
        status = ctypes.c_int(0)
        found = function(ctypes.c_char_p(name.encode()), None, None, ctypes.byref(status))
        if not found:
            return name
        try:
            return ctypes.string_at(found).decode(errors="replace")
        finally:
            free(ctypes.c_void_p(found))

    return readable
