"""Factors that scale intervals to their nominal coverage."""

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.scoring.widening import LEAST_CLAIMS, REMEMBERED, Widening

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
