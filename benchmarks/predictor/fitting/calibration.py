"""Fits the shipped calibration on simulated seeds: `python -m benchmarks.predictor.fitting.calibration`.

No benchmark scores these seeds.
Moments before a fault's onset are left out: no detector can foresee an onset, and the share of series that will have
one is a property of the simulation, not of a user's fleet.
"""

import json
import sys
from pathlib import Path
from typing import Final

import numpy as np
from benchmarks.predictor.breaches import passage_run
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.scenario import CONTENTION, NEVER, Scenarios

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.passage.calibration import SIMULATION
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS

SEEDS: Final = range(100_001, 100_007)
PATH: Final = Path(__file__).parents[3] / "predictor/kernelcast/predictor/passage/calibration.json"
_EDGES: Final = np.array([0, 1e-4, 0.003, 0.02, 0.06, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.995, 1.0])
_QUIET_BINS: Final = 2
_FLEET_ODDS: Final = 0.02 / 0.98
_SIMULATED_ODDS: Final = 160 / 360
_PRIOR_SERIES: Final = 2.0
"""Weight of the computed probability, in series: a bin with few of them stays near it."""


def main() -> int:
    """Fit and write the file."""
    said, came, weight, faulty = [], [], [], []
    for seed in SEEDS:
        scenarios = generate(seed)
        one = _observations(scenarios, passage_run.run(scenarios, calibration=None))
        said.append(one[0])
        came.append(one[1])
        weight.append(one[2])
        faulty.append(one[3])
        sys.stdout.write(f"seed {seed}\n")
    rows = [
        _fit(
            *(np.concatenate([part[number] for part in parts]) for parts in (said, came, weight, faulty)),
            seconds=horizon,
        )
        for number, horizon in enumerate(HORIZONS_SECONDS)
    ]
    written = {"origin": SIMULATION, "seeds": [SEEDS[0], SEEDS[-1]], "horizons": rows}
    PATH.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0


def _observations(
    scenarios: Scenarios, found: passage_run.Run
) -> tuple[list[Floats], list[Bools], list[Floats], list[Bools]]:
    """Probability, outcome, weight and fault of each usable evaluation, by horizon; a series weighs 1 in all."""
    issued = found.issued
    coming = np.where(scenarios.breach == NEVER, np.iinfo(np.int64).max, scenarios.breach)
    faulty = scenarios.onset != NEVER
    usable = (issued < coming[:, None]) & (~faulty[:, None] | (issued >= scenarios.onset[:, None]))
    usable &= ~scenarios.beyond[:, issued] & (scenarios.classes != CONTENTION)[:, None]
    # A drift that does not breach within the evaluation may do so later: its outcome is not known.
    usable &= ~(faulty & (scenarios.breach == NEVER))[:, None]
    said, came, weights, faults = [], [], [], []
    for number, horizon in enumerate(HORIZONS_SECONDS):
        steps = round(horizon / scenarios.interval_seconds)
        known = usable & np.isfinite(found.probability[:, :, number])
        weight = known / np.maximum(known.sum(axis=1, keepdims=True), 1)
        said.append(found.probability[:, :, number][known])
        came.append((coming[:, None] <= issued + steps)[known])
        weights.append(weight[known])
        faults.append(np.broadcast_to(faulty[:, None], known.shape)[known])
    return said, came, weights, faults


def _fit(said: Floats, came: Bools, weight: Floats, faulty: Bools, *, seconds: float) -> dict[str, object]:
    """Isotonic regression on bins: pool adjacent violators."""
    bins = np.clip(np.searchsorted(_EDGES, said, side="right") - 1, 0, len(_EDGES) - 2)
    count = len(_EDGES) - 1
    # Without a sign of a drift its probability is that of a fleet, not of a simulation with 29 faulty series in 100.
    weight = np.where(faulty & (bins < _QUIET_BINS), weight * _FLEET_ODDS / _SIMULATED_ODDS, weight)
    mass = np.bincount(bins, weight, count)
    centre = (_EDGES[:-1] + _EDGES[1:]) / 2
    middle = np.divide(np.bincount(bins, weight * said, count), mass, out=centre, where=mass > 0)
    share = (np.bincount(bins, weight * came, count) + _PRIOR_SERIES * middle) / (mass + _PRIOR_SERIES)
    weights: Floats = (mass + _PRIOR_SERIES).astype(np.float64)
    fitted = isotonic(share, weights)
    computed, calibrated = np.r_[0.0, middle, 1.0], np.r_[fitted[0], fitted, fitted[-1]]
    return {
        "seconds": seconds,
        "computed": [round(float(value), 6) for value in computed],
        "calibrated": [round(float(value), 5) for value in calibrated],
    }


def isotonic(values: Floats, weight: Floats) -> Floats:
    """The closest sequence that does not descend, by weighted least squares: pool adjacent violators."""
    pools: list[tuple[float, float, int]] = []
    for value, mass in zip(values.tolist(), weight.tolist(), strict=True):
        pool = (value, mass, 1)
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            total = before[1] + pool[1]
            pool = ((before[0] * before[1] + pool[0] * pool[1]) / total, total, before[2] + pool[2])
        pools.append(pool)
    return np.concatenate([np.full(size, value) for value, _, size in pools])


if __name__ == "__main__":
    sys.exit(main())
