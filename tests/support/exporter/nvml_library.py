"""Compiles a `libnvidia-ml.so.1` whose GPUs answer at once; nvidia-ml-py finds it by `LD_LIBRARY_PATH`."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kernelcast.probe.cupti import build

SOURCE: Final = Path(__file__).with_suffix(".c")
FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


def environment(directory: Path, gpus: int) -> Mapping[str, str]:
    """Compile the library into a directory; returns what a process needs to find so many GPUs through it.

    Raises:
        subprocess.CalledProcessError: The compiler refuses it.
    """
    target = directory / "libnvidia-ml.so.1"
    command = [build.compiler(), *FLAGS, str(SOURCE), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(directory), "KERNELCAST_TEST_GPUS": str(gpus)}
