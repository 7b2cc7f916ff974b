"""Causes of simulated faults, found at given moments."""

import numpy as np
import pytest
from benchmarks.predictor.breaches.confusion import TRUTH, causes_at, confusion, first_alerts
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.profile import Grid
from benchmarks.predictor.simulation.scenario import DRIFTS, NEVER, Scenarios

from kernelcast.predictor.arrays import Bools
from kernelcast.wire.catalogue.meanings import Cause


@pytest.fixture(scope="module")
def made() -> Scenarios:
    return generate(3, {"contention": 8, "healthy-kernel": 2}, Grid(history=300, length=600))


def alerts_at(scenarios: Scenarios, place: int) -> Bools:
    return np.tile(np.arange(scenarios.length) >= place, (len(scenarios), 1))


def test_every_fault_of_the_simulation_has_a_true_cause() -> None:
    assert set(TRUTH) == {*DRIFTS, "contention"}


def test_contention_is_named_where_companions_show_it_and_is_a_slow_kernel_where_they_do_not(made: Scenarios) -> None:
    faulty = np.flatnonzero(made.onset != NEVER).astype(np.int64)
    shown = np.isfinite(next(iter(made.companions.values()))[faulty, 0])
    found = causes_at(made, faulty, made.onset[faulty] + 5)

    assert shown.any()
    assert not shown.all()
    expected = {True: Cause.CONTENTION, False: Cause.KERNEL_SLOWDOWN}
    assert found == [expected[bool(one)] for one in shown]


def test_the_first_alert_since_the_onset_of_a_fault_counts(made: Scenarios) -> None:
    rows, ends = first_alerts(made, alerts_at(made, 0))
    assert ends.tolist() == made.onset[rows].tolist()
    assert set(made.classes[rows]) == {"contention"}


def test_a_matrix_counts_each_fault_once(made: Scenarios) -> None:
    result = confusion(made, alerts_at(made, 0))
    counted = [count for part in result.values() for row in part["matrix"].values() for count in row.values()]
    assert sum(counted) == 8
    assert confusion(made, alerts_at(made, made.length))["with companions"] == {"right": None, "matrix": {}}
