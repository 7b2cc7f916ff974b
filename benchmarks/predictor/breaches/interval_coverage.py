"""Coverage of forecast intervals on simulated series, by class of metric and horizon.

It is scored as a live predictor scores itself. Every series is forecast from its means over five minutes, one claim at
a time for each horizon. Intervals are scaled by the claims that have come due before, healthy series and faulty ones
together. The first day is not counted.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.passage.series import BLOCK_SECONDS, condense
from kernelcast.predictor.scoring.classes import CLASSES, class_number
from kernelcast.predictor.scoring.intervals import COVERAGES, LEVELS, surprise_of
from kernelcast.predictor.scoring.scores import Scoring

HORIZONS_SECONDS: Final = (300.0, 900.0, 3600.0, 14_400.0)
"""A day ahead is left out: there is one day of history."""
TOLERANCE: Final = 0.02
_NANOSECONDS: Final = 1_000_000_000


def coverage(populations: Sequence[Scenarios]) -> dict[str, Any]:
    """Score the intervals of several populations, each by itself, and add the counts.

    Returns:
        Figures ready for JSON, by class and horizon: `claims`, `covered` at 50, 80 and 95 %, and the same of
        intervals that were not scaled; `holds` if all are within the tolerance.
    """
    counts = np.zeros((2, 2, len(CLASSES), len(HORIZONS_SECONDS), len(COVERAGES)))
    for scenarios in populations:
        counts[0] += _counts(scenarios, scaled=True)
        counts[1] += _counts(scenarios, scaled=False)
    with np.errstate(invalid="ignore"):
        scaled, plain = counts[:, 0] / counts[:, 1]
    nominal = np.array([level for level, _, _ in COVERAGES])
    cells = {
        name: {
            f"{horizon:g}": _cell(scaled[number, place], plain[number, place], int(counts[0, 1, number, place, 0]))
            for place, horizon in enumerate(HORIZONS_SECONDS)
        }
        for number, name in enumerate(CLASSES)
        if counts[0, 1, number].any()
    }
    off = np.abs(scaled - nominal)
    return {"classes": cells, "largest_deviation": round(float(np.nanmax(off)), 4), "tolerance": TOLERANCE,
            "holds": bool((off[np.isfinite(off)] <= TOLERANCE).all())}  # fmt: skip


def lines(figures: dict[str, Any]) -> list[str]:
    """The figures as text."""
    verdict = "all hold" if figures["holds"] else "NOT all hold"
    shown = [f"  intervals of 50, 80 and 95 %: largest deviation {figures['largest_deviation']}; {verdict}"]
    for name, horizons in figures["classes"].items():
        for horizon, cell in horizons.items():
            shares, plain = (" / ".join(f"{share:.3f}" for share in cell[key]) for key in ("covered", "not_scaled"))
            claims = f"{float(horizon) / 3600:5.2g} h: {cell['claims']:6} claims"
            shown.append(f"  {name:12} {claims}, {shares}; not scaled {plain}")
    return shown


def _cell(scaled: Floats, plain: Floats, claims: int) -> dict[str, Any]:
    return {"claims": claims, "covered": scaled.round(4).tolist(), "not_scaled": plain.round(4).tolist()}


def _counts(scenarios: Scenarios, *, scaled: bool) -> Floats:
    """Values inside the intervals, and all that were judged, shape (2, classes, horizons, coverages)."""
    width = round(BLOCK_SECONDS / scenarios.interval_seconds)
    values, _ = condense(scenarios.values, width)
    panel = Panel(values, 0, int(BLOCK_SECONDS * _NANOSECONDS), np.zeros(len(values), np.int64))
    found = [forecast(panel, round(each / BLOCK_SECONDS), LEVELS, ()).quantiles for each in HORIZONS_SECONDS]
    scoring = Scoring(HORIZONS_SECONDS, BLOCK_SECONDS)
    series = np.arange(len(values), dtype=np.int64)
    classes = np.array([class_number(str(metric)) for metric in scenarios.metrics], dtype=np.int64)
    quiet = np.zeros(len(values), dtype=np.bool_)
    total = np.zeros((2, len(CLASSES), len(HORIZONS_SECONDS), len(COVERAGES)))
    for block in range(values.shape[1] - 1):
        for horizon, quantiles in zip(HORIZONS_SECONDS, found, strict=True):
            made = block - round(horizon / BLOCK_SECONDS)
            off = surprise_of(values[:, block], quantiles[:, :, made].T) if made >= 0 else None
            newest = quantiles[:, :, block].T
            scoring.claim_forecasts(block, series, classes, horizon, newest, values[:, block], surprise=off)
        if not scaled:
            scoring.intervals.pending.columns["factors"][:] = 1.0
        known = np.isfinite(values[:, block + 1])
        scoring.settle(block + 1, series[known], classes[known], values[known, block + 1], quiet[known], quiet[known])
        # Its own sums forget; a benchmark counts every claim once.
        for place, name in enumerate(("inside", "bounded")):
            total[place] += scoring.intervals.cells[name] if block >= scenarios.history // width else 0.0
            scoring.intervals.cells[name][:] = 0.0
    return total
