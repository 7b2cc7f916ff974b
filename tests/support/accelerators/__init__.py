"""Pages of other vendors' exporters, each with the source of its names and values in its first lines."""

from pathlib import Path
from typing import Final

PAGES: Final = {path.stem: path.read_text() for path in sorted(Path(__file__).parent.glob("*.prom"))}
