"""The files that are mapped into this process."""

import re
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


def mapped_files(name: str, maps: Path = MAPS) -> list[str]:
    """Paths of the mapped files whose names begin so, each once; `libcudart.so` also finds `libcudart-1b2c.so.12`."""
    stem = name.removesuffix(".so")
    paths = dict.fromkeys(line[line.index("/") :] for line in mapped_text(maps).splitlines() if "/" in line)
    return [path for path in paths if re.match(rf"{stem}(-[0-9a-f]+)?\.so", path.rsplit("/", 1)[1])]
