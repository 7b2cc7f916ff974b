"""C++ names of kernels as people write them, by the C++ runtime that CuPy has loaded already; nothing is loaded.

Source: Itanium C++ ABI, section 3.4 (`__cxa_demangle`).
"""

import ctypes
import os
from functools import lru_cache
from typing import Any, Final

LIBRARY: Final = "libstdc++.so.6"
# Names kept in the cache; real programs have some hundred kernels.
MAX_NAMES: Final = 4096


@lru_cache(MAX_NAMES)
def demangled(name: str) -> str:
    """Return the demangled name; the name itself if it is not mangled, or there is no C++ runtime."""
    if not name.startswith("_Z"):
        return name
    try:
        demangle, c = _functions()
        text = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int(0)))
        if not text:
            return name
        shown = ctypes.cast(text, ctypes.c_char_p).value
        c.free(ctypes.c_void_p(text))
    except (OSError, AttributeError, UnicodeError):
        return name
    return (shown or b"").decode(errors="replace") or name


def _functions() -> tuple[Any, Any]:
    runtime = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    demangle = runtime["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    return demangle, ctypes.CDLL(None)
