"""Machine code on disk that is as new as every file it was made from.

numba keeps a function's machine code beside its file, or under NUMBA_CACHE_DIR, and looks for changes in that one file
only. Constants and functions from other files are compiled in all the same, so the stamp here is a digest of the
function's file and of all files of this distribution that it imports, and those import, as far as that goes.
"""

import hashlib
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba.core.caching import FunctionCache, IndexDataCacheFile

F = TypeVar("F", bound=Callable[..., Any])

ROOT = __name__.partition(".")[0]
_IMPORTS = re.compile(rf"^\s*(?:from|import)\s+{ROOT}\.([\w.]+)", re.MULTILINE)


def on_disk(dispatcher: F) -> F:
    """Keep what a dispatcher compiles where numba keeps it, and take it from there while no source has changed.

    Nothing is kept where there is nowhere to write: a read-only installation, and no writable home either.
    """
    with suppress(RuntimeError):  # numba's "no locator available"
        cast("Any", dispatcher)._cache = _Cache(cast("Any", dispatcher).py_func)  # noqa: SLF001  as `enable_caching` does
    return dispatcher


def source_digest(module: str) -> str:
    """A digest of a module's source and of all sources it was made from."""
    digest = hashlib.sha256()
    found: dict[str, bytes] = {}
    left = [module.partition(".")[2]]
    while left:
        name = left.pop()
        if name not in found:
            found[name], imported = _read(name)
            left += imported
    for name, content in sorted(found.items()):
        digest.update(f"{name}:".encode() + content)
    return digest.hexdigest()


class _Cache(FunctionCache):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = (self._impl.locator.get_source_stamp(), source_digest(function.__module__))
        self._cache_file = IndexDataCacheFile(  # type: ignore[no-untyped-call]
            self.cache_path, self._impl.filename_base, stamp
        )


@cache
def _read(name: str) -> tuple[bytes, tuple[str, ...]]:
    """The digest of a module's source and the modules it names; of a package, all that lies in it, too."""
    for root in sys.modules[ROOT].__path__:
        path = Path(root, *name.split("."))
        if path.with_suffix(".py").is_file():
            return _digest_and_imports(path.with_suffix(".py"))
        if (path / "__init__.py").is_file():
            content, imported = _digest_and_imports(path / "__init__.py")
            inside = [*path.glob("*.py"), *(package.parent for package in path.glob("*/__init__.py"))]
            return content, imported + tuple(f"{name}.{module.stem}" for module in inside)
    return b"", ()  # a sentence that begins like an import


def _digest_and_imports(path: Path) -> tuple[bytes, tuple[str, ...]]:
    source = path.read_bytes()
    return hashlib.sha256(source).digest(), tuple(_IMPORTS.findall(source.decode()))
