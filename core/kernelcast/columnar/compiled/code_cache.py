"""Keeps machine code on disk, and loads it while no source has changed that it was made from.

`decorators.kernel` passes every compiled function to `on_disk`; the bridge's commands ask which code is there.

numba keeps a function's machine code under NUMBA_CACHE_DIR, in `__pycache__` beside the function's file, or in the
user's cache directory: in the first of them that it can write, and it reads no other. Here all that can be read are
read, so that a cache in a container's image is used on a read-only file system, too.

numba looks for changes in the function's own file only, but constants and functions of other files are compiled in.
So the stamp here is a digest of the function's file and, recursively, of all files of this distribution that it
imports. It holds no times: a copy of an installation uses the same machine code. Code that checks bounds
(NUMBA_BOUNDSCHECK=1, for tests) is stored under another key than code that does not.

Code is made for the processor at hand, and for it alone. A wheel or an image brings code for the `PORTABLE` processor
of its architecture; every processor with the same instructions runs it.

The stored code can only be run: it has no LLVM code to compile into other functions, and no listing of types. So
loading it starts no part of the compiler, which saves 45 MiB and half a second in each process.
"""

import errno
import hashlib
import inspect
import platform
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import llvmlite  # type: ignore[import-untyped]
from llvmlite import binding
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]  # an extension module

F = TypeVar("F", bound=Callable[..., Any])

ROOT = __name__.partition(".")[0]
PORTABLE: Final = {
    "x86_64": (
        "x86-64-v3",
        "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave",
    ),
    "aarch64": ("generic", ""),
}
"""Of each architecture, LLVM's name and features of a processor whose code runs on others: on x86, most since 2013."""
_IMPORTS = re.compile(rf"^\s*(?:from|import)\s+{ROOT}\.([\w.]+)", re.MULTILINE)
_NOT_INSTALLED: Final = "document.py"
"""A module of this name writes a page of docs/. A wheel has none, and the machine code of a checkout serves it, too."""
_DISPATCHERS: Final[list[Any]] = []
"""Every dispatcher that was passed to `on_disk`, in the order of the imports."""


def on_disk(dispatcher: F) -> F:
    """Store a dispatcher's compiled code on disk, and load it from there as long as no source has changed.

    If nothing can be written, compiled code lasts as long as the process.
    """
    with suppress(RuntimeError):  # numba's "no locator available", where NUMBA_CACHE_LOCATOR_CLASSES names other ones
        cast("Any", dispatcher)._cache = _Cache(cast("Any", dispatcher).py_func)  # noqa: SLF001  as `enable_caching` does
    _DISPATCHERS.append(dispatcher)
    return dispatcher


def compiled_here() -> list[str]:
    """Names of the functions that this process has compiled, as no machine code was found for them."""
    return [_name(each) for each in _DISPATCHERS if each.stats.cache_misses]


def not_kept() -> list[str]:
    """Names of the functions among them whose machine code could not be written to disk."""
    return [_name(each) for each in _DISPATCHERS if each.stats.cache_misses and not _is_on_disk(each)]


def not_on_disk(modules: Sequence[str]) -> list[str]:
    """Names of the functions in modules that have no machine code on disk for this processor.

    Args:
        modules: Beginnings of module names; only imported modules count.
    """
    theirs = (each for each in _DISPATCHERS if each.py_func.__module__.startswith(tuple(modules)))
    return [_name(each) for each in theirs if not _is_on_disk(each)]


def portable_environment() -> dict[str, str]:
    """Variables for a process that compiles for the `PORTABLE` processor; empty where the architecture has none."""
    name_and_features = PORTABLE.get(platform.machine(), ())
    return dict(zip(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), name_and_features, strict=False))


def is_writable() -> bool:
    """Whether the machine code of every imported function can be written to disk, as far as numba can tell."""
    return all(isinstance(each._cache, _Cache) and each._cache.is_writable for each in _DISPATCHERS)  # noqa: SLF001


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


# numba calls the classes below when a function is first called, under its global lock for compiling.
class _ReadOnlyLocator(_CacheLocator):
    """The last of numba's locators, used where no folder can be written; there may be one to read."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_ReadOnlyLocator":
        return cls(py_func, py_file)

    def ensure_cache_path(self) -> None:
        raise OSError(errno.EROFS, "machine code cannot be written", self.get_cache_path())

    def get_cache_path(self) -> str:
        return _readable_folders(self._py_file)[0]

    def get_source_stamp(self) -> str:
        return ""  # `_Cache` makes its own

    def get_disambiguator(self) -> str:
        return str(self._line)  # as numba's own locators: it is part of the file's name


class _Implementation(CompileResultCacheImpl):
    """Reduces a compiled function to the data that are needed to run it, and makes it callable again."""

    _locator_classes = [*CompileResultCacheImpl._locator_classes, _ReadOnlyLocator]  # noqa: RUF012, SLF001  as numba's

    def reduce(self, data: Any) -> Any:
        """Return the data of a compiled function that are written to disk.

        Left out are the LLVM code for functions that call this one (only Python calls stored functions), the annotated
        source, and the environments of numba's own functions: these hold Python objects for messages that are printed,
        and to read one is to import the compiler's implementation of numpy.
        """
        (name, kind, code), *rest, _, reload_init, environments = super().reduce(data)  # type: ignore[no-untyped-call]
        if kind != "object":
            raise AssertionError(f"numba keeps {kind} where machine code is expected")
        own = tuple(each for each in environments if each.globals["__name__"].partition(".")[0] != "numba")
        return (name, kind, (code[0], _empty_bitcode())), *rest, "", reload_init, own

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Make a callable function from the written data."""
        _declare_runtime()
        _, descriptor, *_ = payload
        # As numba does with the symbols of the LLVM code that is left out: it looks up no other ones.
        engine = target_context.codegen()._engine  # noqa: SLF001
        engine._defined_symbols |= {descriptor.llvm_func_name, descriptor.llvm_cpython_wrapper_name}  # noqa: SLF001
        return super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]


class _CacheFile(IndexDataCacheFile):
    """The machine code of one function: an index, and a file for each compilation; what cannot be read is not there.

    numba unpickles the index, and with it the classes of the arguments, before it compares the stamp of the sources. So
    the index of another revision names modules that may have moved since.

    numba writes the index before the file that it names. If the disk is full, the file stays that of older sources; two
    processes may choose one file for different arguments; a crash of the node may leave it empty. So each file has the
    stamp and the key that it was written for.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        with suppress(Exception):  # unpickling raises whatever the bytes make it raise
            stamp, written_for, data = super().load(key)  # type: ignore[no-untyped-call]
            if (stamp, written_for) == (self._source_stamp, key):
                return data
        return None

    def _load_index(self) -> dict[Any, str]:
        try:
            return cast("dict[Any, str]", super()._load_index())  # type: ignore[no-untyped-call]
        except OSError:
            raise
        except Exception:  # noqa: BLE001  unpickling raises whatever bytes and missing classes make it raise
            return {}


class _Cache(FunctionCache):
    """Reads from every folder that may hold a function's machine code, and writes to the first that it can.

    A folder that cannot be read, and a disk that is full, are as if there were no cache.
    """

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = (source_digest(function.__module__), llvmlite.__version__)
        folders = dict.fromkeys((self.cache_path, *_readable_folders(inspect.getfile(function))))
        self._files = [
            _CacheFile(folder, self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]
            for folder in folders
        ]
        self._cache_file = self._files[0]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The function compiled for a signature, None where there is no machine code of it.

        numba's own method prepares the compiler first; here that is left to the compiler.
        """
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compilation, if there is anywhere to write."""
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        """Return the key of a compilation in the index; numba's own key ignores whether the code checks bounds."""
        key: tuple[Any, ...] = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        return (*key, "bounds checked") if config.BOUNDSCHECK else key  # type: ignore[attr-defined]  # set at run time

    @property
    def is_writable(self) -> bool:
        """Whether numba found a folder to write to."""
        return not isinstance(self._impl.locator, _ReadOnlyLocator)

    def holds(self, codegen: Any) -> bool:
        """Whether there is machine code for a processor, whatever the types of the arguments."""
        processors = _processors(codegen.magic_tuple())
        return any(key[1] in processors for file in self._files for key in _index(file))

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        signature, own, *rest = self._index_key(sig, target_context.codegen())
        keys = [(signature, processor, *rest) for processor in _processors(own)]
        for key, file in product(keys, self._files) if self._enabled else ():
            with suppress(OSError):
                data = file.load(key)
                if data is not None:
                    return self._impl.rebuild(target_context, data)
        return None


def _processors(own: tuple[str, str, str]) -> Sequence[tuple[str, str, str]]:
    """The processors whose machine code this process runs: its own, and the portable one where that lacks nothing.

    Args:
        own: The target that numba compiles for: triple, name of the processor, features with `+` or `-`.
    """
    name, features = PORTABLE.get(platform.machine(), own[1:])
    missing = {*filter(None, features.split(","))} - {*own[2].split(",")}
    return (own,) if missing else (own, (own[0], name, features))


@cache
def _empty_bitcode() -> bytes:
    """LLVM code of nothing."""
    return bytes(binding.parse_assembly("").as_bitcode())


@cache
def _declare_runtime() -> None:
    """Tell the linker where numba's allocator is, which machine code may call; numba does so once it compiles."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _name(dispatcher: Any) -> str:
    return f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}"


def _is_on_disk(dispatcher: Any) -> bool:
    kept = dispatcher._cache  # noqa: SLF001  as in `on_disk`
    return isinstance(kept, _Cache) and kept.holds(dispatcher.targetctx.codegen())


def _index(file: IndexDataCacheFile) -> dict[Any, str]:
    with suppress(OSError):
        return cast("dict[Any, str]", file._load_index())  # type: ignore[no-untyped-call]  # noqa: SLF001
    return {}


def _readable_folders(file: str) -> list[str]:
    """Return the folders for a source file's machine code, by numba's rules but without its test for write access."""
    folders = [str(Path(file).parent / "__pycache__")]
    if config.CACHE_DIR:  # type: ignore[attr-defined]  # numba sets it at run time
        part = _CacheLocator.get_suitable_cache_subpath(file)  # type: ignore[no-untyped-call]
        folders.insert(0, str(Path(config.CACHE_DIR, part)))  # type: ignore[attr-defined]
    return folders


@cache
def _read(name: str) -> tuple[bytes, tuple[str, ...]]:
    """The digest of a module's source and the modules it names; of a package, all that lies in it, too."""
    for root in sys.modules[ROOT].__path__:
        path = Path(root, *name.split("."))
        if path.with_suffix(".py").is_file():
            return _digest_and_imports(path.with_suffix(".py"))
        if (path / "__init__.py").is_file():
            content, imported = _digest_and_imports(path / "__init__.py")
            modules = (module for module in path.glob("*.py") if module.name != _NOT_INSTALLED)
            inside = [*modules, *(package.parent for package in path.glob("*/__init__.py"))]
            return content, imported + tuple(f"{name}.{module.stem}" for module in inside)
    return b"", ()  # a sentence that begins like an import


def _digest_and_imports(path: Path) -> tuple[bytes, tuple[str, ...]]:
    source = path.read_bytes()
    return hashlib.sha256(source).digest(), tuple(_IMPORTS.findall(source.decode()))
