"""Reads or checks a recording of NVML, or a capture that becomes one."""

import re
from pathlib import Path
from typing import Final

from kernelcast.exporter.nvml.recordings.recording import Recording, moments, read

ROCM_SMI: Final = re.compile(r'"card')
AMD_SMI: Final = re.compile(r'"gpu_data"|^\s*\[\s*\{\s*"(?:timestamp|gpu)":', re.MULTILINE)
"""What its JSON has in it, from version 26 on and before."""


def read_any(path: Path) -> Recording:
    """Read a recording, or convert a capture to one: of `nvidia-smi -q` (a `.txt` file), rocm-smi or amd-smi (`.json`).

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
    from kernelcast.exporter.nvml.recordings import amd_smi, nvidia_smi, rocm_smi  # noqa: PLC0415

    if _has(path, ROCM_SMI):
        return rocm_smi.read_capture(path)
    return amd_smi.read_capture(path) if _has(path, AMD_SMI) else nvidia_smi.read_capture(path)


def _is_capture(path: Path) -> bool:
    return path.suffix == ".txt" or _has(path, ROCM_SMI) or _has(path, AMD_SMI)


def _has(path: Path, words: re.Pattern[str]) -> bool:
    """Whether a file is JSON with these words; a recording has one JSON object in each line, and none of them."""
    try:
        return path.suffix == ".json" and words.search(path.read_text(errors="replace")) is not None
    except OSError:
        return False


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
