"""Reads or checks a recording of NVML in either format."""

from pathlib import Path

from kernelcast.exporter.nvml.recordings.recording import Recording, moments, read


def read_any(path: Path) -> Recording:
    """Read a recording, or convert a capture of `nvidia-smi -q` (a `.txt` file) to one.

    Raises:
        TraceError: The file cannot be read, or is neither.
    """
    if path.suffix != ".txt":
        return read(path)
    # It imports pynvml, which a daemon that only checks a recording would keep in memory.
    from kernelcast.exporter.nvml.recordings.nvidia_smi import read_capture  # noqa: PLC0415

    return read_capture(path)


def check_any(path: Path) -> None:
    """Check a recording without keeping it in memory.

    Raises:
        TraceError: As `read_any`.
    """
    if path.suffix == ".txt":
        read_any(path)
        return
    for _ in moments(path):
        pass
