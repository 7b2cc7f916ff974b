"""Pages of inference engines, each with the source of its names and values in its first lines."""

from pathlib import Path
from typing import Final

from kernelcast.wire.catalogue import inference

PAGES: Final = {server: Path(__file__).with_name(f"{server}.prom").read_text() for server in inference.ENGINES}
