"""Paths of the repository, for the descriptions that read files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
ROOTS: Final = ("core", "exporter", "bridge", "predictor", "grafana")


def sources() -> Iterator[Path]:
    """Every Python file of the packages."""
    for root in ROOTS:
        yield from sorted((REPOSITORY / root / "kernelcast").rglob("*.py"))
