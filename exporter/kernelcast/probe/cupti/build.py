"""Compiles the decoder with the machine's C compiler: when a wheel is made, when a checkout is installed, in tests."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "native"
LIBRARY_NAME: Final = "libkernelcast_activity.so"
FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")


def compiler() -> str:
    """The C compiler's path: `CC`, else `cc`, `gcc` or `clang`; empty where there is none."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((path for path in (shutil.which(name) for name in names if name) if path), "")


def compile_library(target: Path, *, command: Sequence[str] = (), extra: Sequence[str] = ()) -> str:
    """Compile the decoder.

    Args:
        target: The shared library to write.
        command: The compiler and the flags that go before ours; empty takes the machine's.
        extra: Further flags.

    Returns:
        Why there is none; empty once it is written.
    """
    chosen = tuple(command) or ((compiler(),) if compiler() else ())
    if not chosen:
        return "no C compiler was found; install gcc or clang"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    if not sources:
        return f"{SOURCES} holds no C sources; build from a checkout"
    done = subprocess.run(
        [*chosen, *FLAGS, *extra, *sources, "-o", str(target)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"{' '.join(chosen)} failed: {done.stderr.strip()[-2000:]}"
