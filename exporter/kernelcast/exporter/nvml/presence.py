"""NVIDIA's devices and library on this node, found without NVML: they distinguish a broken driver from no GPU."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

DEVICE_FILES: Final = Path("/dev")
PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
LIBRARY: Final = "libnvidia-ml.so.1"
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""Begin of the PCI class of display and 3D controllers; NVIDIA's other devices are sound, USB and bridges."""


def has_gpu(device_files: Path = DEVICE_FILES, pci_devices: Path = PCI_DEVICES) -> bool:
    """Whether the driver has made a device file of a GPU, or the PCI bus lists one."""
    if any(device_files.glob("nvidia[0-9]*")):
        return True
    return any(
        _text(device / "vendor") == _NVIDIA and _text(device / "class").startswith(_DISPLAY)
        for device in pci_devices.glob("*")
    )


def library_fault(load: Callable[[str], Any] = ctypes.CDLL) -> str:
    """The reason why NVML's library is there and cannot be loaded, with the remedy; empty if it is not there.

    A container runtime that was not set up mounts an empty file in its place.
    """
    try:
        load(LIBRARY)
    except OSError as error:
        if "No such file" not in str(error):
            return (
                f"{error}; the file is damaged or of another system: install the driver's libraries again, or start "
                "the container with NVIDIA's runtime"
            )
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
