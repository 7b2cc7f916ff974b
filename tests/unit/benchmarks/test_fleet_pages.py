"""Pages of a fleet are scored by the GPU that they name, and by when they name it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from benchmarks.predictor.worlds.fleet_pages import Candidate, Row, one_at_a_time, pages, score, table
from benchmarks.predictor.worlds.others_fleet import FLEET_WORLDS
from benchmarks.predictor.worlds.series import WorldSeries

BLOCKS = 7 * 288
TIMES = 1_800_000_000.0 + 300.0 * np.arange(BLOCKS, dtype=np.float64)
ONSET, BREACH = 600, 700


def row(gpu: str, *, faulty: bool) -> Row:
    world = FLEET_WORLDS["office", "temperature", "fan_clogs" if faulty else None]
    onset, breach = (TIMES[ONSET], TIMES[BREACH]) if faulty else (None, None)
    series = WorldSeries("DCGM_FI_DEV_GPU_TEMP", TIMES, np.full(BLOCKS, 60.0), 87.0, onset, breach)
    return Row("gpu-node-0000", gpu, world, series)


def scored(alerting: int, begin: int) -> dict[str, Any]:
    """One of two GPUs is certain to reach its limit within the hour, from a block on until the breach is over."""
    rows = [row("GPU-a", faulty=True), row("GPU-b", faulty=False)]
    said = Candidate(alerting, beyond=False, level=0.9, limit=87.0, probability=0.99, seconds=(600.0, 1200.0, 1800.0))
    found = [[said] if begin <= block < BREACH + 20 else [] for block in range(BLOCKS + 1)]
    return score(rows, pages(rows, found, watched=3000), 2, found)


def test_a_page_before_the_limit_finds_the_fault_and_its_lead_is_that_of_the_page() -> None:
    found = scored(0, BREACH - 36)
    # Two more blocks pass while the page waits.
    assert (found["paged"], found["faults"], found["precision"]) == (1, 1, 1.0)
    assert found["lead_minutes"] == [36 * 5 - 10]


def test_faults_are_counted_by_kind_with_the_lead_of_the_alert_beside_that_of_the_page() -> None:
    found = scored(0, BREACH - 36)
    assert found["by_fault"] == {
        "fan_clogs": {
            "faults": 1,
            "alerted": 1,
            "paged": 1,
            "alert_lead_minutes": [36 * 5],
            "lead_minutes": [36 * 5 - 10],
        }
    }
    alone = {"paged": 0, "faults": 1, "lead_minutes": [0.0]}
    lines = table({"seeds": [{**found, "seed": 7, "alone": alone}]}).splitlines()
    assert lines[-1].split() == ["fan_clogs", "1", "1", "180", "1", "170"]
    assert lines[1].split()[-5:] == ["1/1", "170", "0/1", "0", "0"]


def test_faults_one_at_a_time_wait_for_evidence_of_their_own() -> None:
    rows = [replace(row(f"GPU-{number}", faulty=True), node=f"gpu-node-{number}") for number in range(40)]
    said = [
        Candidate(place, beyond=False, level=0.9, limit=87.0, probability=0.99, seconds=(3e4, 5e4, 8e4))
        for place in range(40)
    ]
    found = [said if BREACH - 6 <= block < BREACH else [] for block in range(BLOCKS + 1)]
    assert score(rows, pages(rows, found, watched=3000), 40, found)["paged"] == 40
    assert one_at_a_time(rows[:1], [now[:1] for now in found])["paged"] == 0


def test_a_page_at_the_limit_is_a_miss() -> None:
    found = scored(0, BREACH + 1)
    assert (found["paged"], found["lead_minutes"]) == (0, [0.0])


def test_a_page_about_another_gpu_or_before_the_onset_is_false() -> None:
    assert scored(1, BREACH - 36)["precision"] == 0
    assert scored(1, BREACH - 36)["paged"] == 0
    assert scored(0, ONSET - 36)["false"] == 1
