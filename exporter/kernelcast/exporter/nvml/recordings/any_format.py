"""Reads or checks a recording of NVML, or a capture that becomes one."""

import re
from contextlib import suppress
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
    tool = _tool(path)
    return _convert(path, tool) if tool else read(path)


def read_capture(path: Path) -> Recording:
    """Convert a capture to a recording.

    Raises:
        TraceError: The file cannot be read, or is none.
    """
    return _convert(path, _tool(path))


def _tool(path: Path) -> str:
    """The tool that printed a file; empty for a recording, which has one JSON object in each line."""
    if path.suffix == ".json":
        with suppress(OSError):
            text = path.read_text(errors="replace")
            return "rocm-smi" if ROCM_SMI.search(text) else "amd-smi" if AMD_SMI.search(text) else ""
    return "nvidia-smi" if path.suffix == ".txt" else ""


def _convert(path: Path, tool: str) -> Recording:
    # They import pynvml, which a daemon that only checks a recording would keep in memory.
    from kernelcast.exporter.nvml.recordings import amd_smi, nvidia_smi, rocm_smi  # noqa: PLC0415

    if tool == "rocm-smi":
        return rocm_smi.read_capture(path)
    return amd_smi.read_capture(path) if tool == "amd-smi" else nvidia_smi.read_capture(path)


def check_any(path: Path) -> None:
    """Check a recording without keeping it in memory.

    Raises:
        TraceError: As `read_any`.
    """
    if tool := _tool(path):
        _convert(path, tool)
        return
    for _ in moments(path):
        pass
