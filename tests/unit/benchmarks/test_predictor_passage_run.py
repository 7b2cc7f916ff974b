"""The passage detector on simulated series, as the benchmarks run it."""

from collections.abc import Mapping
from types import ModuleType

import numpy as np
import pytest
from benchmarks.predictor import calibration, contention, degradation
from benchmarks.predictor.breaches import passage_run, silent_cases
from benchmarks.predictor.fitting.calibration import isotonic
from benchmarks.predictor.options import Options
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.profile import Grid
from benchmarks.predictor.simulation.scenario import Scenarios

_SHORT = Grid(history=240, length=420)


def test_two_faults_that_once_passed_in_silence_raise_alerts() -> None:
    found = silent_cases.score(3)
    hot, slow = found["rising temperature"], found["slow after compilation"]
    assert hot["alarmed"] == hot["series"]
    assert hot["minutes_after"]["most"] < -60
    assert slow["alarmed"] == slow["series"]
    # Not while it compiles: the reference is the third hour.
    assert slow["minutes_after"]["least"] >= 0


@pytest.mark.slow
def test_alerts_do_not_depend_on_later_values() -> None:
    made = generate(4, {"thermal-drift": 2, "contention": 2, "sawtooth": 2}, Grid(history=240, length=1440))
    whole = passage_run.run(made)
    cut = made.length - 300
    part = Scenarios(
        made.classes, made.metrics, made.interval_seconds, made.history, made.values[:, :cut], made.limit[:, :cut],
        made.limit_is_known, made.process[:, :cut], made.version[:, :cut],
        {name: values[:, :cut] for name, values in made.companions.items()}, made.onset, made.breach,
    )  # fmt: skip
    np.testing.assert_array_equal(passage_run.run(part).alerts, whole.alerts[:, :cut])


def test_isotonic_regression_pools_what_descends() -> None:
    fitted = isotonic(np.array([0.1, 0.4, 0.2, 0.9]), np.array([1.0, 1.0, 3.0, 1.0]))
    np.testing.assert_allclose(fitted, [0.1, 0.25, 0.25, 0.9])


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", [calibration, contention, degradation])
def test_a_benchmark_has_a_table(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"memory-leak": 2, "contention": 2, "diurnal": 2, "deploy": 2}

    def small(seed: int, _counts: Mapping[str, int] | None = None) -> Scenarios:
        return generate(seed, few)

    monkeypatch.setattr(benchmark, "generate", small)
    monkeypatch.setattr(benchmark, "SEEDS", 1)
    # All populations of the calibration are the same few series here, and one fills every row of its table.
    monkeypatch.setattr(calibration, "POPULATIONS", {"29 % faulty": few})
    result = benchmark.run(Options(None, 2))
    assert result["simulated"] is True
    assert "kernelcast" in benchmark.table(result) or "came" in benchmark.table(result)
