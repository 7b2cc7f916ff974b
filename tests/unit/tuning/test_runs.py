"""Whole runs of a program as the launches of an experiment."""

from collections.abc import Mapping
from random import Random

import pytest

from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.runs import MeasuredRun, RunFailedError, _reported, prove

OLD, NEW = {"bucket_mb": "1"}, {"bucket_mb": "25"}


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.3, Decision.KEPT), (-0.3, Decision.ROLLED_BACK), (-1.0, Decision.ROLLED_BACK)]
)
def test_a_faster_value_is_kept_after_some_fifty_runs(gain: float, expected: Decision) -> None:
    random, ran = Random(1), []

    def run(values: Mapping[str, str]) -> MeasuredRun:
        ran.append(values)
        items = random.uniform(50, 150)
        return MeasuredRun(items * (1 - gain if values == NEW else 1) * random.uniform(0.95, 1.05), items)

    verdict = prove(run, NEW, OLD, seed=3)
    assert verdict.decision is expected
    assert len(ran) <= 90
    assert (verdict.candidate_launches, verdict.kept_launches) == (ran.count(NEW), ran.count(OLD))


@pytest.mark.parametrize("printed", ['{"seconds": 1' + 400 * "0" + "}", 100_000 * "[", "[1]", "{}", ""])
def test_a_last_line_that_is_no_measurement_leaves_the_wall_time(printed: str) -> None:
    assert _reported(f"loss 0.1\n{printed}\n") is None


def test_a_new_value_that_fails_ends_the_proof_and_an_old_one_raises() -> None:
    def run(values: Mapping[str, str]) -> MeasuredRun:
        if values == NEW:
            raise RunFailedError("out of memory")
        return MeasuredRun(1.0)

    verdict = prove(run, NEW, OLD, seed=1)
    assert (verdict.decision, verdict.reason) == (Decision.FAILED, "out of memory")
    with pytest.raises(RunFailedError):
        prove(run, OLD, NEW, seed=1)
