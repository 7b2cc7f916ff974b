"""Slow workers: who is named, when, and for how long."""

import numpy as np
import pytest
from tests.unit.predictor.peers.conftest import Job

from kernelcast.predictor.peers import Basis, PeerDetector, PeerGroups, PeerStep


@pytest.mark.parametrize("slowdown", [1.1, 1.2, 1.5, 3.0])
@pytest.mark.parametrize("start", [0, 12])
def test_a_slow_worker_is_named_at_its_third_slow_step_and_no_other(slowdown: float, start: int) -> None:
    job = Job(stages=3, replicas=4)
    job.factors[start:, 1, 2] *= slowdown
    (finding,) = job.run()
    assert (finding.worker, finding.since_step, finding.step) == (6, start, start + 2)
    assert finding.basis is Basis.PEERS
    (lasting,) = job.detector.findings
    assert lasting.ratio == pytest.approx(slowdown, rel=0.02)
    assert (lasting.peers, lasting.slow_steps) == (3, 30 - start)
    assert lasting.own_seconds == pytest.approx(lasting.ratio * lasting.reference_seconds, rel=0.05)


def test_two_slow_workers_of_one_stage_are_both_named() -> None:
    job = Job(stages=2, replicas=5)
    job.factors[:, 0, 1] *= 1.3
    job.factors[:, 0, 3] *= 2.4
    assert sorted(finding.worker for finding in job.run()) == [1, 3]


def test_two_slow_workers_of_one_replica_are_both_named() -> None:
    job = Job(stages=4, replicas=4)
    job.factors[:, 0, 1] *= 1.3
    job.factors[:, 2, 1] *= 1.6
    assert sorted(finding.worker for finding in job.run()) == [1, 9]


def test_two_slow_workers_of_two_stages_are_both_named() -> None:
    job = Job(stages=2, replicas=4)
    job.factors[:, 0, 1] *= 1.3
    job.factors[:, 1, 1] *= 1.8
    assert [(finding.worker, finding.step) for finding in job.run()] == [(1, 2), (5, 2)]


def test_two_slow_workers_of_four_are_named() -> None:
    job = Job(stages=1, replicas=4)
    job.factors[:, 0, 1] *= 1.3
    job.factors[:, 0, 2] *= 2.2
    assert sorted(finding.worker for finding in job.run()) == [1, 2]


def test_a_slow_worker_of_four_alone_is_named_at_its_fourth_step() -> None:
    job = Job(stages=1, replicas=4)
    job.factors *= np.array([1.02, 1.15, 0.98, 1.0])[:, np.newaxis]
    (finding,) = job.run()
    assert (finding.worker, finding.since_step, finding.step) == (1, 1, 3)


def test_healthy_workers_are_not_named() -> None:
    job = Job(stages=4, replicas=8, steps=100)
    assert job.run() == []


def test_two_slow_steps_are_no_finding() -> None:
    job = Job(stages=2, replicas=4)
    job.factors[4:6, 0, 1] *= 2.0
    job.factors[15:17, 1, 3] *= 2.0
    assert job.run() == []


def test_a_finding_ends_once_the_worker_is_as_fast_as_its_peers_again() -> None:
    job = Job(stages=2, replicas=4)
    job.factors[5:15, 1, 2] *= 1.5
    started, ended = job.run()
    assert started.until_step is None
    assert (ended.worker, ended.step) == (6, 7)
    assert ended.until_step in range(16, 23)
    assert job.detector.findings == []


def test_one_fast_step_does_not_end_a_finding() -> None:
    job = Job(stages=2, replicas=4)
    job.factors[:, 1, 2] *= 1.5
    job.factors[12, 1, 2] = 1.0
    assert len(job.run()) == 1


def test_a_worker_with_many_peers_missing_is_not_judged_by_the_rest() -> None:
    job = Job(stages=1, replicas=4)
    job.factors[:, 0, 0] *= 2.0
    job.factors[:, 0, 2:] = np.nan
    assert job.run() == []


def test_missing_steps_neither_prove_nor_clear() -> None:
    job = Job(stages=2, replicas=4)
    job.factors[3:, 0, 0] *= 1.5
    job.factors[4:7, 0, 0] = np.nan
    (finding,) = job.run()
    assert (finding.since_step, finding.step) == (3, 8)


def test_with_one_peer_a_worker_is_compared_with_its_own_past() -> None:
    job = Job(stages=4, replicas=2)
    job.factors[10:, 2, 1] *= 1.2
    (finding,) = job.run()
    assert (finding.worker, finding.basis, finding.step) == (5, Basis.OWN_PAST, 12)
    assert job.detector.findings[0].ratio == pytest.approx(1.2, rel=0.02)


def test_slow_workers_in_every_stage_are_all_named() -> None:
    job = Job(stages=3, replicas=4, steps=40)
    job.factors[5:, :, 2] *= 1.3
    found = job.run()
    assert sorted(finding.worker for finding in found) == [2, 6, 10]
    assert all(finding.step == 7 for finding in found)


def test_with_one_peer_a_worker_of_one_of_four_stages_that_was_always_slow_is_not_named() -> None:
    job = Job(stages=4, replicas=2)
    job.factors[:, 0, 0] *= 2.4
    assert job.run() == []


def test_with_one_peer_a_worker_that_was_always_slow_is_not_named() -> None:
    job = Job(stages=2, replicas=2)
    job.factors[:, 1, 1] *= 1.5
    assert job.run() == []


def test_with_few_peers_more_work_for_all_or_for_one_stage_names_no_worker() -> None:
    job = Job(stages=3, replicas=2)
    job.factors[10:] *= 1.5
    job.factors[20:, 1] *= 1.3
    assert job.run() == []


def test_a_single_worker_is_not_judged() -> None:
    job = Job(stages=1, replicas=1)
    job.factors[10:] *= 2.0
    assert job.run() == []


def test_gpus_of_one_model_are_compared_without_stages_and_units() -> None:
    detector = PeerDetector(PeerGroups.of(np.array([7, 9, 7, 7, 9, 7])))
    rng = np.random.default_rng(1)
    found = []
    for step in range(100, 110):
        seconds = np.array([1.0, 2.0, 1.3, 1.0, 2.0, 1.0]) * rng.normal(1, 0.003, 6)
        found += detector.observe(PeerStep(step, seconds[:, np.newaxis]))
    assert [(finding.worker, finding.step) for finding in found] == [(2, 102)]


def _without_stages(seconds: np.ndarray, seed: int = 1) -> list[tuple[int, int]]:
    """Workers that are named and the step of it; `seconds` has the shape (steps, workers)."""
    detector = PeerDetector(PeerGroups.of(np.zeros(seconds.shape[1], np.int64)))
    noisy = seconds * np.random.default_rng(seed).normal(1, 0.005, seconds.shape)
    changes = [detector.observe(PeerStep(step, each[:, np.newaxis])) for step, each in enumerate(noisy)]
    return [(one.worker, one.step) for found in changes for one in found if one.until_step is None]


@pytest.mark.slow
@pytest.mark.parametrize("heavier", [1.05, 1.3, 2.0])
@pytest.mark.parametrize("members", [2, 3, 4, 6])
def test_workers_that_share_more_work_from_their_first_step_on_are_a_stage(heavier: float, members: int) -> None:
    seconds = np.ones((40, 8))
    seconds[:, :members] *= heavier
    assert _without_stages(seconds) == []
    seconds[20:, 0] *= 1.2
    assert _without_stages(seconds) == [(0, 22)]
    seconds[30:, 7] *= 1.2
    assert _without_stages(seconds) == [(0, 22), (7, 32)]


def test_a_stage_of_which_one_worker_reports_first_is_no_straggler() -> None:
    seconds = np.ones((40, 8))
    seconds[:, :2] *= 1.3
    seconds[:1, 1] = np.nan
    assert _without_stages(seconds) == []


def test_more_work_for_a_stage_that_was_heavier_names_none_of_its_workers() -> None:
    seconds = np.ones((40, 8))
    seconds[:, :3] *= 1.3
    seconds[20:, :3] *= 1.2
    assert _without_stages(seconds) == []


def test_workers_that_become_slow_together_are_named_without_stages() -> None:
    seconds = np.ones((40, 8))
    seconds[10:, 2:4] *= 1.3
    assert _without_stages(seconds) == [(2, 12), (3, 12)]


def test_slow_workers_of_different_speed_are_named_from_the_first_step_on_without_stages() -> None:
    seconds = np.ones((40, 12))
    seconds[:, 2] *= 1.2
    seconds[:, 5] *= 1.5
    assert _without_stages(seconds) == [(2, 2), (5, 2)]


def test_a_worker_of_a_heavier_stage_that_is_relieved_and_then_slow_is_named() -> None:
    seconds = np.ones((80, 8))
    seconds[:20, :2] *= 1.3
    seconds[60:, 1] *= 1.3
    assert _without_stages(seconds) == [(1, 62)]
