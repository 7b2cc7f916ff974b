"""The files that are mapped into this process."""

from pathlib import Path
from typing import Final

MAPS: Final = Path("/proc/self/maps")


def mapped_text(maps: Path = MAPS) -> str:
    """The process's mappings; empty where they cannot be read."""
    try:
        return maps.read_text(errors="replace")
    except OSError:
        return ""


def mapped_libraries(maps: Path = MAPS) -> frozenset[str]:
    """File names of all libraries in this process; empty where the system does not say."""
    lines = mapped_text(maps).splitlines()
    return frozenset(line.rsplit("/", 1)[1] for line in lines if "/" in line and ".so" in line)
