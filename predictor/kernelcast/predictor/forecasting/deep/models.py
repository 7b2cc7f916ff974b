"""Fitted models as linear recursions, which are cheap to apply; statsmodels is not needed for that.

Exponential smoothing and unobserved components in their steady state have the same form, the linear innovations state
space: `e = y - output' transition x`, `x' = transition x + gain e`; the forecast h intervals ahead is
`output' transition^h x`. Source: Hyndman and others, Forecasting with Exponential Smoothing, 2008, section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kernelcast.predictor.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """One fitted model with its state at the origin of the fit. Values are scaled: `(value - centre) / scale`.

    Attributes:
        name: Of the method.
        transition: Shape (k, k).
        gain: Shape (k,), how an innovation changes the state.
        output: Shape (k,), how the state gives the value.
        state: Shape (k,), after the value at the origin.
        profile: Shape (season,), added to scaled forecasts, by interval number modulo season; empty without a season.
        centre: In the series' unit.
        scale: In the series' unit, above 0.
    """

    name: str
    transition: Floats
    gain: Floats
    output: Floats
    state: Floats
    profile: Floats
    centre: float
    scale: float

    def to_json(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "LinearModel":
        """Convert back."""
        arrays: dict[str, Any] = {
            name: np.array(value, np.float64) if isinstance(value, list) else value for name, value in document.items()
        }
        return cls(**arrays)

    def states(self, values: Floats, first: int) -> Floats:
        """The state after each interval that follows the origin.

        Args:
            values: Shape (t,), the intervals after the origin, without gaps.
            first: Number of the first of them; the phase of the season depends on it.

        Returns:
            Shape (t, k).
        """
        scaled = (values - self.centre) / self.scale - self._season(first, len(values))
        kept = self.transition - np.outer(self.gain, self.output @ self.transition)
        state, states = self.state, np.empty((len(scaled), len(self.state)))
        for number, value in enumerate(scaled.tolist()):
            state = kept @ state + self.gain * value
            states[number] = state
        return states

    def forecasts(self, states: Floats, first: int, lead: int) -> Floats:
        """Forecast from each of some states, shape (t,).

        Args:
            states: Shape (t, k), after consecutive intervals.
            first: Number of the first of these intervals.
            lead: Intervals from each one to its forecast.
        """
        ahead = self.output @ np.linalg.matrix_power(self.transition, lead)
        values: Floats = self.centre + self.scale * (states @ ahead + self._season(first + lead, len(states)))
        return values

    def _season(self, first: int, count: int) -> Floats:
        if not len(self.profile):
            return np.zeros(count)
        values: Floats = self.profile[(first + np.arange(count)) % len(self.profile)]
        return values
