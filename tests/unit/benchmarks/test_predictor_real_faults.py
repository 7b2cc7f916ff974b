"""Faults in the noise of recordings: how recordings are read, resampled and made faulty."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.predictor import real_faults
from benchmarks.predictor.breaches import passage_run
from benchmarks.predictor.options import Options
from benchmarks.predictor.recorded.inject import GRID, HEALTHY, SHAPES, inject, limit_of
from benchmarks.predictor.recorded.noise import Noise, sources
from benchmarks.predictor.simulation.scenario import NEVER, Scenarios

_COUNT = 400


def folder_of_recordings(folder: Path) -> Path:
    """One recording of each format; the metric has an anomaly in its middle, where its values are 1000."""
    values = np.random.default_rng(1).normal(50, 3, _COUNT)
    values[205:215] = 1000
    times = [f"2020-01-01 {at // 60:02}:{at % 60:02}:00" for at in range(_COUNT)]
    (folder / "realX").mkdir()
    rows = [f"{time},{value}" for time, value in zip(times, values, strict=True)]
    (folder / "realX/metric.csv").write_text("\n".join(["timestamp,value", *rows]))
    (folder / "combined_windows.json").write_text(json.dumps({"realX/metric.csv": [[times[203], times[216]]]}))
    steps = [f"3,{at},forward-compute,{1 + at % 7}" for at in range(_COUNT)]
    (folder / "steps.csv").write_text("\n".join(["rank,start_ts,optype,duration", *steps]))
    events = [{"cat": "kernel", "name": "k", "ts": at, "dur": 5 + at % 3} for at in range(_COUNT)]
    with gzip.open(folder / "trace.json.gz", "wt") as lines:
        json.dump({"traceEvents": [*events, {"cat": "cpu_op", "name": "x", "ts": 0, "dur": 1}]}, lines)
    return folder


def test_recordings_of_three_formats_are_read_without_their_anomalies(tmp_path: Path) -> None:
    found = {noise.kind: noise for noise in sources(folder_of_recordings(tmp_path), np.random.default_rng(1))}

    assert set(found) == {"metric", "training step", "kernel"}
    assert [len(piece) for piece in found["metric"].pieces] == [203]
    assert found["metric"].pieces[0].max() < 100
    assert found["training step"].pieces[0][:3].tolist() == [1, 2, 3]


def test_a_drawn_series_has_blocks_of_the_recorded_one() -> None:
    noise = Noise("n", "metric", (np.arange(300.0), 1000 + np.arange(300.0)))
    drawn = noise.drawn(np.random.default_rng(2), GRID.length)

    assert len(drawn) == GRID.length
    assert set(drawn) <= {*np.arange(300.0), *(1000 + np.arange(300.0))}
    assert np.mean(np.diff(drawn) == 1) > 0.97


def test_the_limit_is_set_from_the_first_half_only() -> None:
    noise = np.random.default_rng(3).normal(100, 2, GRID.length)
    other = np.concatenate([noise[: GRID.history], 3 * noise[GRID.history :]])
    limits = [inject(np.random.default_rng(1), [one], 2.0)[0].limit[0, 0] for one in (noise, other)]

    assert limits[0] == limits[1] == limit_of(noise[: GRID.history], 2.0)
    assert limits[0] >= 110


def test_each_fault_breaches_two_to_twelve_hours_after_its_onset() -> None:
    noises = [np.random.default_rng(seed).normal(100, 2, GRID.length) for seed in (1, 2)]
    made, owner = inject(np.random.default_rng(4), noises, 1.25)
    faulty = made.onset != NEVER
    hours = (made.breach[faulty] - made.onset[faulty]) / 60

    assert set(made.classes[faulty]) == set(SHAPES)
    assert set(made.classes[~faulty]) == {HEALTHY}
    assert ((hours >= 2) & (hours <= 12)).all()
    for row in np.flatnonzero(faulty).tolist():
        before = slice(made.onset[row])
        assert (made.values[row, before] == noises[owner[row]][before]).all()


def test_without_recordings_the_benchmark_is_skipped_with_a_sentence(tmp_path: Path) -> None:
    for data, sentence in ((tmp_path / "absent", "does not exist"), (tmp_path, "has no recording")):
        text = real_faults.table(real_faults.run(Options(data, 1)))
        assert text.startswith("skipped: ")
        assert sentence in text
        assert "--data" in text


def near_the_limit(scenarios: Scenarios) -> passage_run.Run:
    """A cheap detector in place of the real one, which other tests run: it fires at 60 % of the way to the limit."""
    usual = np.median(scenarios.values[:, : scenarios.history], axis=1)[:, None]
    alerts = scenarios.values >= usual + 0.6 * (scenarios.limit - usual)
    return passage_run.Run(alerts, np.zeros((len(scenarios), 0, 0)), np.zeros(0, np.int64))


def test_the_benchmark_prints_recall_beside_that_in_simulated_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_faults, "SIMULATED", {"healthy-kernel": 2})
    monkeypatch.setattr(passage_run, "run", near_the_limit)
    result = real_faults.run(Options(folder_of_recordings(tmp_path), 1))
    found = result["headrooms"]["3.0"]

    assert set(found["noise"]) >= {"recorded", "recorded, metric", "simulated"}
    recalls = [found["noise"][name]["detectors"]["kernelcast"]["recall"] for name in ("recorded", "simulated")]
    assert found["recall_ratio"] == pytest.approx(recalls[0] / recalls[1], abs=1e-4)
    assert "recall in recorded noise over that in simulated noise" in real_faults.table(result)
