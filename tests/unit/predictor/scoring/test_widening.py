"""Factors that scale intervals to their nominal coverage."""

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.scoring.priors import STATES, Prior, states, surprises, with_base_widths
from kernelcast.predictor.scoring.widening import LEAST_CLAIMS, PRIOR_WINDOWS, REMEMBERED, Widening

COVERAGES = (0.5, 0.8, 0.95)
ROUND = 100


def rounds(widening: Widening, count: int, scale: float, seed: int) -> list[Floats]:
    """Add rounds of claims whose errors have a scale; return which share of each round the factors before it held."""
    rng = np.random.default_rng(seed)
    zeros = np.zeros(ROUND, np.int64)
    shares = []
    for _ in range(count):
        needed = np.repeat(scale * np.abs(rng.standard_normal(ROUND))[:, None], len(COVERAGES), axis=1)
        shares.append((needed <= widening.factors(zeros, 0)).mean(axis=0))
        widening.add(zeros, zeros, needed)
    return shares


def test_intervals_of_steady_errors_hold_their_nominal_share() -> None:
    widening = Widening(1, 1, COVERAGES)
    rounds(widening, 10, 1.0, 1)
    held = np.mean(rounds(widening, 100, 1.0, 2), axis=0)
    np.testing.assert_allclose(held, COVERAGES, atol=0.015)


def test_after_a_change_of_the_errors_the_intervals_hold_again_within_a_few_rounds() -> None:
    """With equal weights the factors would rest on old errors until all remembered claims are new."""
    widening = Widening(1, 1, COVERAGES)
    rounds(widening, REMEMBERED // ROUND, 1.0, 3)
    held = rounds(widening, 8, 2.0, 4)
    assert held[0][2] < 0.8
    assert np.mean(held[4:8], axis=0)[1] > 0.76
    assert np.mean(held[4:8], axis=0)[2] > 0.92


def test_few_claims_change_nothing() -> None:
    widening = Widening(1, 1, COVERAGES)
    few = np.zeros(LEAST_CLAIMS - 1, np.int64)
    widening.add(few, few, np.full((len(few), len(COVERAGES)), 7.0))
    assert (widening.factors(few, 0) == 1.0).all()


LEAD = 10


def with_prior(*, quiet: float = 1.0, moving: float = 3.0) -> Widening:
    """Factors for one class and horizon: errors of a normal distribution, in each state of another scale."""
    spread = np.abs(np.random.default_rng(5).standard_normal(200))
    scales = np.array([quiet, *[moving] * (STATES - 1)])
    needed = np.sort(spread) * scales[:, None, None] * np.ones((1, 1, 1, len(COVERAGES), 1))
    return Widening(
        1,
        1,
        COVERAGES,
        np.array([LEAD]),
        Prior("simulation", np.array([14_400.0]), np.array([LEAD]), needed, np.ones((1, 1, STATES, len(COVERAGES), 2))),
        np.zeros(1, np.int64),
    )


def held_at_each_block(widening: Widening, blocks: range, scale: float) -> Floats:
    """Add ten claims of quiet series at each block; return which share of them the factors before it held."""
    rng, zeros = np.random.default_rng(blocks.start + 7), np.zeros(10, np.int64)
    shares = []
    for block in blocks:
        needed = np.repeat(scale * np.abs(rng.standard_normal(10))[:, None], len(COVERAGES), axis=1)
        shares.append((needed <= widening.factors(zeros, 0, zeros)).mean(axis=0))
        widening.add(zeros, zeros, needed, zeros, block)
    return np.array(np.mean(shares, axis=0))


def test_series_that_are_off_their_forecasts_have_the_factors_of_their_state() -> None:
    zeros = np.zeros(3, np.int64)
    found = with_prior().factors(zeros, 0, states(np.array([0.4, np.nan, 2.5])))

    assert found[0].tolist() == found[1].tolist()
    np.testing.assert_allclose(found[2], 3 * found[0])
    np.testing.assert_allclose(found[0], [0.674, 1.282, 1.96], rtol=0.2)


def test_a_quiet_day_does_not_use_up_the_shipped_width_and_many_do() -> None:
    """Faults and deploys come on other days; the claims of one horizon share what happened in it."""
    widening, zero = with_prior(), np.zeros(1, np.int64)
    before = widening.factors(zero, 0, zero)[0, 2]
    held_at_each_block(widening, range(6 * LEAD), 0.3)
    assert widening.factors(zero, 0, zero)[0, 2] > 0.85 * before

    held_at_each_block(widening, range(6 * LEAD, int(20 * PRIOR_WINDOWS) * LEAD, 50 * LEAD + 1), 0.3)
    assert widening.factors(zero, 0, zero)[0, 2] < 0.5 * before


def test_one_broken_series_does_not_widen_the_intervals_of_its_state() -> None:
    widening, zero, moving = with_prior(), np.zeros(1, np.int64), np.full(1, 2)
    before = widening.factors(zero, 0, moving)
    widening.add(zero, zero, np.full((1, len(COVERAGES)), 500.0), moving, 0)
    for block in range(LEAD, 12 * LEAD, LEAD):
        widening.add(zero, zero, np.full((1, len(COVERAGES)), 0.5), zero, block)

    np.testing.assert_allclose(widening.factors(zero, 0, moving)[0, :2], before[0, :2], rtol=0.1)


def test_errors_larger_than_the_shipped_ones_are_held_within_some_horizons() -> None:
    widening = with_prior()
    assert held_at_each_block(widening, range(2 * LEAD), 1.6)[1] < 0.7
    assert held_at_each_block(widening, range(2 * LEAD, 12 * LEAD), 1.6)[1] > 0.72
    np.testing.assert_allclose(
        held_at_each_block(widening, range(12 * LEAD, 40 * LEAD), 1.6)[:2], [0.5, 0.8], atol=0.04
    )


def test_a_surprise_is_counted_in_half_widths_of_the_side_it_lies_on() -> None:
    value, median = np.array([4.0, -1.0, 1.0, 0.0, np.nan]), np.zeros(5)
    found = surprises(value, median, np.array([-2.0, -2.0, 0.0, 0.0, -1.0]), np.array([2.0, 2.0, 0.0, 0.0, 1.0]))

    np.testing.assert_array_equal(found, [2.0, 0.5, np.inf, 0.0, np.nan])
    assert states(found).tolist() == [2, 0, 2, 0, 0]


def test_a_half_width_that_is_scaled_is_a_multiple_of_its_own_and_a_share_of_the_value() -> None:
    quantiles = np.array([[90.0, 100.0, 104.0], [-90.0, 0.0, 104.0], [90.0, 100.0, np.nan]])
    widths = np.array([[[0.5, 0.2]], [[0.5, 0.2]], [[np.nan, np.nan]]])

    found = with_base_widths(quantiles, widths, ((0, 2),), 1)

    np.testing.assert_allclose(found, [[75.0, 100.0, 122.0], [-45.0, 0.0, 52.0], [90.0, 100.0, np.nan]])
