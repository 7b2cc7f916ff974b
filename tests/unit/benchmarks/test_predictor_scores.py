"""Scores of detectors on simulated series, against cases that were computed by hand."""

import numpy as np
import pytest
from benchmarks.predictor.breaches.detection import detect, score
from benchmarks.predictor.breaches.reliability import Claims, draw_claims, reliability, skill_at_prevalence
from benchmarks.predictor.breaches.rules_of_thumb import lasting, predict_linear
from benchmarks.predictor.simulation.scenario import NEVER, Scenarios, breaches, first_breach

_HISTORY, _LENGTH = 60, 180


def scenarios(classes: list[str], *, onset: list[int], breach: list[int]) -> Scenarios:
    shape = (len(classes), _LENGTH)
    values = np.zeros(shape)
    for row, place in enumerate(breach):
        if place != NEVER:
            values[row, place:] = 100.0
    return Scenarios(
        classes=np.array(classes),
        metrics=np.array(["m"] * len(classes)),
        interval_seconds=60.0,
        history=_HISTORY,
        values=values,
        limit=np.full(shape, 10.0),
        limit_is_known=np.ones(len(classes), dtype=np.bool_),
        process=np.zeros(shape, dtype=np.int64),
        version=np.zeros(shape, dtype=np.int64),
        companions={},
        onset=np.array(onset),
        breach=np.array(breach),
    )


def firing(*spans: tuple[int, int, int], rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    alerts = np.zeros((rows, _LENGTH), dtype=np.bool_)
    for row, first, end in spans:
        alerts[row, first:end] = True
    return alerts


def test_a_breach_begins_when_the_mean_of_five_minutes_reaches_the_limit() -> None:
    values = np.zeros((1, 12))
    values[0, 6:] = 10.0
    beyond = breaches(values, np.full((1, 1), 6.0), 60.0)
    assert first_breach(beyond, 0).tolist() == [8]
    assert first_breach(breaches(values, np.full((1, 1), 10.0), 60.0), 0).tolist() == [10]
    assert first_breach(breaches(values, np.full((1, 1), 10.1), 60.0), 0).tolist() == [NEVER]


def test_a_value_counts_relative_to_the_limit_of_its_own_interval() -> None:
    values = np.r_[np.full(10, 1.0), np.full(10, 0.75)][None]
    limit = 1.2 * values
    assert not breaches(values, limit, 60.0).any()


def test_lead_is_counted_from_the_first_alert_since_the_onset() -> None:
    made = scenarios(["thermal-drift"], onset=[80], breach=[140])
    found = detect(made, firing((0, 70, 75), (0, 100, 180), rows=1))
    assert found.lead_minutes.tolist() == [40.0]
    assert found.episodes.tolist() == [2]
    assert found.early.tolist() == [1]


def test_an_alert_after_the_breach_has_a_negative_lead_and_none_has_no_lead() -> None:
    made = scenarios(["contention", "contention"], onset=[100, 100], breach=[101, 101])
    assert detect(made, firing((0, 103, 180), rows=2)).lead_minutes.tolist() == [-2.0, -np.inf]


def test_recall_counts_drifts_with_a_quarter_of_an_hour_of_lead() -> None:
    made = scenarios(["memory-leak"] * 4, onset=[70] * 4, breach=[140, 140, 140, NEVER])
    figures = score(made, firing((0, 125, 180), (1, 126, 180), rows=4))
    assert figures["drifts"] == 3
    assert figures["recall"] == pytest.approx(1 / 3, abs=1e-4)
    assert figures["median_lead_minutes"] == 15.0


def test_false_alarms_are_episodes_on_negatives_that_do_not_breach() -> None:
    made = scenarios(["diurnal", "diurnal", "restart"], onset=[NEVER] * 3, breach=[NEVER, NEVER, 150])
    figures = score(made, firing((0, 10, 20), (0, 70, 80), (0, 90, 95), (2, 100, 180), rows=3))
    # Two episodes in the evaluation, on two series of 120 minutes each.
    assert figures["false_alarms_per_series_day"] == pytest.approx(2 / (2 * 120 / 1440), abs=1e-4)
    assert figures["breached_negatives"] == 1


def test_contention_is_prompt_within_three_minutes_of_its_breach() -> None:
    made = scenarios(["contention"] * 4, onset=[100] * 4, breach=[102] * 4)
    figures = score(made, firing((0, 101, 180), (1, 105, 180), (2, 106, 180), rows=4))
    assert figures["contention_within_3_minutes"] == 0.5
    assert figures["contention_delay_minutes"] == 3.5


def test_predict_linear_continues_a_line_and_a_constant() -> None:
    line = 5.0 + 0.25 * np.arange(200.0)
    ahead = predict_linear(np.stack([line, np.full(200, 7.0)]), 60.0, 3600.0, 600.0)
    assert np.isnan(ahead[:, :59]).all()
    np.testing.assert_allclose(ahead[0, 59:], line[59:] + 2.5)
    np.testing.assert_allclose(ahead[1, 59:], 7.0)


def test_predict_linear_is_least_squares() -> None:
    values = np.random.default_rng(3).normal(size=(1, 90))
    ahead = predict_linear(values, 60.0, 3600.0, 600.0)
    line = np.polynomial.Polynomial.fit(np.arange(60), values[0, 30:], 1)
    assert ahead[0, -1] == pytest.approx(line(59 + 10))


def test_lasting_waits_for_the_whole_time() -> None:
    condition = np.array([[False, True, True, True, False, True]])
    assert lasting(condition, 2).tolist() == [[False, False, False, True, False, False]]


def test_claims_are_one_for_each_series_and_horizon_and_none_beyond_the_limit() -> None:
    made = scenarios(["memory-leak", "diurnal"], onset=[65, NEVER], breach=[70, NEVER])
    issued = np.arange(100, 180, 5)
    said = np.full((2, len(issued), 2), 0.5)
    claims = draw_claims(made, said, issued, (300.0, 3600.0), np.random.default_rng(1))
    assert claims.series.tolist() == [1, 1]
    assert claims.horizon_seconds.tolist() == [300.0, 3600.0]
    assert not claims.came.any()


def test_a_claim_under_way_is_made_between_onset_and_breach() -> None:
    made = scenarios(["memory-leak"] * 50, onset=[100] * 50, breach=[130] * 50)
    issued = np.arange(60, 180)
    said = np.tile(issued[None, :, None] / 1000.0, (50, 1, 1))
    claims = draw_claims(made, said, issued, (900.0,), np.random.default_rng(1), under_way=True)
    moment = np.rint(1000 * claims.said)
    assert moment.min() >= 100
    assert moment.max() < 130
    assert (claims.came == (moment >= 115)).all()


def test_brier_skill_is_relative_to_the_base_rate() -> None:
    came = np.r_[np.ones(20), np.zeros(60)].astype(np.bool_)
    said = np.where(came, 0.9, 0.1)
    figures = reliability(Claims(np.arange(80), np.full(80, 3600.0), said, came, came), np.random.default_rng(1))
    assert figures["brier"] == pytest.approx(0.01)
    assert figures["skill"] == pytest.approx(1 - 0.01 / (0.25 * 0.75), abs=1e-4)


def test_the_skill_at_a_prevalence_weighs_faulty_and_healthy_series_as_if_they_were_that_rare() -> None:
    came = np.r_[np.ones(20), np.zeros(60)].astype(np.bool_)
    said = np.r_[np.full(20, 0.9), np.full(2, 0.9), np.zeros(58)]
    claims = Claims(np.arange(80), np.full(80, 3600.0), said, came, came)
    plain = reliability(claims, np.random.default_rng(1))["skill"]
    same, rare = (skill_at_prevalence(claims, share, np.random.default_rng(1))["3600"] for share in (0.25, 0.02))
    assert same["skill"] == pytest.approx(plain, abs=1e-4)
    error = 0.02 * 0.01 + 0.98 * 2 * 0.81 / 60
    assert rare["skill"] == pytest.approx(1 - error / (0.02 * 0.98), abs=1e-4)
    assert rare["interval"][0] < rare["skill"] < rare["interval"][1]


def test_a_bin_holds_within_a_tenth_and_is_judged_from_fifty_series() -> None:
    said = np.r_[np.full(60, 0.9), np.full(60, 0.6), np.full(49, 0.3)]
    came = np.r_[np.ones(52), np.zeros(8), np.ones(10), np.zeros(50), np.zeros(49)].astype(np.bool_)
    figures = reliability(Claims(np.arange(169), np.full(169, 60.0), said, came, came), np.random.default_rng(1))
    by_start = {row["from"]: row for row in figures["bins"]}
    assert by_start[0.8]["came"] == pytest.approx(52 / 60, abs=1e-4)
    assert by_start[0.8]["holds"] is True
    assert by_start[0.5]["holds"] is False
    assert by_start[0.2]["holds"] is None
    assert by_start[0.95]["claims"] == 0
