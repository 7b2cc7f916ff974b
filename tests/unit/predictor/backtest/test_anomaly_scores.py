"""Anomaly scores of recorded series do not depend on how many series are computed together."""

from pathlib import Path

import numpy as np

from kernelcast.predictor.backtest.engine import anomaly_scores
from kernelcast.predictor.backtest.grid import GridOptions, SeriesBatch, batches
from kernelcast.predictor.backtest.table import read

QUARTER_HOUR = 900


def batch(folder: Path, count: int) -> SeriesBatch:
    values = np.random.default_rng(1).standard_normal(180)
    values[150:] += 30
    path = folder / f"{count}.csv"
    lines = [f"{at * QUARTER_HOUR},{value},{gpu}" for gpu in range(count) for at, value in enumerate(values.tolist())]
    path.write_text("\n".join(["timestamp,value,gpu", *lines]))
    (found,) = batches(read([path]), GridOptions())
    return found


def test_one_series_has_the_scores_that_it_has_among_many(tmp_path: Path) -> None:
    alone, many = anomaly_scores(batch(tmp_path, 1)), anomaly_scores(batch(tmp_path, 40))
    for name in ("anomaly_score", "anomaly_onset"):
        assert (alone[name] >= 1).any()
        np.testing.assert_array_equal(many[name], np.repeat(alone[name], 40, axis=0))
