"""Simulated series: their truth, their limits and their companions."""

import numpy as np
import pytest
from benchmarks.predictor.simulation.generate import METRICS, generate
from benchmarks.predictor.simulation.scenario import CLASSES, DRIFTS, NEGATIVES, NEVER, Scenarios

from kernelcast.exporter.simulate.physics import SLOWDOWN_TEMP_C
from kernelcast.wire.catalogue.devices import device


@pytest.fixture(scope="module")
def made() -> Scenarios:
    return generate(5, dict.fromkeys(CLASSES, 6))


@pytest.mark.slow
def test_the_same_seed_makes_the_same_series(made: Scenarios) -> None:
    again = generate(5, dict.fromkeys(CLASSES, 6))
    np.testing.assert_array_equal(made.values, again.values)
    assert not np.array_equal(made.values, generate(6, dict.fromkeys(CLASSES, 6)).values)


def test_a_day_of_history_and_a_day_of_evaluation_of_each_class(made: Scenarios) -> None:
    assert made.values.shape == (84, 2880)
    assert made.history == 1440
    assert np.isfinite(made.values).all()
    assert set(made.classes) == set(CLASSES)


def test_faults_begin_in_the_evaluation_and_breach_after_their_onset(made: Scenarios) -> None:
    faults = ~np.isin(made.classes, NEGATIVES)
    assert (made.onset[faults] >= made.history).all()
    assert (made.onset[~faults] == NEVER).all()
    breached = faults & (made.breach != NEVER)
    assert breached.sum() >= 0.8 * faults.sum()
    # The limit can be reached a little early by noise, never before the fault.
    assert (made.breach[breached] >= made.onset[breached]).all()


def test_drifts_take_hours(made: Scenarios) -> None:
    drifts = np.isin(made.classes, DRIFTS) & (made.breach != NEVER)
    hours = (made.breach - made.onset)[drifts] / 60
    assert 4 < np.median(hours) < 14
    assert hours.max() < 22


def test_a_gpus_limit_is_the_slowdown_temperature_and_a_kernels_must_be_learnt(made: Scenarios) -> None:
    temperature = made.metrics == METRICS["temperature"]
    assert (made.limit[temperature] == SLOWDOWN_TEMP_C).all()
    np.testing.assert_array_equal(made.limit_is_known, made.metrics != METRICS["kernel"])


def test_the_limit_of_a_deploy_moves_with_its_version(made: Scenarios) -> None:
    deploys = made.classes == "deploy"
    ratio = made.limit[deploys, -1] / made.limit[deploys, 0]
    assert set(np.round(ratio, 6)) == {0.75, 1.25}
    assert (np.diff(made.process[deploys]).sum(axis=1) == 1).all()


def test_half_of_the_series_have_companions_and_a_version(made: Scenarios) -> None:
    power = made.companions[device.POWER_USAGE.prometheus_name]
    shown = np.isfinite(power).all(axis=1)
    assert np.isnan(power[~shown]).all()
    assert 0.25 < shown.mean() < 0.75
    np.testing.assert_array_equal(shown, (made.version >= 0).all(axis=1))


def test_counts_choose_the_share_of_faults() -> None:
    made = generate(2, {"thermal-drift": 1, "diurnal": 9})
    assert (made.classes == "thermal-drift").sum() == 1
    assert len(made) == 10
