"""A stamp that says that all machine code is on disk, so that a demo need not start processes that look for it.

To look is to import numba and the functions: two seconds of a core. The stamp is a digest of everything that makes kept
machine code invalid, and of the list of its files. If it does not fit, the processes are started. If it fits wrongly,
the services compile the missing functions by themselves: they only start later.
"""

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
CPU_FIELDS: Final = ("vendor_id", "model name", "stepping", "flags", "CPU implementer", "CPU part", "Features")
"""Of /proc/cpuinfo: machine code is made for a model and its instructions."""
NUMBA: Final = "NUMBA_"
"""Variables that begin so say where machine code is kept, and for which processor it is made."""
INDEX: Final = ".nbi"
"""Suffix of numba's list of one function's machine code."""


@dataclass(frozen=True, slots=True)
class MachineCodeStamp:
    """The stamp of one installation.

    Attributes:
        file: Where it is kept.
        roots: Folders of our sources.
        environ: Variables of the processes that would compile.
        cpuinfo: Linux's description of the processors.
    """

    file: Path
    roots: Sequence[Path]
    environ: Mapping[str, str]
    cpuinfo: Path = Path("/proc/cpuinfo")

    @classmethod
    def here(cls) -> "MachineCodeStamp":
        """Return the stamp of this installation, which lies beside bytecode as machine code does."""
        file = Path(__file__).parent / "__pycache__" / "machine_code.stamp"
        return cls(file, [Path(root) for root in sys.modules["kernelcast"].__path__], os.environ)

    def fits(self) -> bool:
        """Whether all machine code was on disk when the stamp was written, and nothing has changed since."""
        with suppress(OSError, metadata.PackageNotFoundError):
            return self.file.read_text(encoding="utf-8", errors="replace") == self._digest()
        return False

    def write(self) -> None:
        """Say that all machine code is on disk now; where nothing can be written, the next demo looks again."""
        with suppress(OSError, metadata.PackageNotFoundError):
            digest = self._digest()
            self.file.parent.mkdir(exist_ok=True)
            made = self.file.with_suffix(f".{os.getpid()}")
            made.write_text(digest, encoding="utf-8")
            made.replace(self.file)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for line in (*self._machine(), *self._files()):
            digest.update(f"{line}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def _machine(self) -> Iterator[str]:
        yield sys.version
        yield from (f"{name} {metadata.version(name)}" for name in COMPILERS)
        yield from (f"{name}={value}" for name, value in sorted(self.environ.items()) if name.startswith(NUMBA))
        first, _, _ = self.cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")
        yield from (line for line in first.splitlines() if line.partition("\t")[0].rstrip(" :") in CPU_FIELDS)

    def _files(self) -> Iterator[str]:
        """Every source with its size and time, and the names of the files that list machine code."""
        kept = self.environ.get(f"{NUMBA}CACHE_DIR")
        for root in (*self.roots, *([Path(kept)] if kept else [])):
            for folder, folders, names in os.walk(root):
                folders.sort()
                for name in sorted(names):
                    if name.endswith(".py"):
                        status = Path(folder, name).stat()
                        yield f"{folder}/{name} {status.st_size} {status.st_mtime_ns}"
                    elif name.endswith(INDEX):
                        yield f"{folder}/{name}"
