"""Scores of the predictor: `python -m benchmarks.predictor NAME [--data PATH] [--seed N] [--json FILE]`.

Each benchmark prints a table, with its peers beside it in the same run; `--json` writes all figures to a file.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.predictor.options import Options

NAMES: Final = (
    "nab",
    "forecast",
    "deep",
    "observability",
    "degradation",
    "worlds",
    "contention",
    "real-faults",
    "fleet",
    "others-fleet",
    "stragglers",
    "fleet-baselines",
    "calibration",
    "scale",
    "restart",
    "diagnosis",
)

_ROOMS: Final = {
    "fleet-baselines": "fleet.baselines",
    "worlds": "worlds.benchmark",
    "others-fleet": "worlds.fleet_pages",
}
"""Benchmarks inside the folder of another."""


def available() -> list[str]:
    """Names of the benchmarks that this revision has."""
    return [name for name in NAMES if find_spec(_module(name)) is not None]


def main() -> int:
    """Run one benchmark; the exit code is 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predictor", description=__doc__)
    parser.add_argument("name", choices=available(), help="the benchmark")
    parser.add_argument("--data", type=Path, help="folder or file with recordings; default: the shared ones")
    parser.add_argument("--seed", type=int, default=1, help="of everything random; default: 1")
    parser.add_argument("--seeds", type=int, metavar="K", help="seeds from --seed on, of the fleets only; default: 5")
    parser.add_argument(
        "--series", type=int, help="number of series, for scale and restart, or of a world; of GPUs, for others-fleet"
    )
    parser.add_argument("--small", action="store_true", help="a small case, to try a change; of the fleets only")
    parser.add_argument("--deep", action="store_true", help="with fitted models as well; forecast and observability")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    chosen = parser.parse_args()
    if chosen.data is not None and not chosen.data.exists():
        parser.error(f"--data {chosen.data} does not exist")
    started = time.process_time()
    module = import_module(_module(chosen.name))
    result = module.run(
        Options(chosen.data, chosen.seed, chosen.series, chosen.small, chosen.deep, chosen.seeds, chosen.json)
    )
    result["processor_seconds"] = round(time.process_time() - started, 2)
    sys.stdout.write(module.table(result) + "\n")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _module(name: str) -> str:
    return f"benchmarks.predictor.{_ROOMS.get(name, name.replace('-', '_'))}"


if __name__ == "__main__":
    sys.exit(main())
