"""Conformal factors of intervals, by class of metric and horizon, from the claims whose value is known.

`IntervalScores` scales each interval by them before it is published, and adds each claim once its value is known.
An interval is scaled so that the newest claims of its class and horizon would have held their values with its nominal
coverage: split conformal prediction with normalised residuals (Lei et al., Distribution-Free Predictive Inference for
Regression, JASA 113, 2018, sections 2.2 and 5.2). Claims are not exchangeable: the day before a deploy or a fault does
not show its effect. So newer claims weigh more (Barber et al., Conformal Prediction Beyond Exchangeability, Annals
of Statistics 51, 2023), and the intended level follows the coverage so far (Gibbs and Candès, Adaptive Conformal
Inference under Distribution Shift, NeurIPS 2021).

Where factors are shipped, a series' state enters as well (Mondrian conformal prediction: Vovk, Gammerman and Shafer,
Algorithmic Learning in a Random World, 2005, section 4.5), and they weigh as `PRIOR_WINDOWS` horizons of outcomes do.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.priors import NO_PLACE, STATES, Prior

REMEMBERED: Final = 1000
"""Newest claims of a class and horizon that decide."""
LEAST_CLAIMS: Final = 50
"""Claims below which the factor is 1."""
HALF_LIFE_CLAIMS: Final = 250.0
"""A claim weighs half as much as one that came this number of claims later."""
LEVEL_RATE: Final = 0.0005
"""Change of the level for one claim outside of its interval beyond the nominal share."""
LARGEST_CHANGE: Final = 0.9
"""The level keeps this share of the way to 1 at most."""
LIMITS: Final = (0.1, 10.0)
"""A few broken series must not widen the others without bound; the coverage shows that a method fails."""
PRIOR_WINDOWS: Final = 50.0
"""Claims of one time share the events of that time: the horizons that have passed count, not the claims."""
WINDOW_GAIN: Final = 0.4
"""With shipped factors, change of the level within a horizon, for each share outside beyond the nominal one."""
LEAST_WINDOW_CLAIMS: Final = 100.0
LARGEST_FALL: Final = 0.1
"""Share of the way to 1 that a level may lie below the nominal one: quiet days must not use up the shipped width."""
NEVER: Final = -1
BY_BLOCK: Final = ("states", "begun", "newest", "levels")
"""Arrays that mean something only with blocks of the same length."""
SAVED: Final = ("needed", "written", *BY_BLOCK)


class Widening:
    """The newest residuals of each class and horizon, relative to the half-widths of their intervals.

    Attributes:
        needed: Shape (classes, horizons, coverages, remembered): factor with which an interval just holds its value;
            NaN where there is none yet. The newest ones replace the oldest.
        states: Shape (classes, horizons, remembered), state of each claim's series.
        written: Shape (classes, horizons), claims so far.
        begun, newest: Shape (classes, horizons), blocks of the first and of the newest claim; `NEVER` before.
        levels: Shape (classes, horizons, coverages), intended levels.
    """

    def __init__(
        self,
        classes: int,
        horizons: int,
        coverages: tuple[float, ...],
        leads: Ints | None = None,
        prior: Prior | None = None,
        places: Ints | None = None,
    ) -> None:
        """Begin without claims.

        Args:
            classes: Number of classes.
            horizons: Number of horizons.
            coverages: Nominal ones.
            leads: Shape (horizons,), blocks of each horizon.
            prior: Factors that weigh beside the site's outcomes.
            places: Shape (horizons,), which of its horizons each one is; `NO_PLACE` for none.
        """
        self._coverages = coverages
        cells = (classes, horizons)
        self.needed = np.full((*cells, len(coverages), REMEMBERED), np.nan, dtype=np.float32)
        self.states = np.zeros((*cells, REMEMBERED), np.int8)
        self.written = np.zeros(cells, dtype=np.int64)
        self.begun, self.newest = (np.full(cells, NEVER, np.int64) for _ in range(2))
        self.levels = np.broadcast_to(np.array(coverages), (*cells, len(coverages))).copy()
        self._leads = np.ones(horizons, np.int64) if leads is None else leads
        self._prior = None if prior is None else prior.needed
        self._places = np.full(horizons, NO_PLACE) if places is None else places
        self._by_state = np.zeros(cells, np.bool_)
        if prior is not None:
            complete: Bools = np.asarray(np.isfinite(prior.needed).all(axis=(2, 3, 4)))
            self._by_state = np.asarray(complete[self._places].T & (self._places != NO_PLACE))
        self._factors = np.ones((*cells, STATES, len(coverages)))
        self._learn_all()

    def add(
        self, classes: Ints, horizons: Ints, needed: Floats, found_states: Ints | None = None, block: int = 0
    ) -> None:
        """Add claims.

        Args:
            classes: Shape (n,).
            horizons: Shape (n,).
            needed: Shape (n, coverages).
            found_states: Shape (n,), of their series when they were made.
            block: The present one.
        """
        kinds = np.zeros(len(classes), np.int64) if found_states is None else found_states
        for number, horizon in np.unique(np.stack([classes, horizons], axis=1), axis=0).tolist():
            chosen = (classes == number) & (horizons == horizon)
            mine, kind = needed[chosen], kinds[chosen]
            if self.begun[number, horizon] == NEVER:
                self.begun[number, horizon] = block
            self.newest[number, horizon] = max(block, self.newest[number, horizon])
            self._follow(number, horizon, mine, kind)
            begin = self.written[number, horizon]
            places = ((begin + np.arange(len(mine))) % REMEMBERED)[-REMEMBERED:]
            self.needed[number, horizon][:, places] = mine[-REMEMBERED:].T
            self.states[number, horizon][places] = kind[-REMEMBERED:]
            self.written[number, horizon] += len(mine)
            self._learn(number, horizon)

    def restore(self, saved: Mapping[str, NDArray[Any]], *, same_blocks: bool = True) -> None:
        """Continue from the arrays `SAVED` of an earlier process.

        Args:
            saved: The arrays by name.
            same_blocks: Whether a block has the same length; else the numbers of blocks mean nothing.
        """
        self.written = saved["written"].astype(np.int64)
        self.needed = np.where(self.written[:, :, None, None] > 0, saved["needed"], np.nan).astype(np.float32)
        if same_blocks:
            self.states, self.begun, self.newest, self.levels = (
                np.where(
                    self.written.reshape(*self.written.shape, *[1] * (saved[name].ndim - 2)) > 0, saved[name], own
                ).astype(own.dtype)
                for name, own in ((each, getattr(self, each)) for each in BY_BLOCK)
            )
        self._learn_all()

    def factors(self, classes: Ints, horizon: int, found_states: Ints | None = None) -> Floats:
        """Factors of the intervals of some series, shape (n, coverages); 1 until there are enough claims."""
        factors: Floats = self._factors[classes, horizon, 0 if found_states is None else found_states]
        return factors

    def _windows(self, number: int, horizon: int) -> float:
        """Horizons of which there are outcomes."""
        begun, newest = (int(each[number, horizon]) for each in (self.begun, self.newest))
        return 0.0 if begun == NEVER else (newest - begun) / float(self._leads[horizon]) + 1.0

    def _follow(self, number: int, horizon: int, needed: Floats, kinds: Ints) -> None:
        """Move the levels by the share of new claims, shape (n, coverages), that the present factors do not hold."""
        by_state = self._by_state[number, horizon]
        if self.written[number, horizon] < LEAST_CLAIMS and not by_state:
            return
        nominal = np.array(self._coverages)
        known = np.isfinite(needed)
        held = (known & (needed <= self._factors[number, horizon, kinds])).sum(axis=0)
        rate, fall = LEVEL_RATE, LARGEST_CHANGE
        if by_state:
            usual = self.written[number, horizon] / max(self._windows(number, horizon), 1.0)
            rate, fall = WINDOW_GAIN / max(usual, LEAST_WINDOW_CLAIMS), LARGEST_FALL
        moved = self.levels[number, horizon] + rate * (nominal * known.sum(axis=0) - held)
        room = 1.0 - nominal
        self.levels[number, horizon] = np.clip(moved, nominal - fall * room, nominal + LARGEST_CHANGE * room)

    def _learn_all(self) -> None:
        for number, horizon in np.argwhere((self.written > 0) | self._by_state).tolist():
            self._learn(number, horizon)

    def _learn(self, number: int, horizon: int) -> None:
        age = (self.written[number, horizon] - 1 - np.arange(REMEMBERED)) % REMEMBERED
        weight = 0.5 ** (age / HALF_LIFE_CLAIMS)
        for place, level in enumerate(self.levels[number, horizon].tolist()):
            needed = self.needed[number, horizon, place]
            known = np.isfinite(needed)
            if self._prior is not None and self._by_state[number, horizon]:
                share = PRIOR_WINDOWS / (PRIOR_WINDOWS + self._windows(number, horizon))
                for state in range(STATES):
                    mine = known & (self.states[number, horizon] == state)
                    prior = self._prior[self._places[horizon], number, state, place]
                    values, weights = _mixed(prior, share, needed[mine], weight[mine])
                    factor = _quantile(values, weights, level * weights.sum())
                    self._factors[number, horizon, state, place] = np.clip(factor, *LIMITS)
            elif known.sum() >= LEAST_CLAIMS:
                # One more value of unknown size.
                total = weight[known].sum() + weight[known].max()
                factor = _quantile(needed[known], weight[known], level * total)
                self._factors[number, horizon, :, place] = np.clip(factor, *LIMITS)


def _mixed(prior: Floats, share: float, needed: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Values and weights of a prior, with a share of the weight, and of claims; of the prior alone without claims."""
    mass = float(weight.sum())
    if mass == 0.0:
        return prior, np.ones(len(prior))
    # A few claims of a state are no distribution, however long it took.
    share = 1.0 - (1.0 - share) * min(len(needed) / LEAST_CLAIMS, 1.0)
    weights = np.r_[np.full(len(prior), share / len(prior)), weight / mass * (1.0 - share)]
    return np.r_[prior, needed], weights


def _quantile(values: Floats, weights: Floats, mass: float) -> float:
    """The least of the values that holds some mass of the weights."""
    order = np.argsort(values)
    place = int(np.searchsorted(np.cumsum(weights[order]), mass))
    return float(values[order[min(place, len(order) - 1)]])


def needed_factors(quantiles: Floats, truth: Floats, pairs: tuple[tuple[int, int], ...], median: int) -> Floats:
    """Factors with which intervals just hold values.

    Args:
        quantiles: Shape (n, levels).
        truth: Shape (n,).
        pairs: Places of the bounds of each interval.
        median: Place of the median.

    Returns:
        Shape (n, intervals); NaN for an interval without width that missed, or without bounds.
    """
    center = quantiles[:, median]
    away = np.abs(truth - center)
    factors = []
    for low, high in pairs:
        half = np.where(truth > center, quantiles[:, high] - center, center - quantiles[:, low])
        factor = np.divide(away, half, out=np.full(len(truth), np.nan), where=half > 0)
        factors.append(np.where((half == 0) & (away == 0), 0.0, factor))
    return np.stack(factors, axis=1)


def widened(quantiles: Floats, factors: Floats, pairs: tuple[tuple[int, int], ...], median: int) -> Floats:
    """Quantiles with scaled intervals; an inner bound never lies beyond an outer one.

    Args:
        quantiles: Shape (n, levels).
        factors: Shape (n, intervals).
        pairs: Places of the bounds of each interval, from the innermost to the outermost.
        median: Place of the median.
    """
    scaled, center = quantiles.copy(), quantiles[:, median]
    lower = upper = center
    for place, (low, high) in enumerate(pairs):
        lower = np.fmin(lower, center - factors[:, place] * (center - quantiles[:, low]))
        upper = np.fmax(upper, center + factors[:, place] * (quantiles[:, high] - center))
        scaled[:, low] = np.where(np.isfinite(quantiles[:, low]), lower, np.nan)
        scaled[:, high] = np.where(np.isfinite(quantiles[:, high]), upper, np.nan)
    return scaled
