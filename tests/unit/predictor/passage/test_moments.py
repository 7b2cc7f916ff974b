"""Moments that are evaluated together have the results of each moment alone, bit for bit."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.run import MIN_BLOCKS, WINDOW_BLOCKS, DetectorOptions, run
from kernelcast.predictor.passage.series import SeriesBlocks, Traits

ROWS = 4
OPTIONS = DetectorOptions(calibration=shipped())


def durations(rng: np.random.Generator, length: int) -> Floats:
    """Kernels that become slower, with slow times."""
    time = np.arange(length)
    drift = np.maximum(time - rng.integers(0, length, (ROWS, 1)), 0) / length * 0.3
    values = rng.normal(1.0, 0.02, (ROWS, length)) * (1 + drift)
    begin = int(rng.integers(0, length))
    values[0, begin : begin + 20] *= 1.4
    return np.asarray(values)


def temperatures(rng: np.random.Generator, length: int) -> Floats:
    """Whole degrees with a day's shape, of which two fall and rise again."""
    values = 70 + 3 * np.sin(np.arange(length) / 40) + rng.normal(0, 0.5, (ROWS, length)).round()
    values[:2, int(rng.integers(0, length)) :] -= 9
    return np.asarray(values)


def panel(seed: int, length: int) -> tuple[SeriesBlocks, Traits]:
    """Series with their own limit, and with an absolute one; with gaps, processes, versions and loads."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([durations(rng, length), temperatures(rng, length)])
    shape = values.shape
    values[rng.random(shape) < 0.05] = np.nan
    values[rng.integers(0, 2 * ROWS), : length // 3] = np.nan
    load = np.full(shape, np.nan)
    load[ROWS + 1 :] = 200 + rng.normal(0, 30, (ROWS - 1, length)).cumsum(axis=1)
    load[ROWS + 2, : length // 2] = np.nan
    version: Ints = (rng.random(shape) < 0.005).cumsum(axis=1)
    version[::2] = -1
    own = np.arange(2 * ROWS) < ROWS
    traits = Traits(
        limit=np.where(own, np.nan, 75.0),
        baseline_ratio=np.full(2 * ROWS, 1.2),
        below=rng.random(2 * ROWS) < 0.2,
        resolution=np.where(own, 0.0, 1.0),
        settling_blocks=rng.integers(0, 9, 2 * ROWS),
        reserves=~own & (rng.random(2 * ROWS) < 0.5),
    )
    process: Ints = (rng.random(shape) < 0.01).cumsum(axis=1)
    return SeriesBlocks.of(values, values + rng.normal(0, 1e-3, shape), load, process, version), traits


def arrays(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All arrays of a result, with their names."""
    if not is_dataclass(result):
        yield name, result
        return
    for field in fields(result):
        yield from arrays(getattr(result, field.name), f"{name}.{field.name}")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "length"), [(1, 60), (2, 60), (3, 310), (4, WINDOW_BLOCKS + 20)])
def test_a_moment_has_the_result_of_a_run_of_its_own(seed: int, length: int) -> None:
    blocks, traits = panel(seed, length)
    calm = AlarmState.quiet(2 * ROWS)
    together = list(run(blocks, traits, OPTIONS, ends=range(MIN_BLOCKS, length + 1), alarms=calm))
    assert [moment.end for moment in together] == list(range(MIN_BLOCKS, length + 1))
    for moment in together[:: 1 if length < 100 else 19]:
        (alone,) = run(blocks, traits, OPTIONS, ends=[moment.end], alarms=calm)
        for (name, found), (_, expected) in zip(arrays(moment.found), arrays(alone.found), strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=f"{name} at {moment.end}")
        np.testing.assert_array_equal(moment.answered, alone.answered)
