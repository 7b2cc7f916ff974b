"""The online anomaly detector: detections, silence, and independence of the rows.

A step costs nearly the same for many series, so panels with the same settings run side by side, once.
"""

from collections.abc import Mapping

import numpy as np
import pytest

from kernelcast.predictor.anomalies import AnomalyDetector, AnomalySettings
from kernelcast.predictor.anomalies.episodes import Episodes
from kernelcast.predictor.arrays import Bools, Floats

MINUTE = 60.0
QUARTER_HOUR = 900.0
DAY = 96
"""Quarters of an hour."""


def noise(seed: int, rows: int, series: int = 1, level: float = 50.0, size: float = 1.0) -> Floats:
    return level + size * np.random.default_rng(seed).standard_normal((rows, series))


def scores(
    panel: Floats, season: int = 0, settings: AnomalySettings | None = None, interval_seconds: float = MINUTE
) -> dict[str, Floats]:
    """Run a panel of shape (rows, series); each result has the same shape."""
    detector = AnomalyDetector(panel.shape[1], interval_seconds, season, settings)
    steps = [detector.step(values) for values in panel]
    return {name: np.stack([getattr(one, name) for one in steps]) for name in ("score", "onset")}


def side_by_side(
    panels: Mapping[str, Floats],
    season: int = 0,
    settings: AnomalySettings | None = None,
    interval_seconds: float = MINUTE,
) -> dict[str, dict[str, Floats]]:
    """Run panels of different lengths as one; the results of each have its shape."""
    length = max(len(panel) for panel in panels.values())
    padded = [np.pad(one, ((0, length - len(one)), (0, 0)), constant_values=np.nan) for one in panels.values()]
    found = scores(np.concatenate(padded, axis=1), season, settings, interval_seconds)
    ends = np.cumsum([one.shape[1] for one in panels.values()])
    return {
        name: {field: values[: len(one), end - one.shape[1] : end] for field, values in found.items()}
        for (name, one), end in zip(panels.items(), ends.tolist(), strict=True)
    }


def changed(panel: Floats, rows: slice, by: float) -> Floats:
    panel[rows] += by
    return panel


def with_gaps(panel: Floats, rows: slice | Bools) -> Floats:
    panel[rows] = np.nan
    return panel


LEVELS = (-1e12, -3.3, 0.0, 1e-9, 7.0, 1e12)


@pytest.fixture(scope="module")
def minutes() -> dict[str, dict[str, Floats]]:
    """Results of series without a season, a value a minute."""
    missing = np.random.default_rng(1).random((160, 1)) < 0.02
    return side_by_side(
        {
            **{f"constant {level}": np.where(missing, np.nan, level) for level in LEVELS},
            "early step": changed(noise(1, 90), slice(60, None), 1000),
            "step 1": changed(noise(2, 700, 40), slice(600, None), 12),
            "step -1": changed(noise(2, 700, 40), slice(600, None), -12),
            "lasting": changed(noise(3, 900, 20), slice(600, None), 25),
            "spike": changed(noise(4, 1000, 20), slice(700, 701), 30),
            "recurring": changed(noise(5, 3000, 10), slice(500, None, 100), 30),
            "missing": with_gaps(noise(6, 700, 10), slice(600, None)),
            "regular gaps": with_gaps(noise(7, 1500, 10), np.arange(1500) % 4 != 0),
            "sawtooth": 20 + (np.arange(1000) % 300)[:, None] + noise(10, 1000, 10, level=0),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_constant_is_silent(minutes: dict[str, dict[str, Floats]], level: float) -> None:
    assert not minutes[f"constant {level}"]["onset"].any()


def test_nothing_is_said_before_the_detector_has_learnt(minutes: dict[str, dict[str, Floats]]) -> None:
    assert not minutes["early step"]["score"].any()


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_step_is_found_within_three_values_with_one_alarm(minutes: dict[str, dict[str, Floats]], sign: int) -> None:
    found = minutes[f"step {sign}"]
    alarms = found["onset"] >= 1
    assert alarms[600:603].any(axis=0).mean() >= 0.95
    assert (alarms[600:].sum(axis=0) <= 1).all()


def test_the_score_stays_up_in_a_lasting_fault(minutes: dict[str, dict[str, Floats]]) -> None:
    assert (minutes["lasting"]["score"][603:800] >= 1).mean() >= 0.95


def test_a_spike_is_one_episode_that_ends(minutes: dict[str, dict[str, Floats]]) -> None:
    found = minutes["spike"]
    assert (found["onset"][700] >= 1).all()
    assert not (found["score"][760:] >= 1).any()


def test_a_spike_that_recurs_is_learnt(minutes: dict[str, dict[str, Floats]]) -> None:
    alarms = minutes["recurring"]["onset"] >= 1
    assert alarms[500].any()
    assert alarms[1000:].sum() == 0


def test_missing_values_raise_an_alarm_where_the_series_was_reliable(minutes: dict[str, dict[str, Floats]]) -> None:
    found = minutes["missing"]
    assert (found["onset"][600:610] >= 1).any(axis=0).all()
    assert (found["score"][620:] >= 1).all()


def test_a_series_with_regular_gaps_is_silent(minutes: dict[str, dict[str, Floats]]) -> None:
    assert not (minutes["regular gaps"]["onset"] >= 1).any()


def test_the_first_falls_of_a_sawtooth_are_silent(minutes: dict[str, dict[str, Floats]]) -> None:
    """Each returns to values that were there before."""
    assert not (minutes["sawtooth"]["onset"] >= 1).any()


@pytest.fixture(scope="module")
def days() -> dict[str, dict[str, Floats]]:
    """Results of series with a day's shape, a value in a quarter of an hour."""

    def shaped(count: int) -> Floats:
        wave = 50 + 10 * np.sin(2 * np.pi * np.arange(count * DAY) / DAY)[:, None]
        return np.asarray(wave + 0.3 * noise(8, count * DAY, 10, 0))

    flat = shaped(11)
    flat[10 * DAY :] = 50 + 0.3 * noise(9, DAY, 10, 0)
    return side_by_side({"flat day": flat, "smooth": shaped(5)}, DAY, interval_seconds=QUARTER_HOUR)


@pytest.mark.slow
def test_a_day_without_its_usual_shape_is_found_by_the_season(days: dict[str, dict[str, Floats]]) -> None:
    day = slice(10 * DAY, 11 * DAY)
    assert (days["flat day"]["onset"][day] >= 1).any(axis=0).all()


def test_a_smooth_day_is_silent_from_the_second_day_on(days: dict[str, dict[str, Floats]]) -> None:
    assert not days["smooth"]["onset"].any()


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


UNITS = [(1e-6, 0.0), (0.3, -1e3), (1.0, 1e3), (1e9, 17.0)]


@pytest.fixture(scope="module")
def units() -> dict[str, dict[str, Floats]]:
    """Results of the same noise with a step, by seed and unit."""
    panels: dict[str, Floats] = {}
    for seed in (1, 2):
        panel = changed(noise(seed, 150, 3), slice(130, 131), 20)
        panels |= {f"{seed}": panel} | {f"{seed} {unit}": (panel + unit[1]) * unit[0] for unit in UNITS}
    return side_by_side(panels, settings=AnomalySettings(smallest_ratio=0), interval_seconds=QUARTER_HOUR)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("unit", UNITS)
def test_the_score_does_not_depend_on_the_unit(
    units: dict[str, dict[str, Floats]], seed: int, unit: tuple[float, float]
) -> None:
    expected, other = units[f"{seed}"]["score"], units[f"{seed} {unit}"]["score"]
    assert (expected[130] > 0).all()
    np.testing.assert_allclose(other, expected, rtol=0.02, atol=0.02)


@pytest.mark.slow
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
        for name in ("score", "onset"):
            np.testing.assert_array_equal(getattr(every, name), [getattr(one, name)[0] for one in each])


def test_a_huge_first_value_leaves_the_series_with_scores() -> None:
    panel = noise(11, 400)
    panel[0], panel[300:] = 3e38, -1e28 * panel[300:]
    assert (scores(panel, interval_seconds=QUARTER_HOUR)["score"][300:] > 0).any()


def test_the_number_of_values_is_checked() -> None:
    with pytest.raises(ValueError, match="the detector has 3 series"):
        AnomalyDetector(3, MINUTE).step(np.zeros(2))
