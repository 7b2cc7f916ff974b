"""Recordings of training steps, as the benchmark reads them."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.predictor.options import Options
from benchmarks.predictor.stragglers import detect, run, table
from benchmarks.predictor.traces.reading import read
from tests.service.require import shared_data


def job(
    *, steps: int = 6, stages: int = 2, replicas: int = 4, tensor: int = 1, slow: tuple[int, int] = (1, 2)
) -> pd.DataFrame:
    """Operations of a job in which one worker takes 1.5 times as long."""
    rows = []
    for step, stage, dp_rank, part, batch in product(*map(range, (steps, stages, replicas, tensor, 3))):
        rank = (stage * replicas + dp_rank) * tensor + part
        factor = 1.5 if (stage, dp_rank) == slow and part == tensor - 1 else 1.0
        for name, seconds in (("forward-compute", 0.1), ("backward-compute", 0.2)):
            rows.append((dp_rank, stage, rank, 10 * step + 7, name, seconds * factor, batch, batch))
    return pd.DataFrame(rows, columns=["dp_rank", "stage", "rank", "step", "optype", "duration", "mb_id", "seq_id"])


def saved(rows: pd.DataFrame, folder: Path) -> Path:
    path = folder / "trace.csv"
    rows.to_csv(path, index=False)
    return path


def named(path: Path) -> list[tuple[int, int, int]]:
    trace = read(path)
    outcome = detect(trace)
    return [(int(trace.stage[at]), int(trace.dp_rank[at]), found.step) for at, found in outcome.first.items()]


def test_columns_and_rows_may_have_any_order(tmp_path: Path) -> None:
    rows = job().sample(frac=1.0, random_state=1)
    assert named(saved(rows[sorted(rows.columns)], tmp_path)) == [(1, 2, 27)]


def test_the_slowest_rank_of_a_tensor_parallel_worker_counts(tmp_path: Path) -> None:
    assert named(saved(job(tensor=4), tmp_path)) == [(1, 2, 27)]


def test_a_step_that_was_repeated_after_a_restart_counts_once(tmp_path: Path) -> None:
    rows = job(slow=(9, 9))
    repeated = rows[rows["step"].isin((27, 37))]
    trace = read(saved(pd.concat([rows, repeated, rows[rows["step"] > 37]]), tmp_path))
    assert [step.step for step in trace.steps] == [7, 17, 27, 37, 47, 57]
    assert trace.steps[2].unit_seconds == pytest.approx(0.3)


def test_a_worker_that_lacks_steps_or_operations_is_no_straggler(tmp_path: Path) -> None:
    rows = job(slow=(9, 9))
    absent = (rows["dp_rank"] == 1) & rows["step"].isin((17, 27))
    cut = (rows["dp_rank"] == 2) & (rows["stage"] == 0) & (rows["optype"] == "backward-compute")
    trace = read(saved(rows[~absent & ~cut], tmp_path))
    assert np.isnan(trace.steps[1].unit_seconds[trace.dp_rank == 1]).all()
    assert detect(trace).first == {}


def test_a_job_without_pipeline_and_recorded_communication_is_read(tmp_path: Path) -> None:
    assert named(saved(job(stages=1, slow=(0, 3)), tmp_path)) == [(0, 3, 27)]


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="lacks the columns stage"):
        read(saved(job().drop(columns="stage"), tmp_path))


@pytest.mark.slow
def test_the_recorded_slow_worker_is_named_within_three_steps_and_no_other() -> None:
    path = shared_data("straggler", "trace-AR.csv.gz")
    outcome = detect(read(path))
    assert named(path) == [(0, 0, 27)]
    assert outcome.last[0].ratio == pytest.approx(2.36, abs=0.05)


def test_the_recorded_heavier_stage_names_no_worker() -> None:
    outcome = detect(read(shared_data("straggler", "trace-ST.csv.gz")))
    assert outcome.first == {}


@pytest.mark.slow
def test_the_result_of_one_file_is_the_top_level(tmp_path: Path) -> None:
    path = saved(job(steps=12), tmp_path)
    result = run(Options(path, 1))
    (found,) = result["named"]
    assert {name: found[name] for name in ("stage", "dp_rank", "ratio", "step")} == {
        "stage": 1,
        "dp_rank": 2,
        "ratio": 1.5,
        "step": 27,
    }
    strong = result["injected"][-1]["detectors"]["kernelcast"]
    assert (strong["named_within"], strong["median_steps"]) == (1.0, 3.0)
    assert "named at step 27" in table(result)
