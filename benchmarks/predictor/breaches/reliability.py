"""Scores of breach probabilities: one claim for each series and horizon, reliability by bins, Brier score and skill."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from benchmarks.predictor.simulation.scenario import NEVER, Scenarios

from kernelcast.predictor.arrays import Bools, Floats, Ints

BINS: Final = ((0.0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.0))
JUDGED_FROM: Final = 0.2
LEAST_SERIES: Final = 50
TOLERANCE: Final = 0.10
_RESAMPLES: Final = 1000
_LEAST_OUTCOMES: Final = 10


@dataclass(frozen=True, slots=True)
class Claims:
    """Probabilities that were issued, and outcomes; all of shape (m,).

    Attributes:
        series: Number of the series.
        horizon_seconds: Of the claim.
        said: Probability of a breach within the horizon.
        came: Whether there was one.
        faulty: Whether the series has a fault at some time.
    """

    series: Ints
    horizon_seconds: Floats
    said: Floats
    came: Bools
    faulty: Bools

    def select(self, chosen: Bools) -> "Claims":
        """A part of the claims."""
        return Claims(*(getattr(self, name)[chosen] for name in Claims.__slots__))


def draw_claims(
    scenarios: Scenarios,
    probability: Floats,
    issued: Ints,
    horizons_seconds: Sequence[float],
    rng: np.random.Generator,
    *,
    under_way: bool = False,
) -> Claims:
    """Draw one claim for each series and horizon, at a random time from which the horizon fits into the evaluation.

    A series that is beyond its limit at that time has no claim: its probability is 1 by definition.

    Args:
        scenarios: The series.
        probability: Shape (n, e, h), NaN where the detector abstains.
        issued: Shape (e,), interval of each evaluation.
        horizons_seconds: Shape (h,).
        rng: Chooses the times.
        under_way: Draw a faulty series' time between its onset and its breach, so that the horizon may reach beyond
            the evaluation; other series as before.
    """
    columns: list[tuple[Ints, Floats, Floats, Bools, Bools]] = []
    rows = np.arange(len(scenarios))
    beyond = scenarios.beyond
    coming = np.where(scenarios.breach == NEVER, np.iinfo(np.int64).max, scenarios.breach)
    faulty = (
        (scenarios.onset != NEVER) & (scenarios.breach > scenarios.onset) if under_way else np.zeros(len(rows), bool)
    )
    for number, horizon in enumerate(horizons_seconds):
        steps = round(horizon / scenarios.interval_seconds)
        low = np.full(len(rows), scenarios.history)
        high = np.full(len(rows), scenarios.length - steps)
        low = np.where(faulty, scenarios.onset, low)
        high = np.where(faulty, scenarios.breach, np.maximum(high, low + 1))
        wanted = low + rng.random(len(rows)) * (high - low)
        place = np.clip(np.searchsorted(issued, wanted), 0, len(issued) - 1)
        moment = issued[place]
        said = probability[rows, place, number]
        usable = np.isfinite(said) & ~beyond[rows, moment] & (moment < coming)
        came = coming <= moment + steps
        drawn = np.full(int(usable.sum()), horizon)
        columns.append((rows[usable], drawn, said[usable], came[usable], (scenarios.onset != NEVER)[usable]))
    return Claims(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))


def reliability(claims: Claims, rng: np.random.Generator) -> dict[str, Any]:
    """Score claims.

    Args:
        claims: At most one for each series and horizon.
        rng: Draws the bootstrap's samples, over series.

    Returns:
        Figures ready for JSON: `bins` with the mean said, the share that came and its 95 % interval; `brier`, `skill`
        against the base rate of each horizon, both over all claims and by horizon.
    """
    horizons = np.unique(claims.horizon_seconds)
    base = np.zeros(len(claims.said))
    for horizon in horizons:
        mine = claims.horizon_seconds == horizon
        base[mine] = claims.came[mine].mean()
    return {
        "claims": len(claims.said),
        "came": int(claims.came.sum()),
        **_brier(claims, base),
        "bins": [_bin(claims, low, high, rng) for low, high in BINS],
        "horizons": {
            f"{horizon:g}": {
                "claims": int((claims.horizon_seconds == horizon).sum()),
                "came": int(claims.came[claims.horizon_seconds == horizon].sum()),
                **_brier(claims.select(claims.horizon_seconds == horizon), base[claims.horizon_seconds == horizon]),
            }
            for horizon in horizons
        },
    }


def skill_at_prevalence(claims: Claims, share: float, rng: np.random.Generator) -> dict[str, Any]:
    """Skill against the base rate if a share of the series were faulty, by horizon, with its 95 % interval.

    Faulty and healthy series are weighed apart, so that a rare fault needs no million of healthy series. The interval
    is a bootstrap over series.

    Args:
        claims: At most one for each series and horizon.
        share: Of the series that are faulty; those with claims are weighed as if they were that share.
        rng: Draws the samples.
    """
    found: dict[str, Any] = {}
    for horizon in np.unique(claims.horizon_seconds):
        part = claims.select(claims.horizon_seconds == horizon)
        mine = np.array([share, 1.0 - share])
        groups = [np.flatnonzero(part.faulty), np.flatnonzero(~part.faulty)]
        if any(len(group) < _LEAST_OUTCOMES for group in groups) or part.came.sum() < _LEAST_OUTCOMES:
            continue
        drawn = [groups, *([rng.choice(group, len(group)) for group in groups] for _ in range(_RESAMPLES))]
        skills = [_weighted_skill(part, each, mine) for each in drawn]
        low, high = np.quantile(skills[1:], (0.025, 0.975))
        found[f"{horizon:g}"] = {
            "faults": len(groups[0]),
            "healthy": len(groups[1]),
            "skill": round(skills[0], 4),
            "interval": [round(float(low), 4), round(float(high), 4)],
        }
    return found


def _weighted_skill(claims: Claims, groups: Sequence[Ints], shares: Floats) -> float:
    def mean(values: Floats) -> float:
        return float(sum(share * values[group].mean() for group, share in zip(groups, shares, strict=True)))

    came = claims.came.astype(np.float64)
    base = mean(came)
    return 1.0 - mean((claims.said - came) ** 2) / max(base * (1.0 - base), 1e-30)


def _brier(claims: Claims, base: Floats) -> dict[str, float | None]:
    if not claims.said.size:
        return {"brier": None, "skill": None}
    error = float(((claims.said - claims.came) ** 2).mean())
    reference = float(((base - claims.came) ** 2).mean())
    enough = claims.came.sum() >= _LEAST_OUTCOMES and reference > 0
    return {"brier": round(error, 5), "skill": round(1.0 - error / reference, 4) if enough else None}


def _bin(claims: Claims, low: float, high: float, rng: np.random.Generator) -> dict[str, Any]:
    inside = (claims.said >= low) & ((claims.said < high) | (high == 1.0))
    part = claims.select(inside)
    row: dict[str, Any] = {"from": low, "to": high, "claims": len(part.said), "series": len(np.unique(part.series))}
    if not part.said.size:
        return {**row, "said": None, "came": None, "interval": None, "judged": False, "holds": None}
    said, came = float(part.said.mean()), float(part.came.mean())
    lower, upper = _interval(part, rng)
    judged = low >= JUDGED_FROM and row["series"] >= LEAST_SERIES
    holds = abs(came - said) <= TOLERANCE or lower <= said <= upper
    return {
        **row,
        "said": round(said, 4),
        "came": round(came, 4),
        "interval": [round(lower, 4), round(upper, 4)],
        "judged": judged,
        "holds": bool(holds) if judged else None,
    }


def _interval(claims: Claims, rng: np.random.Generator) -> tuple[float, float]:
    """Bootstrap interval of the share that came: series are drawn with replacement, each with all its claims."""
    _, number = np.unique(claims.series, return_inverse=True)
    count = np.bincount(number)
    came = np.bincount(number, weights=claims.came)
    drawn = rng.integers(0, len(count), (_RESAMPLES, len(count)))
    shares = came[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    low, high = np.quantile(shares, (0.025, 0.975))
    return float(low), float(high)
