"""Fits the shipped factors of intervals on simulated seeds: `python -m benchmarks.predictor.fitting.factors`.

No benchmark scores these seeds. Claims are due on the second day, when faults and deploys come; a population with 29 %
of faulty series and one with 2 % have equal shares. First the base half-widths: a multiple of the forecast's own
half-width plus a share of its median. Of those that hold the nominal share the one with the least interval score is
taken; a difference of held shares between the populations adds to the score. Then the factors that these needed.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from benchmarks.predictor.breaches.interval_coverage import comparable, interval_score
from benchmarks.predictor.calibration import POPULATIONS
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.passage.calibration import SIMULATION
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.intervals import COVERAGES, LEVELS, surprise_of
from kernelcast.predictor.scoring.priors import STATES, states, with_base_widths
from kernelcast.predictor.scoring.widening import LIMITS, needed_factors

SEEDS: Final = range(100_001, 100_004)
HORIZONS_SECONDS: Final = (300.0, 900.0, 3600.0, 14_400.0)
SCALED_ALONE: Final[Mapping[float, Sequence[str]]] = {300.0: ("memory",), 900.0: ("memory",)}
"""Classes without factors at a horizon: intervals for the few steps of a memory cost more there than they hold."""
PATH: Final = Path(__file__).parents[3] / "predictor/kernelcast/predictor/scoring/factors.json"
_EVERY_BLOCKS: Final = 8
_KNOTS: Final = 40
_SHARES: Final = (0.0, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
"""Shares of the median beside the own half-width, before both are scaled."""
_INNER_SHARES: Final = _SHARES[:8]
"""The same for all but the widest interval: larger shares hold less on fleets with few faults."""
_EVENNESS: Final = 3.0
"""A difference of .01 between the shares that the populations hold counts as 3 % of the score."""
_NO_WIDTH: Final = 1e6
Claims: TypeAlias = tuple[Floats, Floats, Ints, Ints, Ints]
_PAIRS: Final = tuple((low, high) for _, low, high in COVERAGES)
_MEDIAN: Final = LEVELS.index(0.5)


def main() -> int:
    """Fit and write the file."""
    leads = [round(seconds / BLOCK_SECONDS) for seconds in HORIZONS_SECONDS]
    parts: list[list[Claims]] = [[] for _ in leads]
    for seed in SEEDS:
        for population, counts in enumerate(POPULATIONS.values()):
            scenarios = generate(seed, counts)
            for found, lead in zip(parts, leads, strict=True):
                found.append(_observations(scenarios, population, lead))
        sys.stdout.write(f"seed {seed}\n")
    horizons = [
        {"seconds": seconds, "blocks": lead, **_fitted(found, SCALED_ALONE.get(seconds, ()))}
        for seconds, lead, found in zip(HORIZONS_SECONDS, leads, parts, strict=True)
    ]
    written = {"origin": SIMULATION, "seeds": [SEEDS[0], SEEDS[-1]], "horizons": horizons}
    PATH.write_text(json.dumps(written, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


def _fitted(parts: Sequence[Claims], without: Sequence[str]) -> dict[str, Any]:
    """Base half-widths and needed factors of each class but some."""
    made, truth, classes, kinds, population = (np.concatenate([part[number] for part in parts]) for number in range(5))
    widths, factors = {}, {}
    for number in [one for one in np.unique(classes).tolist() if CLASSES[one] not in without]:
        cells = [(classes == number) & (kinds == state) for state in range(STATES)]
        found = [_widths(made[cell], truth[cell], population[cell]) for cell in cells]
        widths[CLASSES[number]] = np.round(found, 4).tolist()
        factors[CLASSES[number]] = [
            _knots(_needed(made[cell], truth[cell], np.round(one, 4))) for cell, one in zip(cells, found, strict=True)
        ]
    return {"widths": widths, "classes": factors}


def _observations(scenarios: Scenarios, population: int, lead: int) -> Claims:
    """Quantiles, shape (claims, levels), value, class, state and population of each claim."""
    values, classes = comparable(scenarios)
    quantiles = forecast(
        Panel(values, 0, int(BLOCK_SECONDS), np.zeros(len(values), np.int64)), lead, LEVELS, ()
    ).quantiles
    columns = []
    first = scenarios.history // round(BLOCK_SECONDS / scenarios.interval_seconds)
    for block in range(first - lead, values.shape[1] - lead, _EVERY_BLOCKS):
        made, truth = quantiles[:, :, block].T, values[:, block + lead]
        kinds = states(surprise_of(values[:, block], quantiles[:, :, block - lead].T))
        known = np.isfinite(made).all(axis=1) & np.isfinite(truth)
        columns.append((made[known], truth[known], classes[known], kinds[known]))
    made, truth, owner, kind = (np.concatenate([column[number] for column in columns]) for number in range(4))
    return made, truth, owner, kind, np.full(len(truth), population)


def _needed(made: Floats, truth: Floats, widths: Floats) -> Floats:
    """Factors of the base half-widths that each claim needed, shape (claims, coverages)."""
    scaled = with_base_widths(made, np.broadcast_to(widths, (len(made), *widths.shape)), _PAIRS, _MEDIAN)
    return needed_factors(scaled, truth, _PAIRS, _MEDIAN)


def _widths(made: Floats, truth: Floats, population: Ints) -> Floats:
    """Multiple of the own half-width and added share of the median of each interval, shape (coverages, 2)."""
    center = made[:, _MEDIAN]
    found = []
    for nominal, low, high in COVERAGES:
        tried = []
        for share in _SHARES if nominal == COVERAGES[-1][0] else _INNER_SHARES:
            below, above = (np.abs(made[:, place] - center) + share * np.abs(center) for place in (low, high))
            half, away = np.where(truth > center, above, below), np.abs(truth - center)
            needed = np.divide(away, half, out=np.where(away > 0, _NO_WIDTH, 0.0), where=half > 0)
            factor = float(np.quantile(needed, nominal))
            score = interval_score(truth, np.maximum(center - factor * below, 0.0), center + factor * above, nominal)
            held = [np.mean(needed[population == each] <= factor) for each in range(len(POPULATIONS))]
            tried.append((score * (1.0 + _EVENNESS * abs(held[0] - held[1])), factor, factor * share))
        found.append(min(tried)[1:])
    return np.array(found)


def _knots(needed: Floats) -> list[list[Any]]:
    """Equally likely factors for each coverage; an interval without width that missed counts as the widest."""
    level = (np.arange(_KNOTS) + 0.5) / _KNOTS
    filled = np.where(np.isnan(needed), LIMITS[1], np.minimum(needed, LIMITS[1]))
    return [[round(float(value), 2) for value in np.quantile(column, level)] for column in filled.T]


if __name__ == "__main__":
    sys.exit(main())
