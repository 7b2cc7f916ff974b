"""Tails of features: how rare a large value is, from the series' own past."""

import numpy as np
import pytest

from kernelcast.predictor.anomalies import AnomalySettings
from kernelcast.predictor.anomalies.evidence import isolated_factor
from kernelcast.predictor.anomalies.tails import TailModel

ROWS = 4000
SERIES = 60


@pytest.mark.slow
def test_a_large_value_of_a_skewed_series_is_as_rare_as_it_is() -> None:
    """The bounded side below does not make the heavy side above look lighter than it is."""
    rng = np.random.default_rng(4)
    tails = TailModel(1, SERIES, AnomalySettings())
    rows, ones, none = slice(0, SERIES), np.ones(SERIES, np.float32), np.zeros(SERIES, np.float32)
    for row in range(ROWS):
        values = (rng.lognormal(0, 0.8, (1, SERIES)) - 1.4).astype(np.float32)
        tails.learn(rows, tails.peaks(rows, values), np.full(SERIES, row, np.float32), ones)
    one_in_ten_thousand = np.full((1, SERIES), np.exp(0.8 * 3.719) - 1.4, np.float32)
    every, _ = tails.surprise(tails.peaks(rows, one_in_ten_thousand), none, np.full(SERIES, ROWS, np.float32), ones)
    assert 3.3 < np.median(every[0, 0]) < 4.5


def test_a_single_value_counts_for_less_while_few_days_were_seen() -> None:
    settings = AnomalySettings()
    first, later, known = isolated_factor(np.array([0, 1, settings.rhythm_days], np.float32), settings)
    assert first < later < known
    assert known == np.float32(settings.isolated)
