"""Tunes a recording through exporter, Kafka and predictor, and without them: `python -m tests.nightly.tune_replay`.

Both must keep the same configurations after the same number of evaluations, for every seed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.recordings import grid

from kernelcast.tuning.formats import kernel_tuner

COMMAND: Final = (sys.executable, "-m", "lab.tune_replay")
SEEDS: Final = 10
SAME: Final = ("seed", "evaluations", "kept", "best")


def main() -> int:
    """Tune twice and compare.

    Returns:
        The exit code: 1 if a seed differs.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grid.json"
        path.write_text(json.dumps(kernel_tuner.document(grid())))
        options = (str(path), "--seeds", str(SEEDS))
        alone, through = _runs(*options), _runs(*options, "--through", "kafka")
    differing = [one["seed"] for one, other in zip(alone, through, strict=True) if _result(one) != _result(other)]
    sys.stdout.write(f"{SEEDS - len(differing)} of {SEEDS} seeds have the same result through Kafka\n")
    return int(bool(differing))


def _result(run: dict[str, Any]) -> list[Any]:
    return [[run.get(key) for key in SAME], [one["decision"] for one in run.get("verdicts", ())]]


def _runs(*options: str) -> list[dict[str, Any]]:
    done = subprocess.run((*COMMAND, *options), stdout=subprocess.PIPE, text=True, check=False)
    runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return runs


if __name__ == "__main__":
    sys.exit(main())
