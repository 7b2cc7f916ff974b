"""Records that numba's cache holds the machine code of all compiled functions, so that a demo need not check it.

`run.Demo` asks it before it starts the services.
"""

# The check itself imports numba and every module with compiled functions, in processes of their own: two seconds of a
# core. The record is a file with a digest of all that a cached function depends on, and of the names of the cache's
# files. If the digest differs, the demo starts the processes, and writes the file when they have ended. If it matches
# although code is missing, the services compile the missing functions themselves, and only start later.

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

COMPILERS: Final = ("numba", "llvmlite", "numpy")
"""Packages whose versions change the machine code."""
CPU_FIELDS: Final = ("vendor_id", "model name", "stepping", "flags", "CPU implementer", "CPU part", "Features")
"""Fields of /proc/cpuinfo on x86 and ARM: machine code is made for a model and its instructions."""
NUMBA_PREFIX: Final = "NUMBA_"
"""Environment variables with this prefix select numba's cache folder and the processor that it compiles for."""
INDEX_SUFFIX: Final = ".nbi"
"""Suffix of the files in which numba lists the machine code of one function. Their content need not be read: a source
that changes makes them invalid, and its size and time are in the digest."""


@dataclass(frozen=True, slots=True)
class MachineCodeStamp:
    """The record of one installation. Several demos may read and write it at once.

    Attributes:
        file: The file with the digest.
        roots: Folders with kernelcast's sources: the package lies in several, one for each top-level folder.
        environ: Environment variables that the compiling processes would have.
        cpuinfo: Linux's description of the processors.
    """

    file: Path
    roots: Sequence[Path]
    environ: Mapping[str, str]
    cpuinfo: Path = Path("/proc/cpuinfo")

    @classmethod
    def here(cls) -> "MachineCodeStamp":
        """Return the record of this installation. It is in this folder's `__pycache__`, where numba's cache is, too."""
        file = Path(__file__).parent / "__pycache__" / "machine_code.stamp"
        return cls(file, [Path(root) for root in sys.modules["kernelcast"].__path__], os.environ)

    def matches(self) -> bool:
        """Whether the cache was complete when the file was written, and nothing has changed since."""
        try:
            return self.file.read_text(encoding="utf-8", errors="replace") == self._digest()
        except (OSError, metadata.PackageNotFoundError):
            return False

    def write(self) -> None:
        """Record that the cache is complete, which the caller has checked.

        A failure to write is ignored: the next demo checks the cache again. The file is replaced in one step, so that
        another demo never reads half of it.
        """
        with suppress(OSError, metadata.PackageNotFoundError):
            digest = self._digest()
            self.file.parent.mkdir(exist_ok=True)
            temporary = self.file.with_suffix(f".{os.getpid()}")
            temporary.write_text(digest, encoding="utf-8")
            temporary.replace(self.file)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for line in (*self._toolchain(), *self._files()):
            digest.update(f"{line}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def _toolchain(self) -> Iterator[str]:
        """Python, the compilers, numba's variables, and the first processor: all of a machine are alike."""
        yield sys.version
        yield from (f"{name} {metadata.version(name)}" for name in COMPILERS)
        yield from (f"{name}={value}" for name, value in sorted(self.environ.items()) if name.startswith(NUMBA_PREFIX))
        first_processor, _, _ = self.cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")
        yield from (line for line in first_processor.splitlines() if line.partition("\t")[0].rstrip(" :") in CPU_FIELDS)

    def _files(self) -> Iterator[str]:
        """Every source with its size and time, and the names of the cache's lists."""
        cache = self.environ.get(f"{NUMBA_PREFIX}CACHE_DIR")
        for root in (*self.roots, *([Path(cache)] if cache else [])):
            for folder, folders, names in os.walk(root):
                folders.sort()  # os.walk descends in this order
                for name in sorted(names):
                    if name.endswith(".py"):
                        status = Path(folder, name).stat()
                        yield f"{folder}/{name} {status.st_size} {status.st_mtime_ns}"
                    elif name.endswith(INDEX_SUFFIX):
                        yield f"{folder}/{name}"
