"""Fits models with statsmodels. Only worker processes import this module: it costs 120 MiB and seconds.

Exponential smoothing: Hyndman and others, Forecasting with Exponential Smoothing, 2008. Unobserved components: Harvey,
Forecasting, Structural Time Series Models and the Kalman Filter, 1989. Seasons: Cleveland and others, STL, 1990.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from statsmodels.tsa.exponential_smoothing.ets import ETSModel
from statsmodels.tsa.seasonal import STL
from statsmodels.tsa.statespace.structural import UnobservedComponents

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.deep.messages import MODELS, FitAnswer, FitOutcome, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel
from kernelcast.predictor.forecasting.rolling import forward_filled

LEAST_VALUES: Final = 24
"""Known values that a fit needs."""
LEAST_SEASONS: Final = 3
"""Seasons that a fit needs, if there is a season."""
SMALLEST_SPREAD: Final = 1e-9
"""Standard deviation, relative to the largest value, below which a window is constant."""
MOST_ITERATIONS: Final = 200
"""Steps of the optimiser, after which a fit counts as not converged."""


class NotConvergedError(Exception):
    """The optimiser stopped before it found the parameters."""


class Parts(NamedTuple):
    """A model of scaled values without season; see `LinearModel`."""

    transition: Floats
    gain: Floats
    output: Floats
    state: Floats


def damped_trend(values: Floats) -> Parts:
    """Fit ETS(A, Ad, N), additive error and damped trend, by maximum likelihood."""
    filled = forward_filled(values[None])[0]
    model = ETSModel(filled, error="add", trend="add", damped_trend=True, initialization_method="heuristic")
    fitted = model.fit(disp=False, maxiter=MOST_ITERATIONS)
    _check(fitted)
    phi = float(fitted.damping_trend)
    return Parts(
        transition=np.array([[1.0, phi], [0.0, phi]]),
        gain=np.array([fitted.smoothing_level, fitted.smoothing_trend]),
        output=np.array([1.0, 0.0]),
        state=np.array([fitted.level[-1], fitted.slope[-1]]),
    )


def components(values: Floats) -> Parts:
    """Fit a random walk, an autoregressive deviation from it, and noise; gaps are skipped."""
    model = UnobservedComponents(values, level="llevel", autoregressive=1)
    fitted = model.fit(disp=False, maxiter=MOST_ITERATIONS, method="lbfgs", cov_type="none")
    _check(fitted)
    results = fitted.filter_results
    output = results.design[0, :, -1]
    covariance = results.predicted_state_cov[:, :, -1] @ output
    variance = float(output @ covariance) + float(results.obs_cov[0, 0, -1])
    return Parts(results.transition[:, :, -1], covariance / max(variance, 1e-12), output, results.filtered_state[:, -1])


FITS: Final[Mapping[str, Callable[[Floats], Parts]]] = dict(zip(MODELS, (damped_trend, components), strict=True))


def fit(request: FitRequest, fits: Mapping[str, Callable[[Floats], Parts]] = FITS) -> FitAnswer:
    """Fit every model to a window; a model that cannot be fitted is an outcome, not an exception.

    Args:
        request: The window.
        fits: The models, by name.
    """
    begun = time.process_time()
    known = request.values[np.isfinite(request.values)]
    least = max(LEAST_VALUES, LEAST_SEASONS * request.season)
    largest = float(np.abs(known).max(initial=0.0))
    if len(known) < least or float(known.std()) <= SMALLEST_SPREAD * max(largest, np.finfo(float).tiny):
        return FitAnswer(outcomes=dict.fromkeys(fits, FitOutcome.NOT_FITTABLE))
    centre, scale = float(np.median(known)), float(known.std())
    scaled, profile = _without_season((request.values - centre) / scale, request)
    models, outcomes = [], {}
    for name, each in fits.items():
        outcomes[name], parts = _attempt(each, scaled)
        if parts is not None:
            models.append(LinearModel(name, *parts, profile=profile, centre=centre, scale=scale))
    return FitAnswer(tuple(models), outcomes, time.process_time() - begun)


def _attempt(method: Callable[[Floats], Parts], values: Floats) -> tuple[FitOutcome, Parts | None]:
    try:
        parts = method(values)
    except NotConvergedError:
        return FitOutcome.NOT_CONVERGED, None
    except Exception:  # noqa: BLE001  statsmodels raises many kinds on strange series; the outcome is counted
        return FitOutcome.FAILED, None
    if not all(np.isfinite(part).all() for part in parts):
        return FitOutcome.FAILED, None
    return FitOutcome.FITTED, Parts(*(np.asarray(part, np.float64) for part in parts))


def _check(fitted: Any) -> None:
    if not fitted.mle_retvals["converged"]:
        raise NotConvergedError


def _without_season(scaled: Floats, request: FitRequest) -> tuple[Floats, Floats]:
    """Values less their season by STL, and the season's last cycle by interval number modulo season."""
    season = request.season
    if not season:
        return scaled, np.zeros(0)
    seasonal = STL(forward_filled(scaled[None])[0], period=season, robust=True).fit().seasonal
    profile = np.empty(season)
    profile[(request.last - np.arange(season)) % season] = seasonal[-season:][::-1]
    return scaled - seasonal, profile
