"""Fits the shipped factors of intervals on simulated seeds: `python -m benchmarks.predictor.fitting.factors`.

No benchmark scores these seeds. Claims are due on the second day, when faults and deploys come; a population with 29 %
of faulty series and one with 2 % have equal shares.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.predictor.calibration import POPULATIONS
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.passage.calibration import SIMULATION
from kernelcast.predictor.passage.series import BLOCK_SECONDS, condense
from kernelcast.predictor.scoring.classes import CLASSES, class_number
from kernelcast.predictor.scoring.intervals import COVERAGES, LEVELS, surprise_of
from kernelcast.predictor.scoring.priors import STATES, states
from kernelcast.predictor.scoring.widening import PRIOR_LIMITS, needed_factors

SEEDS: Final = range(100_001, 100_004)
HORIZON_SECONDS: Final = 14_400.0
PATH: Final = Path(__file__).parents[3] / "predictor/kernelcast/predictor/scoring/factors.json"
_LEAD: Final = round(HORIZON_SECONDS / BLOCK_SECONDS)
_EVERY_BLOCKS: Final = 8
_KNOTS: Final = 40


def main() -> int:
    """Fit and write the file."""
    parts = []
    for seed in SEEDS:
        parts += [_observations(generate(seed, counts)) for counts in POPULATIONS.values()]
        sys.stdout.write(f"seed {seed}\n")
    needed, classes, kinds = (np.concatenate([part[number] for part in parts]) for number in range(3))
    found = {
        CLASSES[number]: [_knots(needed[(classes == number) & (kinds == state)]) for state in range(STATES)]
        for number in np.unique(classes).tolist()
    }
    written = {"origin": SIMULATION, "seeds": [SEEDS[0], SEEDS[-1]], "horizon_seconds": HORIZON_SECONDS}
    PATH.write_text(json.dumps({**written, "classes": found}, indent=1) + "\n", encoding="utf-8")
    return 0


def _observations(scenarios: Scenarios) -> tuple[Floats, Ints, Ints]:
    """Needed factors, shape (claims, coverages), class and state of each claim."""
    width = round(BLOCK_SECONDS / scenarios.interval_seconds)
    values, _ = condense(scenarios.values, width)
    panel = Panel(values, 0, int(BLOCK_SECONDS), np.zeros(len(values), np.int64))
    quantiles = forecast(panel, _LEAD, LEVELS, ()).quantiles
    classes = np.array([class_number(str(metric)) for metric in scenarios.metrics], dtype=np.int64)
    median, pairs = LEVELS.index(0.5), tuple((low, high) for _, low, high in COVERAGES)
    columns = []
    for block in range(scenarios.history // width - _LEAD, values.shape[1] - _LEAD, _EVERY_BLOCKS):
        made, truth = quantiles[:, :, block].T, values[:, block + _LEAD]
        kinds = states(surprise_of(values[:, block], quantiles[:, :, block - _LEAD].T))
        known = np.isfinite(made).all(axis=1) & np.isfinite(truth)
        columns.append((needed_factors(made, truth, pairs, median)[known], classes[known], kinds[known]))
    needed, owner, kind = (np.concatenate([column[number] for column in columns]) for number in range(3))
    return needed, owner, kind


def _knots(needed: Floats) -> list[list[Any]]:
    """Equally likely factors for each coverage; an interval without width that missed counts as the widest."""
    level = (np.arange(_KNOTS) + 0.5) / _KNOTS
    filled = np.where(np.isnan(needed), PRIOR_LIMITS[1], np.minimum(needed, PRIOR_LIMITS[1]))
    return [[round(float(value), 3) for value in np.quantile(column, level)] for column in filled.T]


if __name__ == "__main__":
    sys.exit(main())
