"""Options that all benchmarks of the predictor share."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHARED: Final = Path(__file__).parents[3] / "shared" / "data"


@dataclass(frozen=True)
class Options:
    """Input of a benchmark.

    Attributes:
        data: Folder or file with recordings; None for the shared ones.
        seed: Of everything random.
        series: Number of series, where a benchmark has a choice; None for its default.
        small: Whether to measure a small case, to try a change in minutes; its figures show nothing else.
        deep: Whether to fit models of statsmodels as well, and to score forecasts with them beside those without.
        seeds: Number of seeds, from `seed` on; None for the default. Of the fleet only.
        json: File for all figures; the fleet writes it after each seed.
    """

    data: Path | None
    seed: int
    series: int | None = None
    small: bool = False
    deep: bool = False
    seeds: int | None = None
    json: Path | None = None

    def recordings(self, name: str) -> Path:
        """The folder with recordings; without one the program ends with exit code 2.

        Args:
            name: The folder's name beside the checkout.
        """
        found = self.data or SHARED / name
        if not found.exists():
            sys.stderr.write(f"{found} does not exist; name the recordings with --data\n")
            sys.exit(2)
        return found
