"""Runs worlds through the code of `kernelcast backtest`, and scores alerts: day one apart from day two on."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from benchmarks.predictor.worlds.series import World, WorldSeries
from scipy.stats import beta, chi2

from kernelcast.predictor.arrays import Bools
from kernelcast.predictor.backtest.breaches import BreachOptions, breach_columns
from kernelcast.predictor.backtest.companions import Companion, Companions
from kernelcast.predictor.backtest.grid import GriddedSeries, SeriesBatch, inferred_interval
from kernelcast.predictor.backtest.table import CsvTable
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER

DAY_SECONDS: Final = 86_400.0
LEAST_LEAD_SECONDS: Final = 1200.0
"""A fault of hours is found where the alert comes 20 minutes before the limit is reached."""
_LATEST_SECONDS: Final = 600.0
"""A fault that reaches the limit sooner is found where the alert comes within ten minutes after that."""
SLOW_SECONDS: Final = 3 * 3600.0
"""Time from onset to breach from which leads are compared."""
_WIDTHS: Final = (24, 26, 20, 7, 20)
DAY_ONE_DAYS: Final = 1.5
"""Length of the series whose fault breaches on the first day."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Alerts on one series.

    Attributes:
        false_first: Alerts that begin on the first day, without a fault.
        days_first: Days of that kind.
        false_later: Alerts that begin afterwards, without a fault.
        days_later: Days of that kind.
        lead_seconds: From the first alert since the onset to the breach; NaN for healthy series, -inf for a miss.
        drift_seconds: From onset to breach; NaN for healthy series.
    """

    false_first: int
    days_first: float
    false_later: int
    days_later: float
    lead_seconds: float = np.nan
    drift_seconds: float = np.nan

    @property
    def found(self) -> bool:
        """Whether the fault was found in time."""
        least = LEAST_LEAD_SECONDS if self.drift_seconds > 2 * LEAST_LEAD_SECONDS else -_LATEST_SECONDS
        return self.lead_seconds >= least


def alerts(series: WorldSeries) -> Bools:
    """Whether the alert of `kernelcast backtest` fires at each time."""
    step, key = inferred_interval(series.times), (0, ())
    places = np.rint((series.times - series.times[0]) / step).astype(np.int64)
    length = int(places[-1]) + 1
    values = np.full(length, np.nan)
    values[places] = series.values
    gridded = GriddedSeries(
        key, range(len(places)), places, values, float(series.times[0]), step, (), np.zeros(length, np.bool_)
    )
    end_ns = int((series.times[-1] + step) * 1e9)
    batch = SeriesBatch([gridded], Panel(values[None], end_ns, int(step * 1e9), np.zeros(1, np.int64)))
    found = [Companion(name, {}, series.times, values) for name, values in series.companions.items()]
    own = series.metric == kernel.DURATION.prometheus_name
    options = BreachOptions(
        threshold=None if own else series.limit,
        meaning=MEANINGS.get(series.metric, OTHER),
        companions=Companions(CsvTable(columns=[()]), found),
        local_time=series.local_time,
    )
    fires: Bools = breach_columns(batch, options)["alert"][0, places] > 0
    return fires


def judge(series: WorldSeries, fires: Bools) -> Outcome:
    """Compare alerts with the truth."""
    begins = fires & ~np.r_[False, fires[:-1]]
    end = series.times[-1] if series.onset is None else series.onset
    counted = series.times < end
    first = series.times < series.times[0] + DAY_SECONDS
    days = (end - series.times[0]) / DAY_SECONDS
    counts = (int((begins & counted & first).sum()), min(days, 1.0), int((begins & counted & ~first).sum()))
    outcome = (*counts, max(days - 1.0, 0.0))
    if series.onset is None or series.breach is None:
        return Outcome(*outcome)
    since = fires & (series.times >= series.onset)
    lead = series.breach - series.times[np.argmax(since)] if since.any() else -np.inf
    return Outcome(*outcome, float(lead), series.breach - series.onset)


def score(worlds: Sequence[World], *, seed: int, series: int, days: float) -> dict[str, dict[str, Any]]:
    """Score each world; faulty ones once more with the fault on the first day. Prints each world's line at once.

    Args:
        worlds: The worlds.
        seed: Of everything random.
        series: Series a world.
        days: Length of a series; a faulty one ends two hours after its breach.
    """
    found: dict[str, dict[str, Any]] = {}
    for world in worlds:
        # The name's bytes: another world in the list changes no series.
        rng = np.random.default_rng([seed, *world.name.encode()])
        outcomes = [judge(one, alerts(one)) for one in (world.make(rng, days) for _ in range(series))]
        figures = found[world.name] = _figures(outcomes)
        if not world.healthy:
            with suppress(ValueError):  # a world of another hand may need more days
                early = [judge(one, alerts(one)) for one in (world.make(rng, DAY_ONE_DAYS) for _ in range(series))]
                figures["day_one_recall"] = _share([outcome.found for outcome in early])
        sys.stderr.write(f"{_line(world.name, figures)}\n")
    return found


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "series": len(outcomes),
        "day_one": _rate(sum(one.false_first for one in outcomes), sum(one.days_first for one in outcomes)),
        "later": _rate(sum(one.false_later for one in outcomes), sum(one.days_later for one in outcomes)),
    }
    faults = [one for one in outcomes if np.isfinite(one.drift_seconds)]
    if faults:
        figures["recall"] = _share([one.found for one in faults])
        slow = [max(one.lead_seconds, 0.0) / 60 for one in faults if one.drift_seconds >= SLOW_SECONDS]
        figures["median_lead_minutes"] = float(np.median(slow)) if slow else None
    return figures


def _rate(count: int, days: float) -> dict[str, float]:
    """A rate a day with its exact 95 % interval: Garwood (1936)."""
    if not days:
        return {"count": 0, "days": 0.0, "rate": 0.0, "low": 0.0, "high": np.inf}
    low = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    return {"count": count, "days": days, "rate": count / days, "low": low / days,
            "high": chi2.ppf(0.975, 2 * count + 2) / 2 / days}  # fmt: skip


def _share(hits: Sequence[bool]) -> dict[str, float]:
    """A share with its exact 95 % interval: Clopper and Pearson (1934)."""
    n, k = len(hits), sum(hits)
    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
    return {"count": k, "of": n, "share": k / n, "low": float(low), "high": float(high)}


def table(found: dict[str, dict[str, Any]]) -> str:
    """Text for people: rates a series-day and shares, with their 95 % intervals."""
    heads = ("day one, false/day", "from day two, false/day", "recall", "lead", "day one")
    lines = [f"{'':20}{'n':>4}" + "".join(f"{head:>{width}}" for head, width in zip(heads, _WIDTHS, strict=True))]
    return "\n".join([*lines, *(_line(name, figures) for name, figures in found.items())])


def _line(name: str, figures: Mapping[str, Any]) -> str:
    cells = [f"{name:20}{figures['series']:>4}", f"{_rate_cell(figures['day_one']):>24}"]
    cells += [f"{_rate_cell(figures['later']):>26}"]
    if "recall" in figures:
        lead = figures["median_lead_minutes"]
        cells += [f"{_share_cell(figures['recall']):>20}", f"{'-' if lead is None else round(lead):>7}"]
        cells += [f"{_share_cell(figures['day_one_recall']):>20}"] if "day_one_recall" in figures else []
    return "".join(cells)


def _rate_cell(figure: dict[str, float]) -> str:
    return f"{figure['rate']:.3f} ({figure['low']:.3f}-{figure['high']:.3f})"


def _share_cell(figure: dict[str, float]) -> str:
    return f"{figure['share']:.2f} ({figure['low']:.2f}-{figure['high']:.2f})"
