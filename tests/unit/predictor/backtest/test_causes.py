"""The column `cause` of a backtest comes from companions where they show one."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.breaches import BreachOptions
from kernelcast.predictor.backtest.causes import alert_causes, cause_name, metric_of
from kernelcast.predictor.backtest.companions import Companions
from kernelcast.predictor.backtest.grid import GridOptions, batches
from kernelcast.predictor.backtest.table import read
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER

START = 1_700_000_000
LENGTH, DEPLOYED_FROM, SLOW_FROM = 900, 300, 700
KERNEL = "cuda_kernel_duration_seconds"
CLOCK, REASONS, LOAD = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_GPU_UTIL"

Series = Mapping[tuple[str, str], Floats]
"""Values by metric and the labels `program,kernel`."""


def step(before: float, after: float, *, share: float = 0.003, seed: int = 1) -> Floats:
    noise = 1 + share * np.random.default_rng(seed).standard_normal(LENGTH)
    return np.where(np.arange(LENGTH) < SLOW_FROM, before, after) * noise


def causes(tmp_path: Path, companions: Series, until: int = LENGTH) -> list[str]:
    """Causes of an alert that fires from a minute on, when the kernel `gemm` of the program `train` gets slow."""
    rows = [f"{START + 60 * at},{value},node1,train,gemm" for at, value in enumerate(step(1e-3, 1.4e-3)[:until])]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["timestamp,value,Hostname,program,kernel", *rows]))
    table = read([path])
    (batch,) = batches(table, GridOptions())
    alerts = (np.arange(until) >= SLOW_FROM + 5).astype(np.float64)[None]
    found = Companions.of_file(table, written(tmp_path, companions, until) if companions else None)
    named = [cause_name(place) for place in alert_causes(batch, alerts, options(found))[0].tolist()]
    assert set(named[: SLOW_FROM + 5]) == {""}
    return named[SLOW_FROM + 5 :]


def options(companions: Companions) -> BreachOptions:
    return BreachOptions(meaning=MEANINGS[KERNEL], companions=companions)


def written(tmp_path: Path, companions: Series, until: int) -> Path:
    lines = ["timestamp,metric,value,Hostname,program,kernel"]
    for (metric, labels), values in companions.items():
        shown = [(at, value) for at, value in enumerate(values[:until]) if np.isfinite(value)]
        lines += [f"{START + 60 * at},{metric},{value},node1,{labels or ','}" for at, value in shown]
    path = tmp_path / "companions.csv"
    path.write_text("\n".join(lines))
    return path


BUSY: Series = {(LOAD, ""): step(90, 90), (CLOCK, ""): step(1980, 1980)}
HELD_BACK: Series = {(LOAD, ""): step(90, 90), (CLOCK, ""): step(1980, 1300)}
SECOND: Series = {
    (KERNEL, "train,norm"): step(2e-3, 2.7e-3, seed=2),
    (KERNEL, "other,gemm"): np.where(np.arange(LENGTH) < SLOW_FROM, np.nan, 3e-3),
}


@pytest.mark.parametrize(
    ("companions", "cause"),
    [
        ({("DCGM_FI_DEV_POWER_USAGE", ""): step(300, 300)}, "kernel_slowdown"),
        (BUSY, "kernel_slowdown"),
        (HELD_BACK, "clock_low"),
        ({**HELD_BACK, (REASONS, ""): step(0, 0x88, share=0)}, "power_brake"),
        ({**HELD_BACK, (REASONS, ""): step(0, 0x48, share=0)}, "thermal"),
        ({**HELD_BACK, (REASONS, ""): step(0, 0x8, share=0)}, "hardware_slowdown"),
        ({**BUSY, **SECOND}, "contention"),
        ({**HELD_BACK, **SECOND}, "clock_low"),
    ],
)
def test_a_slow_kernel_has_the_cause_that_its_gpu_shows(tmp_path: Path, companions: Series, cause: str) -> None:
    found = causes(tmp_path, companions)

    assert len(found) > 150
    assert set(found) == {cause}


DEPLOYED: Series = {
    **BUSY,
    (KERNEL, "train,norm"): np.where(np.arange(LENGTH) < DEPLOYED_FROM, 2e-3, 2.7e-3),
    (KERNEL, "other,gemm"): step(3e-3, 3e-3, seed=3),
}
VERSIONS: Series = {("code_version", "train,"): np.where(np.arange(LENGTH) < DEPLOYED_FROM, 1.0, 2.0)}


def test_a_neighbour_that_is_slower_since_a_deploy_shows_no_contention(tmp_path: Path) -> None:
    assert set(causes(tmp_path, DEPLOYED)) == {"contention"}
    assert set(causes(tmp_path, {**DEPLOYED, **VERSIONS})) == {"kernel_slowdown"}


def test_without_companions_the_cause_is_that_of_the_metric(tmp_path: Path) -> None:
    assert set(causes(tmp_path, {})) == {"kernel_slowdown"}


def test_a_metric_whose_ratio_the_settings_changed_is_still_that_metric() -> None:
    changed = [replace(meaning, own_ratio=1.5) for meaning in MEANINGS.values() if meaning.own_ratio]

    assert [metric_of(meaning) for meaning in changed] == [KERNEL]
    assert [metric_of(meaning) for meaning in MEANINGS.values()] == list(MEANINGS)
    assert metric_of(OTHER) == ""


def test_a_cause_is_found_from_the_rows_before_it_alone(tmp_path: Path) -> None:
    companions = {**HELD_BACK, (REASONS, ""): np.where(np.arange(LENGTH) < SLOW_FROM + 60, 0.0, 0x88)}
    whole, part = causes(tmp_path, companions), causes(tmp_path, companions, SLOW_FROM + 40)

    assert whole[: len(part)] == part
    assert set(part) == {"clock_low"}
    assert whole[-1] == "power_brake"
