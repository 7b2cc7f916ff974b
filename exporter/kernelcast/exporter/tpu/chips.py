"""Whether this node has TPUs, and which: from the list of PCI devices.

Ids: tpu-info, tpu_info/device.py. Google's network cards have the same vendor, so the device decides.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
PORTS_VARIABLE: Final = "TPU_RUNTIME_METRICS_PORTS"
DEFAULT_PORT: Final = 8431
"""libtpu's, if the variable is not set."""
GOOGLE: Final = "0x1ae0"
"""PCI vendor id."""
UNKNOWN: Final = "TPU"
"""Model name where `exporter.tpu` is on and no known device is found."""

_MODELS: Final = MappingProxyType(
    {
        "0x005e": "TPU v4",
        "0x0062": "TPU v5p",
        "0x0063": "TPU v5e",
        "0x006f": "TPU v6e",
        "0x0076": "TPU7x",
    }
)
_OLD: Final = "0x0027"
_OLD_MODELS: Final = MappingProxyType({"0x004e": "TPU v2", "0x004f": "TPU v3"})


def tpu_model(devices: Path = PCI_DEVICES) -> str:
    """Return the model of this node's TPUs; empty if no known one is found."""
    for device in sorted(devices.glob("*")):
        if _word(device / "vendor") == GOOGLE:
            chip = _word(device / "device")
            model = _OLD_MODELS.get(_word(device / "subsystem_device"), "") if chip == _OLD else _MODELS.get(chip, "")
            if model:
                return model
    return ""


def ports_of(environ: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Return the ports that are configured for libtpu on this node, one for each program; invalid ports are ignored."""
    words = environ.get(PORTS_VARIABLE, "").split(",")
    ports = tuple(dict.fromkeys(int(word) for word in words if word.strip().isdecimal() and 0 < int(word) < 65_536))
    return ports or (DEFAULT_PORT,)


def _word(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
