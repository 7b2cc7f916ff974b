"""Reads or checks a recording of NVML, or a capture that becomes one."""

import re
from pathlib import Path
from typing import Final

from kernelcast.exporter.nvml.recordings.recording import Recording, moments, read

AMD: Final = re.compile(r'"card|"gpu_data"|\A\s*\[')
"""What rocm-smi's JSON has in it, and amd-smi's before and after version 26."""


def read_any(path: Path) -> Recording:
    """Read a recording, or convert a capture to one: of `nvidia-smi -q` (a `.txt` file), or of rocm-smi (`.json`).

    Raises:
        TraceError: The file cannot be read, or is none of these.
    """
    return read_capture(path) if _is_capture(path) else read(path)


def read_capture(path: Path) -> Recording:
    """Convert a capture to a recording.

    Raises:
        TraceError: The file cannot be read, or is none.
    """
    # They import pynvml, which a daemon that only checks a recording would keep in memory.
    from kernelcast.exporter.nvml.recordings import nvidia_smi, rocm_smi  # noqa: PLC0415

    return rocm_smi.read_capture(path) if is_rocm_smi(path) else nvidia_smi.read_capture(path)


def is_rocm_smi(path: Path) -> bool:
    """Whether a file is JSON of AMD's tools; a recording has one JSON object in each line, and no cards."""
    try:
        return path.suffix == ".json" and AMD.search(path.read_text(errors="replace")) is not None
    except OSError:
        return False


def _is_capture(path: Path) -> bool:
    return path.suffix == ".txt" or is_rocm_smi(path)


def check_any(path: Path) -> None:
    """Check a recording without keeping it in memory.

    Raises:
        TraceError: As `read_any`.
    """
    if _is_capture(path):
        read_capture(path)
        return
    for _ in moments(path):
        pass
