"""The simulated fleet, the engine over it, and the scores of its pages."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.predictor.fleet.engine import Change, FleetEngine
from benchmarks.predictor.fleet.faults import DRAWS, Injected
from benchmarks.predictor.fleet.layout import DAY_STEPS, IDLE, FleetSize
from benchmarks.predictor.fleet.peers import FIXED, LINEAR, pages_per_day
from benchmarks.predictor.fleet.recording import Recording, record
from benchmarks.predictor.fleet.score import NONE, score

from kernelcast.exporter.simulate.physics import SLOWDOWN_TEMP_C
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity

TEMPERATURE = device.GPU_TEMP.prometheus_name


@pytest.fixture(scope="module")
def fleet() -> Recording:
    return record(1, FleetSize(gpus=256, days=4, faults=len(DRAWS)))


def test_the_same_seed_makes_the_same_fleet() -> None:
    size = FleetSize(gpus=16, days=2, faults=1)
    first, again, other = record(1, size), record(1, size), record(2, size)
    for name, values in first.values.items():
        np.testing.assert_array_equal(values, again.values[name])
    assert not np.array_equal(first.values[TEMPERATURE], other.values[TEMPERATURE])


def test_faults_begin_after_the_history_on_nodes_of_their_own(fleet: Recording) -> None:
    assert len(fleet.faults) >= 8
    nodes: list[int] = []
    for fault in fleet.faults:
        assert DAY_STEPS <= fault.onset < fault.end
        nodes += np.unique(fleet.size.node[fault.gpus]).tolist()
    assert len(nodes) == len(set(nodes))


def test_what_is_no_fault_reaches_no_limit(fleet: Recording) -> None:
    healthy = np.ones(fleet.size.gpus, dtype=np.bool_)
    for fault in fleet.faults:
        healthy[fault.gpus] = False
    assert np.nanmax(fleet.values[TEMPERATURE][healthy]) < SLOWDOWN_TEMP_C
    reasons = fleet.values[device.CLOCK_EVENT_REASONS.prometheus_name][healthy]
    assert not (np.nan_to_num(reasons).astype(np.int64) & 0xE8).any()


def test_kernels_run_where_jobs_do(fleet: Recording) -> None:
    running = fleet.job != IDLE
    np.testing.assert_array_equal(np.isfinite(fleet.values[kernel.DURATION.prometheus_name]), running)
    assert 0.5 < running.mean() < 1


def finding(gpu: int, **changes: object) -> Finding:
    made = Finding(
        finding_id=f"f{gpu}",
        cause=Cause.THERMAL,
        state=FindingState.PREDICTED,
        severity=Severity.PAGE,
        scope=Scope.GPU,
        labels=(("Hostname", "r00-n0"), ("UUID", f"GPU-{gpu}")),
        metric=TEMPERATURE,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def scored(fleet: Recording, *changes: Change) -> dict[str, object]:
    fault = Injected("thermal-drift", frozenset({Cause.THERMAL}), Scope.GPU, np.array([3]), 400, 500)
    return score(replace(fleet, faults=[fault]), list(changes))


def test_a_page_is_right_on_the_right_gpu_with_the_right_cause(fleet: Recording) -> None:
    cases = {
        "right": ([Change(410, finding(3))], 1, 1, 0),
        "another GPU": ([Change(410, finding(4))], 0, 0, 1),
        "another cause": ([Change(410, finding(3, cause=Cause.MEMORY_LEAK))], 0, 1, 0),
        "corrected": ([Change(410, finding(3, cause=Cause.UNKNOWN)), Change(415, finding(3))], 1, 1, 0),
        "too early": ([Change(390, finding(3))], 0, 0, 1),
        "held": ([Change(410, finding(3, held=True))], 0, 0, 0),
        "released": ([Change(410, finding(3, held=True)), Change(450, finding(3))], 1, 1, 0),
        "ticket": ([Change(410, finding(3, severity=Severity.TICKET))], 0, 0, 0),
        "node": ([Change(410, finding(3, scope=Scope.NODE, labels=(("Hostname", "r00-n0"),)))], 0, 1, 0),
    }
    for name, (changes, right, paged, false) in cases.items():
        found = scored(fleet, *changes)
        assert (found["right"], found["paged"], len(found["false_pages"])) == (right, paged, false), name  # type: ignore[arg-type]
    assert scored(fleet)["results"] == [
        {
            "kind": "thermal-drift",
            "expected": "thermal",
            "found": NONE,
            "scope": "",
            "right": False,
            "pages": 0,
            "delay_hours": None,
        }
    ]


def test_the_rules_of_people_page_for_each_series(fleet: Recording) -> None:
    rates = pages_per_day(fleet)
    assert set(rates) == {FIXED, LINEAR}
    assert min(rates.values()) > 1


def test_the_engine_pages_a_brake_and_lost_lanes_of_a_small_fleet_once_each() -> None:
    # Seed 7 begins with the fourth of the 11 kinds, the power brake.
    recording = record(7, FleetSize(gpus=24, days=2, faults=2))
    onsets = [fault.onset for fault in recording.faults]
    found = score(recording, list(FleetEngine(recording).run(range(min(onsets) - 3, max(onsets) + 13))))
    assert [(one["expected"], one["right"], one["pages"]) for one in found["results"]] == [
        ("power_brake", True, 1),
        ("pcie_link", True, 1),
    ]
    assert found["false_pages"] == []
