"""Confusion matrix of causes: the cause that is found at each fault's first alert, against the simulated one."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from benchmarks.predictor.simulation.generate import METRICS
from benchmarks.predictor.simulation.scenario import NEVER, Scenarios

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.backtest.causes import causes_of_breaches
from kernelcast.predictor.causes.observed import Around, Observed
from kernelcast.wire.catalogue.meanings import MEANINGS, Cause

TRUTH: Final[Mapping[str, Cause]] = MappingProxyType(
    {
        "thermal-drift": Cause.THERMAL,
        "ageing-kernel": Cause.AGEING,
        "memory-leak": Cause.MEMORY_LEAK,
        "load-growth": Cause.LOAD,
        "contention": Cause.CONTENTION,
    }
)
"""Cause of each class of faults."""
WINDOW_SECONDS: Final = 86_400.0


def confusion(scenarios: Scenarios, alerts: Bools) -> dict[str, Any]:
    """Count the causes found at the first alert since the onset, for series with and without companions.

    Args:
        scenarios: The series; `companions` are NaN where a series has none.
        alerts: Shape (n, t), whether the alert fires.

    Returns:
        By "with companions" and "without companions": `matrix`, by true cause and found cause, and `right`, the
        share that is right; None without a fault.
    """
    shown = np.isfinite(next(iter(scenarios.companions.values()))[:, 0])
    rows, ends = first_alerts(scenarios, alerts)
    found = causes_at(scenarios, rows, ends)
    truth = [TRUTH[str(name)] for name in scenarios.classes[rows]]
    parts = {"with companions": shown[rows], "without companions": ~shown[rows]}
    return {name: _matrix([pair for pair, mine in zip(_pairs(truth, found), part, strict=True) if mine])
            for name, part in parts.items()}  # fmt: skip


def lines(result: dict[str, Any]) -> list[str]:
    """Text for people."""
    text = ["", "causes at the first alert, true: found"]
    for name, part in result.items():
        share = "-" if part["right"] is None else f"{part['right']:.3g}"
        text.append(f"  {name}: {share} right")
        for cause, counts in part["matrix"].items():
            text.append(f"    {cause:16}" + ", ".join(f"{other} {count}" for other, count in counts.items()))
    return text


def first_alerts(scenarios: Scenarios, alerts: Bools) -> tuple[Ints, Ints]:
    """Faulty series with an alert since the onset, and the interval of the first one."""
    since = (
        np.arange(scenarios.length) >= np.where(scenarios.onset == NEVER, scenarios.length, scenarios.onset)[:, None]
    )
    firing = alerts & since & np.isin(scenarios.classes, list(TRUTH))[:, None]
    rows = np.flatnonzero(firing.any(axis=1))
    return rows.astype(np.int64), np.argmax(firing[rows], axis=1).astype(np.int64)


def causes_at(scenarios: Scenarios, rows: Ints, ends: Ints) -> list[Cause]:
    """Causes of some series, each at one interval; of what came before it alone."""
    found: dict[int, Cause] = {}
    for metric in METRICS.values():
        places = np.flatnonzero(scenarios.metrics[rows] == metric)
        if len(places):
            seen = _observed(scenarios, metric, rows[places], ends[places])
            causes = causes_of_breaches(seen, MEANINGS[metric])
            found |= dict(zip(places.tolist(), (one.cause for one in causes), strict=True))
    return [found[place] for place in range(len(rows))]


def _observed(scenarios: Scenarios, metric: str, rows: Ints, ends: Ints) -> Observed:
    places = ends[:, None] - np.arange(round(WINDOW_SECONDS / scenarios.interval_seconds) - 1, -1, -1)

    def window(values: Floats) -> Floats:
        found = np.moveaxis(values, -1, 1)[rows[:, None], np.maximum(places, 0)].astype(np.float64)
        found[places < 0] = np.nan
        return np.moveaxis(found, 1, -1)

    limits: Floats = np.where(scenarios.limit_is_known, scenarios.limit[:, 0], np.nan)[rows]
    around = Around(
        programs=None if scenarios.programs is None else window(scenarios.programs),
        siblings=None if scenarios.siblings is None else window(scenarios.siblings),
        process=scenarios.process[rows[:, None], np.maximum(places, 0)],
        version=scenarios.version[rows[:, None], np.maximum(places, 0)],
        limits={metric: limits} if np.isfinite(limits).any() else {},
    )
    values = {name: window(array) for name, array in scenarios.companions.items()}
    labels: list[tuple[tuple[str, str], ...]] = [()] * len(rows)
    return Observed(
        {**values, metric: window(scenarios.values)}, scenarios.interval_seconds, labels, [0] * len(rows), around
    )


def _pairs(truth: list[Cause], found: list[Cause]) -> list[tuple[Cause, Cause]]:
    return list(zip(truth, found, strict=True))


def _matrix(pairs: list[tuple[Cause, Cause]]) -> dict[str, Any]:
    causes = sorted({cause for cause, _ in pairs})
    return {
        "right": round(sum(true == found for true, found in pairs) / len(pairs), 4) if pairs else None,
        "matrix": {cause.value: {other.value: count for other, count in
                   Counter(found for true, found in pairs if true is cause).most_common()} for cause in causes},
    }  # fmt: skip
