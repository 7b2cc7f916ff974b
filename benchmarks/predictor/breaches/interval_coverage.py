"""Coverage of forecast intervals on simulated series, by class of metric and horizon.

It is scored as a live predictor scores itself. Every series is forecast from its means over five minutes, one claim at
a time for each horizon. Intervals are scaled by the claims that have come due before, healthy series and faulty ones
together. The first day is not counted. Beside the coverage stand the mean width of the 95 % intervals, their interval
score and the quantile loss, each relative to that of intervals that are not scaled. Source of the score: Gneiting and
Raftery, Strictly Proper Scoring Rules, JASA 102, 2007, section 6.2.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.passage.series import BLOCK_SECONDS, condense
from kernelcast.predictor.scoring.classes import CLASSES, class_number
from kernelcast.predictor.scoring.intervals import COVERAGES, LEVELS, surprise_of
from kernelcast.predictor.scoring.scores import Scoring
from kernelcast.predictor.scoring.widening import widened

HORIZONS_SECONDS: Final = (300.0, 900.0, 3600.0, 14_400.0)
"""A day ahead is left out: there is one day of history."""
TOLERANCE: Final = 0.02
_NANOSECONDS: Final = 1_000_000_000


def coverage(populations: Sequence[Scenarios]) -> dict[str, Any]:
    """Score the intervals of several populations, each by itself, and pool their claims.

    Returns:
        Figures ready for JSON, by class and horizon: `claims`, `covered` at 50, 80 and 95 %, the same of intervals that
        were not scaled, and `width`, `interval_score` and `loss` as ratios to theirs; `holds` if all are within the
        tolerance.
    """
    parts = [_claims(scenarios) for scenarios in populations]
    classes, horizons, truth, published, plain = (
        np.concatenate([part[number] for part in parts]) for number in range(5)
    )
    cells: dict[str, dict[str, Any]] = {}
    for number in np.unique(classes).tolist():
        mine = {f"{each:g}": (classes == number) & (horizons == each) for each in HORIZONS_SECONDS}
        cells[CLASSES[number]] = {
            name: _cell(truth[chosen], published[chosen], plain[chosen])
            for name, chosen in mine.items()
            if chosen.any()
        }
    nominal = np.array([level for level, _, _ in COVERAGES])
    off = np.abs(np.array([cell["covered"] for cell_of in cells.values() for cell in cell_of.values()]) - nominal)
    return {"classes": cells, "largest_deviation": round(float(off.max()), 4), "tolerance": TOLERANCE,
            "holds": bool((off <= TOLERANCE).all())}  # fmt: skip


def lines(figures: dict[str, Any]) -> list[str]:
    """The figures as text."""
    verdict = "all hold" if figures["holds"] else "NOT all hold"
    shown = [f"  intervals of 50, 80 and 95 %: largest deviation {figures['largest_deviation']}; {verdict}"]
    for name, horizons in figures["classes"].items():
        for horizon, cell in horizons.items():
            shares, plain = (" / ".join(f"{share:.3f}" for share in cell[key]) for key in ("covered", "not_scaled"))
            claims = f"{float(horizon) / 3600:5.2g} h: {cell['claims']:6} claims"
            ratios = "width x{width}, interval score x{interval_score}, loss x{loss}".format(**cell)
            shown.append(f"  {name:12} {claims}, {shares}; not scaled {plain}; {ratios}")
    return shown


def comparable(scenarios: Scenarios) -> tuple[Floats, Ints]:
    """Means over blocks, shape (n, blocks), durations as multiples of their series' median; and class numbers."""
    values, _ = condense(scenarios.values, round(BLOCK_SECONDS / scenarios.interval_seconds))
    classes = np.array([class_number(str(metric)) for metric in scenarios.metrics], dtype=np.int64)
    usual = np.where(classes == CLASSES.index("kernel"), np.nanmedian(values, axis=1), 1.0)
    return values / usual[:, None], classes


def interval_score(truth: Floats, lower: Floats, upper: Floats, nominal: float) -> float:
    """Mean width plus the penalty for values outside; the least for the right quantiles."""
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    return float(np.mean(upper - lower + 2.0 / (1.0 - nominal) * missed))


def _cell(truth: Floats, published: Floats, plain: Floats) -> dict[str, Any]:
    shares, figures = [], []
    for quantiles in (published, plain):
        pairs = [quantiles[:, [low, high]].T for _, low, high in COVERAGES]
        shares.append([round(float(np.mean((truth >= lower) & (truth <= upper))), 4) for lower, upper in pairs])
        least, most = pairs[-1]
        gap = truth[:, None] - quantiles
        loss = np.maximum(np.array(LEVELS) * gap, (np.array(LEVELS) - 1.0) * gap).mean()
        figures.append((np.mean(most - least), interval_score(truth, least, most, COVERAGES[-1][0]), loss))
    ratios = (round(float(ours / theirs), 3) if theirs else None for ours, theirs in zip(*figures, strict=True))
    return {"claims": len(truth), "covered": shares[0], "not_scaled": shares[1]} | dict(
        zip(("width", "interval_score", "loss"), ratios, strict=True)
    )


def _claims(scenarios: Scenarios) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """Class, horizon, value, and quantiles as published and before they were scaled, of every claim that came due."""
    values, classes = comparable(scenarios)
    panel = Panel(values, 0, int(BLOCK_SECONDS * _NANOSECONDS), np.zeros(len(values), np.int64))
    leads = [round(each / BLOCK_SECONDS) for each in HORIZONS_SECONDS]
    found = np.stack([forecast(panel, lead, LEVELS, ()).quantiles for lead in leads])
    scoring, series = Scoring(HORIZONS_SECONDS, BLOCK_SECONDS), np.arange(len(values), dtype=np.int64)
    quiet, rows = np.zeros(len(values), dtype=np.bool_), []
    for block in range(values.shape[1] - 1):
        for horizon, lead, quantiles in zip(HORIZONS_SECONDS, leads, found, strict=True):
            off = surprise_of(values[:, block], quantiles[:, :, block - lead].T) if block >= lead else None
            newest = quantiles[:, :, block].T
            scoring.claim_forecasts(block, series, classes, horizon, newest, values[:, block], surprise=off)
        if block + 1 > scenarios.history // round(BLOCK_SECONDS / scenarios.interval_seconds):
            rows.append(_due(scoring, block + 1, values, np.array(leads), found))
        known = np.isfinite(values[:, block + 1])
        scoring.settle(block + 1, series[known], classes[known], values[known, block + 1], quiet[known], quiet[known])
    owner, numbers, truth, published, plain = (np.concatenate([row[number] for row in rows]) for number in range(5))
    return classes[owner], np.array(HORIZONS_SECONDS)[numbers], truth, published, plain


def _due(
    scoring: Scoring, block: int, values: Floats, leads: Ints, found: Floats
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Series, number of the horizon, value and both quantiles of the claims that are due at a block."""
    pending = scoring.intervals.pending
    series, horizon = pending.ints("series"), pending.ints("horizon")
    plain = found[horizon, :, series, block - leads[horizon]]
    pairs, median = tuple((low, high) for _, low, high in COVERAGES), LEVELS.index(0.5)
    published = widened(pending.floats("quantiles"), pending.floats("factors"), pairs, median)
    usable = np.isfinite(values[series, block]) & np.isfinite(plain).all(axis=1) & (pending.ints("due") == block)
    shown = np.maximum(published, 0.0)
    return series[usable], horizon[usable], values[series, block][usable], shown[usable], plain[usable]
