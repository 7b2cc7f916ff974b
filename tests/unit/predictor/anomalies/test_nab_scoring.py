"""Scores of the Numenta Anomaly Benchmark, against cases worked out by hand."""

import math

import numpy as np
import pytest
from benchmarks.predictor.numenta.scoring import PROFILES, Profile, best, normalised, prepare, score
from hypothesis import given
from hypothesis import strategies as st

STANDARD, LOW_FP, LOW_FN = PROFILES
ROWS = 1000
WINDOW = (500, 599)


def detections(*rows: int, length: int = ROWS) -> np.ndarray:
    values = np.zeros(length)
    values[list(rows)] = 1.0
    return values


def sigmoid(position: float) -> float:
    return 2 / (1 + math.exp(5 * position)) - 1


def raw(found: float, false_positives: float, profile: Profile) -> float:
    """The normalised score of one file with one window."""
    return (
        100 * (found + profile.false_positive * false_positives + profile.false_negative) / (1 + profile.false_negative)
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_silence_scores_0_and_the_first_row_of_every_window_100(profile: Profile) -> None:
    files = [prepare(ROWS, [WINDOW]), prepare(ROWS, []), prepare(ROWS, [(200, 210), (400, 480)])]
    silent = [np.zeros(ROWS)] * 3
    perfect = [detections(500), detections(), detections(200, 400)]
    assert score(files, silent, 1.0, profile) == 0.0
    assert score(files, perfect, 1.0, profile) == pytest.approx(100.0)
    threshold, highest = best(files, perfect, profile)
    assert threshold == 1.0
    assert highest == pytest.approx(100.0)


@pytest.mark.parametrize("profile", PROFILES)
def test_later_rows_of_a_window_earn_less(profile: Profile) -> None:
    file = [prepare(ROWS, [WINDOW])]
    middle, last = sigmoid(-0.5) / sigmoid(-1), sigmoid(-0.01) / sigmoid(-1)
    assert score(file, [detections(550)], 1.0, profile) == pytest.approx(raw(middle, 0, profile))
    assert score(file, [detections(599)], 1.0, profile) == pytest.approx(raw(last, 0, profile))
    assert score(file, [detections(550, 560, 599)], 1.0, profile) == pytest.approx(raw(middle, 0, profile))


@pytest.mark.parametrize("profile", PROFILES)
def test_detections_outside_cost_more_the_farther_they_are_behind_the_window(profile: Profile) -> None:
    file = [prepare(ROWS, [WINDOW])]
    before = raw(-profile.false_negative, -1.0, profile)
    just_behind = raw(-profile.false_negative, sigmoid(1 / 99), profile)
    far_behind = raw(-profile.false_negative, -1.0, profile)
    assert score(file, [detections(400)], 1.0, profile) == pytest.approx(before)
    assert score(file, [detections(600)], 1.0, profile) == pytest.approx(just_behind)
    assert score(file, [detections(599 + 298)], 1.0, profile) == pytest.approx(far_behind)
    assert just_behind > before


def test_the_first_15_percent_and_at_most_750_rows_are_not_scored() -> None:
    assert prepare(1000, []).probation == 150
    assert prepare(4032, []).probation == 604
    assert prepare(22695, []).probation == 750
    file = [prepare(ROWS, [WINDOW])]
    assert score(file, [detections(10, 149)], 1.0, STANDARD) == 0.0
    assert score(file, [detections(150)], 1.0, STANDARD) < 0.0


def test_the_three_profiles_weigh_one_false_and_one_missed_detection_as_published() -> None:
    files = [prepare(ROWS, [WINDOW]), prepare(ROWS, [])]
    scores = [np.zeros(ROWS), detections(700)]
    assert score(files, scores, 1.0, STANDARD) == pytest.approx(-100 * 0.11 / 2)
    assert score(files, scores, 1.0, LOW_FP) == pytest.approx(-100 * 0.22 / 2)
    assert score(files, scores, 1.0, LOW_FN) == pytest.approx(-100 * 0.11 / 3)
    assert normalised(files, 1.0, LOW_FN) == 100.0


@given(
    st.integers(0, 2**32),
    st.sampled_from(PROFILES),
)
def test_the_best_threshold_is_the_best_of_all_thresholds(seed: int, profile: Profile) -> None:
    files = [prepare(ROWS, [WINDOW, (700, 750)]), prepare(ROWS, [(300, 330)])]
    rng = np.random.default_rng(seed)
    scores = [rng.choice(6, ROWS, p=[0.98, 0.004, 0.004, 0.004, 0.004, 0.004]).astype(float) for _ in files]
    by_trial = max(score(files, scores, threshold, profile) for threshold in (1, 2, 3, 4, 5, np.inf))
    assert best(files, scores, profile)[1] == pytest.approx(by_trial)
