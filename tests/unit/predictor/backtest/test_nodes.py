"""Recorded series of one node are compared with each other, as in the live predictor."""

from collections.abc import Sequence

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.breaches import BreachOptions, breach_columns
from kernelcast.predictor.backtest.grid import GriddedSeries, SeriesBatch
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import MEANINGS

_MEMORY = device.FB_USED.prometheus_name
_BLOCKS = 110


def batch(values: Floats, nodes: Sequence[str]) -> SeriesBatch:
    at = np.arange(values.shape[1])
    series = [
        GriddedSeries((0, (str(row),)), at.tolist(), at, each, 0.0, 300.0, (), np.zeros(len(at), np.bool_), node)
        for row, (each, node) in enumerate(zip(values, nodes, strict=True))
    ]
    return SeriesBatch(series, Panel(values, 0, 1, np.zeros(len(values), np.int64)))


def test_no_part_of_a_batch_divides_a_node() -> None:
    nodes = ["a", "", "b", "a", "b", "", "b", "a", "c"]
    whole = batch(np.arange(9.0)[:, None] + np.zeros(3), nodes)
    parts = [[(one.node, float(row[0])) for one, row in zip(part.series, part.panel.values, strict=True)]
             for part in whole.parts(4)]  # fmt: skip
    assert sorted(value for part in parts for _, value in part) == list(range(9))
    for name in "abc":
        assert sum(any(node == name for node, _ in part) for part in parts) == 1
    assert all(nodes[int(value)] == node for part in parts for node, value in part)
    assert max(map(len, parts)) <= 4


def test_a_leak_under_a_cache_that_is_emptied_alerts_on_its_gpu_and_no_other() -> None:
    rng, place = np.random.default_rng(6), np.arange(_BLOCKS)
    values: Floats = np.asarray(30_000.0 + 500.0 * (place % 60) + rng.integers(0, 3, (5, _BLOCKS)))
    values[0] += 400.0 * np.maximum(place - 60, 0)
    options = BreachOptions(threshold=90_000.0, meaning=MEANINGS[_MEMORY])
    alone, together = (breach_columns(batch(values, [name] * 5), options)["alert"] > 0 for name in ("", "n1"))
    assert values.max() < 90_000.0
    for fires in (alone, together):
        assert fires[0].any()
        assert not fires[1:].any()
