"""Leaks below an allocator that takes and frees memory in steps, and rises that are none."""

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.detector import Evaluation, evaluate
from kernelcast.predictor.passage.leak import Leak, steady_leak
from kernelcast.predictor.passage.series import BLOCK_SECONDS, SeriesBlocks, Traits

_TOTAL = 81_920.0
_LIMIT = 0.95 * _TOTAL
_HOUR = 12


def allocator(blocks: int, *, epoch: int = 20) -> Floats:
    """Memory in MiB of a job whose allocator takes five steps of different sizes in each epoch, and then frees them."""
    rng, used = np.random.default_rng(2), np.full(blocks, 30_000.0)
    for first in range(0, blocks, epoch):
        for at in rng.integers(0, epoch, 5):
            used[first + at : first + epoch] += rng.uniform(1_000.0, 7_000.0)
    return used + rng.integers(0, 4, blocks)


def leaked(blocks: int, *, onset: int, rate: float) -> Floats:
    """Memory that is never freed, MiB."""
    return np.asarray(rate * np.maximum(np.arange(blocks) - onset, 0))


def found(rows: Floats) -> Leak:
    return steady_leak(rows, np.full(len(rows), _LIMIT))


def evaluated(values: Floats) -> Evaluation:
    row, numbers = values[None], np.zeros((1, len(values)), np.int64)
    traits = Traits(
        limit=np.array([_LIMIT]),
        baseline_ratio=np.array([np.nan]),
        below=np.array([False]),
        resolution=np.array([2.0]),
        settling_blocks=np.array([15]),
        reserves=np.array([True]),
    )
    none = np.full(row.shape, np.nan)
    return evaluate(SeriesBlocks.of(row, row, none, numbers, numbers - 1, averaged=np.array([True])), traits)


def test_a_leak_between_the_steps_of_an_allocator_is_predicted_on_its_first_day() -> None:
    values = allocator(72) + leaked(72, onset=12, rate=400.0)
    healthy, leaking = (evaluated(each).passage.probability[0] for each in (allocator(72), values))
    assert leaking[3] > 0.9
    assert healthy.max() < 0.05


def test_memory_that_has_just_been_freed_reaches_the_limit_with_its_next_peak_and_not_at_once() -> None:
    values = allocator(90) + leaked(90, onset=12, rate=400.0)
    freed = 82
    assert values[freed - 1] < values[freed - 3] - 10_000.0
    passage = evaluated(values[:freed]).passage
    # The leak alone takes 50 blocks from here, the peak of most epochs comes within 20.
    assert passage.probability[0, 2] < 0.05
    assert passage.probability[0, 3] > 0.9
    assert 10 < passage.median_seconds[0] / BLOCK_SECONDS < 20


def test_a_leak_has_the_rate_and_the_age_that_it_has_however_large_the_steps_are() -> None:
    leak = found((allocator(72) + leaked(72, onset=24, rate=400.0))[None])
    assert leak.rate[0] == pytest.approx(400.0, rel=0.01)
    assert leak.age[0] == pytest.approx(72 - 24, abs=2)


def test_a_gap_at_the_end_carries_the_leak_on() -> None:
    values = 30_000.0 + leaked(60, onset=12, rate=400.0)
    leak = found(np.where(np.arange(60) < 54, values, np.nan)[None])
    assert leak.level[0] == pytest.approx(values[-1])


def test_an_allocator_that_grows_in_equal_steps_stands_still_between_them() -> None:
    place = np.arange(96.0)
    filled = 60_000.0 * -np.expm1(-place / (2 * _HOUR))
    assert not found(np.floor(filled / 512.0)[None, 30:] * 512.0).rate.any()


def test_a_cache_that_requests_fill_all_morning_is_no_leak() -> None:
    morning = np.arange(8 * _HOUR)
    requests = np.random.default_rng(7).exponential(400.0, len(morning))
    values = 20_000.0 + np.cumsum(requests)
    ends = [values[end - 3 * _HOUR : end] for end in range(3 * _HOUR, len(morning) + 1)]
    assert not found(np.stack(ends)).rate.any()


@pytest.mark.parametrize("hours", [1.5, 5.0])
def test_a_cache_that_fills_evenly_and_is_emptied_is_no_leak_until_it_passes_its_former_peak(hours: float) -> None:
    place, period = np.arange(24.0 * _HOUR), hours * _HOUR
    values = 40_000.0 + 30_000.0 * (place % period) / period
    for end in range(int(3 * period), len(values), 5):
        assert np.nan_to_num(evaluated(values[:end]).passage.probability).max() < 0.5, end
    going_on = 40_000.0 + 30_000.0 * np.where(place < 3 * period, place % period, place - 3 * period) / period
    assert found(going_on[None, : int(4.2 * period)]).rate[0] == pytest.approx(30_000.0 / period)


def test_what_rises_since_the_first_block_of_a_series_may_be_a_cache_that_fills_for_the_first_time() -> None:
    rise = 40_000.0 + 500.0 * np.arange(48.0)
    level = np.full(12, rise[0])
    assert evaluated(rise).passage.probability[0, 3] < 0.1
    assert evaluated(np.concatenate([level, rise])).passage.probability[0, 3] > 0.9


def test_five_changes_show_no_leak() -> None:
    leak = found(np.where(np.arange(12) < 6, np.nan, 400.0 * np.arange(12.0))[None])
    assert leak.rate[0] == 0
    assert not leak.rise.any()
