"""Fits of recorded series for a backtest: at every origin of the schedule, each from the values before it."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel  # noqa: TC001  as all imports here
from kernelcast.predictor.forecasting.deep.panel import FittedPanel, fit_window
from kernelcast.predictor.forecasting.deep.schedule import FitSchedule

FitAll: TypeAlias = Callable[[Sequence[FitRequest]], list[FitAnswer]]


def fitted_panel(values: Floats, schedule: FitSchedule, fit_all: FitAll) -> FittedPanel:
    """Fit series whose intervals are numbered from 0.

    Args:
        values: Shape (n, t), NaN for gaps.
        schedule: Of the fits.
        fit_all: Fits windows, and returns their models in the same order.
    """
    last = values.shape[1] - 1
    asked = [
        (row, origin, FitRequest(fit_window(schedule.cut(one, origin, last)), origin, schedule.season))
        for row, one in enumerate(values)
        for origin in schedule.origins(_first(one), last)
    ]
    answers = fit_all([request for _, _, request in asked])
    fits: list[dict[int, Sequence[LinearModel]]] = [{} for _ in values]
    for (row, origin, _), answer in zip(asked, answers, strict=True):
        fits[row][origin] = answer.models
    return FittedPanel(values, last, fits, schedule)


def _first(values: Floats) -> int:
    known = np.isfinite(values)
    return int(np.argmax(known)) if known.any() else len(values)
