"""The online anomaly detector: detections, silence, and independence of the rows."""

import numpy as np
import pytest

from kernelcast.predictor.anomalies import AnomalyDetector, AnomalyKind, AnomalySettings
from kernelcast.predictor.anomalies.episodes import Episodes
from kernelcast.predictor.arrays import Floats

MINUTE = 60.0
QUARTER_HOUR = 900.0


def noise(seed: int, rows: int, series: int = 1, level: float = 50.0, size: float = 1.0) -> Floats:
    return level + size * np.random.default_rng(seed).standard_normal((rows, series))


def scores(
    panel: Floats, season: int = 0, settings: AnomalySettings | None = None, interval_seconds: float = MINUTE
) -> dict[str, Floats]:
    """Run a panel of shape (rows, series); each result has the same shape."""
    detector = AnomalyDetector(panel.shape[1], interval_seconds, season, settings)
    steps = [detector.step(values) for values in panel]
    return {name: np.stack([getattr(one, name) for one in steps]) for name in ("score", "onset", "direction", "kind")}


@pytest.mark.parametrize("level", [-1e12, -3.3, 0.0, 1e-9, 7.0, 1e12])
def test_a_constant_is_silent(level: float) -> None:
    gaps = np.random.default_rng(1).random((160, 1)) < 0.02
    found = scores(np.where(gaps, np.nan, level))
    assert not found["onset"].any()


def test_nothing_is_said_before_the_detector_has_learnt() -> None:
    panel = noise(1, 90)
    panel[60:] += 1000
    assert not scores(panel)["score"].any()


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_step_is_found_within_three_values_with_one_alarm_and_its_direction(sign: int) -> None:
    panel = noise(2, 700, 40)
    panel[600:] += sign * 12
    found = scores(panel)
    alarms = found["onset"] >= 1
    assert alarms[600:603].any(axis=0).mean() >= 0.95
    assert (alarms[600:].sum(axis=0) <= 1).all()
    assert (found["direction"][603] == sign).mean() >= 0.95
    assert (found["kind"][640] == AnomalyKind.LEVEL_SHIFT).mean() >= 0.9


def test_the_score_stays_up_in_a_lasting_fault() -> None:
    panel = noise(3, 900, 20)
    panel[600:] += 25
    assert (scores(panel)["score"][603:800] >= 1).mean() >= 0.95


def test_a_spike_is_one_episode_that_ends() -> None:
    panel = noise(4, 1000, 20)
    panel[700] += 30
    found = scores(panel)
    assert (found["onset"][700] >= 1).all()
    assert (found["kind"][700] == AnomalyKind.SPIKE).all()
    assert not (found["score"][760:] >= 1).any()


def test_a_spike_that_recurs_is_learnt() -> None:
    panel = noise(5, 3000, 10)
    panel[500::100] += 30
    alarms = scores(panel)["onset"] >= 1
    assert alarms[500].any()
    assert alarms[1000:].sum() == 0


def test_missing_values_raise_an_alarm_where_the_series_was_reliable() -> None:
    panel = noise(6, 700, 10)
    panel[600:] = np.nan
    found = scores(panel)
    assert (found["onset"][600:610] >= 1).any(axis=0).all()
    assert (found["kind"][610] == AnomalyKind.MISSING).all()
    assert (found["score"][620:] >= 1).all()


def test_a_series_with_regular_gaps_is_silent() -> None:
    panel = noise(7, 1500, 10)
    panel[np.arange(1500) % 4 != 0] = np.nan
    assert not (scores(panel)["onset"] >= 1).any()


def test_a_day_without_its_usual_shape_is_found_by_the_season() -> None:
    season = 96
    panel = 50 + 10 * np.sin(2 * np.pi * np.arange(14 * season) / season)[:, None] + 0.3 * noise(8, 14 * season, 10, 0)
    panel[10 * season : 11 * season] = 50 + 0.3 * noise(9, season, 10, 0)
    with_season = scores(panel, season, interval_seconds=QUARTER_HOUR)
    day = slice(10 * season, 11 * season)
    assert (with_season["onset"][day] >= 1).any(axis=0).all()
    assert (with_season["kind"][day] == AnomalyKind.SEASONAL).any()


def test_the_first_falls_of_a_sawtooth_are_silent() -> None:
    """Each returns to values that were there before."""
    panel = 20 + (np.arange(1000) % 300)[:, None] + noise(10, 1000, 10, level=0)
    assert not (scores(panel)["onset"] >= 1).any()


def test_a_smooth_day_is_silent_from_the_second_day_on() -> None:
    season = 96
    panel = 50 + 10 * np.sin(2 * np.pi * np.arange(5 * season) / season)[:, None] + 0.3 * noise(8, 5 * season, 10, 0)
    assert not scores(panel, season, interval_seconds=QUARTER_HOUR)["onset"].any()


def test_an_episode_ends_once_its_state_is_the_normal_one() -> None:
    """Weak evidence that returns each day would otherwise keep it open, and hide the next fault."""
    settings = AnomalySettings()
    episodes = Episodes(1, settings)
    strong, weak, none = (np.array([value], np.float32) for value in (1.5, settings.hysteresis, 0.0))
    episodes.step(slice(None), strong, strong, (strong, strong))
    for _ in range(settings.adoption - 1):
        episodes.step(slice(None), weak, none, (weak, none))
    assert episodes.age[0] == settings.adoption
    for _ in range(settings.calm):
        episodes.step(slice(None), weak, none, (weak, none))
    assert episodes.age[0] == 0


def test_a_score_without_evidence_for_an_alarm_stays_below_1() -> None:
    """A state that was there before is shown, but needs more evidence to be an alarm."""
    episodes = Episodes(1, AnomalySettings())
    strong, weak = np.array([1.1], np.float32), np.array([0.95], np.float32)
    for _ in range(3):
        score, onset = episodes.step(slice(None), strong, strong, (weak, weak))
        assert 0.9 < score[0] < 1
        assert onset[0] < 1
    score, onset = episodes.step(slice(None), strong, strong, (strong, strong))
    assert score[0] == onset[0] == strong[0]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("factor", "shift"), [(1e-6, 0.0), (0.3, -1e3), (1.0, 1e3), (1e9, 17.0)])
def test_the_score_does_not_depend_on_the_unit(seed: int, factor: float, shift: float) -> None:
    settings = AnomalySettings(smallest_ratio=0)
    panel = noise(seed, 150, 3)
    panel[130] += 20
    other = scores((panel + shift) * factor, settings=settings, interval_seconds=QUARTER_HOUR)
    expected = scores(panel, settings=settings, interval_seconds=QUARTER_HOUR)["score"]
    assert (expected[130] > 0).all()
    np.testing.assert_allclose(other["score"], expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_rows_at_once_are_as_one_at_a_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    panel = np.where(rng.random((140, 4)) < 0.05, np.nan, noise(seed, 140, 4, level=3, size=2))
    panel[120:, 1] += 30
    season = np.array([0, 24, 0, 36])
    together = AnomalyDetector(4, QUARTER_HOUR, season)
    alone = [AnomalyDetector(1, QUARTER_HOUR, one) for one in season]
    for values in panel:
        every = together.step(values)
        each = [detector.step(values[row : row + 1]) for row, detector in enumerate(alone)]
        for name in ("score", "onset", "direction", "kind"):
            np.testing.assert_array_equal(getattr(every, name), [getattr(one, name)[0] for one in each])


def test_the_number_of_values_is_checked() -> None:
    with pytest.raises(ValueError, match="the detector has 3 series"):
        AnomalyDetector(3, MINUTE).step(np.zeros(2))
