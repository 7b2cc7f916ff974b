"""The detectors on scalars and on arrays give the same results, bit for bit."""

from typing import Final

import numpy as np
import pytest

from kernelcast.predictor.anomalies import AnomalyDetector, AnomalySettings, AnomalyStep
from kernelcast.predictor.anomalies.single import series_steps
from kernelcast.predictor.arrays import Floats

DAY: Final = 96
QUARTER_HOUR: Final = 900.0
ROWS: Final = 1000
COLUMNS: Final = ("score", "onset", "direction", "kind")


def faults(seed: int) -> Floats:
    """A day's shape with spikes, a step, a drift, a flat stretch and gaps."""
    rng = np.random.default_rng(seed)
    values = 50 + 10 * np.sin(2 * np.pi * np.arange(ROWS) / DAY) + rng.standard_normal(ROWS)
    values[rng.integers(100, ROWS, 5)] += rng.normal(0, 40, 5)
    values[400:480] += 30
    values[500:600] += np.arange(100) * rng.normal(0, 0.5)
    values[650:690] = values[650]
    values[720:740] = np.nan
    values[rng.random(ROWS) < 0.02] = np.nan
    return values


def late() -> Floats:
    values = faults(5)
    values[:30] = np.nan
    values[300] = np.inf
    return values


def huge() -> Floats:
    values = faults(10)
    values[[0, 300, 500]], values[[310, 501]] = 3e38, -1e300
    return values


def long_season() -> Floats:
    values = 5 + np.sin(2 * np.pi * np.arange(ROWS) / 300) + 0.1 * np.random.default_rng(3).standard_normal(ROWS)
    values[950:970] += 3
    return values


CASES: Final = {
    "no season": (faults(1), 0),
    "a day": (faults(2), DAY),
    "a short season": (faults(3), 7),
    "a season that is longer than its profile": (long_season(), 300),
    "a spiky series": (np.random.default_rng(6).standard_t(2, ROWS), DAY),
    "few different values": (np.random.default_rng(7).integers(0, 3, ROWS).astype(np.float64), DAY),
    "zeros with bursts": (np.where(np.random.default_rng(8).random(ROWS) < 0.03, 9.0, 0.0), 0),
    "a random walk": (np.random.default_rng(9).standard_normal(ROWS).cumsum(), 0),
    "a large negative unit": (faults(4) * -1e12, DAY),
    "a small unit": (faults(4) * 1e-9, DAY),
    "a large unit": (faults(4) * 1e25, DAY),
    "beyond the largest value": (faults(4) * 1e37, DAY),
    "huge values of both signs": (huge(), DAY),
    "zeros that become large": (np.where(np.arange(ROWS) < 300, 0.0, 1e12), 0),
    "infinite values and a late beginning": (late(), DAY),
}
OTHER: Final = AnomalySettings(
    adoption=20, frozen=0.5, smallest_ratio=0, warm_up=40, calm=3, refractory=5, cycles=1, rhythm_days=1
)


def expected(settings: AnomalySettings | None) -> dict[str, AnomalyStep]:
    """Results of the detector on arrays, of all cases together."""
    panel = np.stack([values for values, _ in CASES.values()])
    detector = AnomalyDetector(len(panel), QUARTER_HOUR, [season for _, season in CASES.values()], settings)
    steps = [detector.step(panel[:, at]) for at in range(ROWS)]
    columns = [np.stack([getattr(step, name) for step in steps], axis=1) for name in COLUMNS]
    return {name: AnomalyStep(*(column[row] for column in columns)) for row, name in enumerate(CASES)}


@pytest.fixture(scope="module", params=[None, OTHER], ids=["default", "other"])
def oracle(request: pytest.FixtureRequest) -> tuple[AnomalySettings | None, dict[str, AnomalyStep]]:
    """Settings, and the results with them."""
    return request.param, expected(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_that_of_the_arrays(
    case: str, oracle: tuple[AnomalySettings | None, dict[str, AnomalyStep]]
) -> None:
    own, results = oracle
    values, season = CASES[case]
    found = series_steps(values, QUARTER_HOUR, season, own)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(found, name), getattr(results[case], name), err_msg=name)


def test_the_cases_have_onsets_of_every_kind(
    oracle: tuple[AnomalySettings | None, dict[str, AnomalyStep]],
) -> None:
    kinds = {int(kind) for step in oracle[1].values() for kind in step.kind[step.onset > 0]}
    assert kinds >= {1, 2, 3, 4, 5, 6} - ({5} if oracle[0] is not None else set())


def test_what_scalars_do_not_cover_is_computed_with_arrays() -> None:
    own = AnomalySettings(frozen=0.0)
    values = faults(6)[300:520]
    detector = AnomalyDetector(1, QUARTER_HOUR, 0, own)
    score = [detector.step(values[at : at + 1]).score[0] for at in range(len(values))]
    np.testing.assert_array_equal(series_steps(values, QUARTER_HOUR, 0, own).score, score)


def test_an_empty_series_has_no_steps() -> None:
    assert series_steps(np.zeros(0), QUARTER_HOUR).score.shape == (0,)
