"""Noisy kernels with a few blocks of history, many at once: how often the detector calls one slow that is not."""

from functools import cache

import numpy as np
import pytest

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.run import MIN_BLOCKS, DetectorOptions, run
from kernelcast.predictor.passage.series import SeriesBlocks, Traits

SERIES = 200
LENGTH = 54
BEFORE = 48
"""Blocks of a panel before the series begins; as the live predictor's."""
TRIAL = (4, 13)
HORIZONS_SECONDS = (3600.0, 14_400.0)
PUBLISHED = 0.4


def noisy(noise: float, memory: float, *, length: int = LENGTH) -> Floats:
    """Durations around 1 with log-normal noise, each block's correlated with the next one's, shape (n, b)."""
    drawn = np.random.default_rng(11).standard_normal((SERIES, length))
    for place in range(1, length):
        drawn[:, place] = memory * drawn[:, place - 1] + np.sqrt(1 - memory**2) * drawn[:, place]
    durations: Floats = np.exp(noise * drawn)
    return durations


def bursts(share: float) -> Floats:
    """A factor that is higher by a share for 5 blocks on average, and then 1 for 8."""
    rng, found = np.random.default_rng(12), np.ones((SERIES, LENGTH))
    for row in found:
        place, high = 0, bool(rng.random() < 5 / 13)
        while place < LENGTH:
            end = place + int(rng.exponential(5 if high else 8)) + 1
            row[place:end] = 1 + share if high else 1
            place, high = end, not high
    return found


def judged(durations: Floats, *, trial: tuple[int, int] | None = None) -> tuple[Bools, Bools]:
    """Whether a breach is published as probable at each block, and whether the limit is passed, shape (n, blocks)."""
    mean = np.concatenate([np.full((len(durations), BEFORE), np.nan), durations], axis=1)
    process = np.repeat([0, 1], [BEFORE, durations.shape[1]])
    if trial is not None:
        # Its blocks do not count, and the value that was kept begins a regime.
        mean[:, BEFORE + trial[0] : BEFORE + trial[1]] = np.nan
        process[BEFORE + trial[1] :] = 2
    numbers = np.tile(process, (len(mean), 1))
    blocks = SeriesBlocks.of(mean, mean, np.full(mean.shape, np.nan), numbers, np.full(mean.shape, -1))
    rows = len(mean)
    traits = Traits(
        np.full(rows, np.nan),
        np.full(rows, 1.2),
        np.zeros(rows, bool),
        np.zeros(rows),
        np.zeros(rows, int),
        np.zeros(rows, bool),
    )
    options = DetectorOptions(HORIZONS_SECONDS, HORIZONS_SECONDS, shipped())
    ends = range(BEFORE + MIN_BLOCKS, mean.shape[1] + 1)
    probable, beyond = [], []
    for moment in run(blocks, traits, options, ends=ends, alarms=AlarmState.quiet(rows)):
        said = np.where(moment.answered, moment.found.passage.probability, np.nan)
        probable.append((np.nan_to_num(said).max(axis=1) >= PUBLISHED) & ~moment.found.beyond & ~moment.found.erratic)
        beyond.append(moment.found.beyond)
    return np.stack(probable, axis=1), np.stack(beyond, axis=1)


@cache
def judged_noise(noise: float, memory: float, trial: tuple[int, int] | None = None) -> tuple[Bools, Bools]:
    return judged(noisy(noise, memory), trial=trial)


@pytest.mark.slow
@pytest.mark.parametrize("trial", [None, TRIAL])
@pytest.mark.parametrize(("noise", "memory"), [(0.03, 0.0), (0.05, 0.0), (0.05, 0.5), (0.08, 0.5), (0.03, 0.8)])
def test_noise_predicts_no_slow_kernel(noise: float, memory: float, trial: tuple[int, int] | None) -> None:
    probable, beyond = judged_noise(noise, memory, trial)
    before = probable & ~np.maximum.accumulate(beyond, axis=1)
    assert before.any(axis=1).mean() <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize("trial", [None, TRIAL])
def test_bursts_of_load_predict_no_slow_kernel(trial: tuple[int, int] | None) -> None:
    probable, beyond = judged(noisy(0.04, 0.4) * bursts(0.1), trial=trial)
    assert probable.any(axis=1).mean() <= 0.03
    assert beyond.any(axis=1).mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "memory", "most"), [(0.05, 0.0, 0.01), (0.08, 0.0, 0.05), (0.05, 0.5, 0.02)])
def test_a_block_that_noise_alone_brings_beyond_the_limit_is_no_slow_kernel(
    noise: float, memory: float, most: float
) -> None:
    assert judged_noise(noise, memory)[1].any(axis=1).mean() <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "within", "least"), [(0.02, 1, 0.99), (0.05, 1, 0.9), (0.05, 2, 0.98), (0.08, 6, 0.7)]
)
def test_a_noisy_kernel_that_becomes_half_again_as_slow_is_found_soon(noise: float, within: int, least: float) -> None:
    slow_from = 36
    durations = noisy(noise, 0.3)
    durations[:, slow_from:] *= 1.5
    beyond = judged(durations)[1][:, slow_from - MIN_BLOCKS + 1 :]
    assert beyond[:, :within].any(axis=1).mean() >= least


@pytest.mark.slow
def test_a_steady_kernel_that_drifts_in_its_first_hours_is_predicted() -> None:
    drift = np.maximum(np.arange(70) - 30, 0) / 36 * 0.2
    probable, beyond = judged(noisy(0.01, 0.3, length=70) * (1 + drift))
    lead = np.argmax(beyond, axis=1) - np.argmax(probable, axis=1)
    assert (probable.any(axis=1) & beyond.any(axis=1)).mean() >= 0.9
    assert float(np.median(lead)) >= 12


def test_a_kernel_that_wavers_around_its_limit_is_found_with_the_first_block_beyond_it() -> None:
    """Its own slow blocks are no noise, and its short runs beyond the limit are no earlier slowdowns."""
    slow = np.ones(36)
    slow[20:] = 1.185
    passed = [24, 28, 29]
    slow[passed] = 1.215
    drawn = np.random.default_rng(13).standard_normal((SERIES, len(slow)))
    beyond = judged(slow * np.exp(0.002 * drawn))[1].mean(axis=0)
    newest = np.arange(MIN_BLOCKS - 1, len(slow))
    assert beyond[np.isin(newest, passed)].min() >= 0.95
    assert beyond[~np.isin(newest, passed)].max() <= 0.02
