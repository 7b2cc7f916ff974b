"""Unequal division of work and slow links blame no worker."""

import numpy as np
import pytest
from tests.unit.predictor.peers.conftest import Job

from kernelcast.predictor.peers import Division


def test_a_heavier_last_stage_is_named_as_the_stages_division() -> None:
    job = Job(stages=4, replicas=4, units=4, stage_seconds=(1.0, 1.0, 1.0, 1.62))
    assert job.run() == []
    assert job.detector.division() is Division.STAGE
    # A pipeline of four stages and four microbatches: 4.62 + 3 * 1.62 against 7 * 1.155.
    assert job.detector.shares().stage == pytest.approx(0.17, abs=0.01)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_long_sequences_in_turn_are_named_as_such(stages: int) -> None:
    job = Job(stages=stages, replicas=4, steps=40)
    for step in range(job.steps):
        job.factors[step, :, step % 4] *= 1.5
    assert job.run() == []
    assert job.detector.division() is Division.SEQUENCE


@pytest.mark.parametrize("stages", [1, 4])
def test_a_replica_with_a_long_sequence_at_every_other_step_is_not_blamed(stages: int) -> None:
    job = Job(stages=stages, replicas=4, steps=40)
    job.factors[::2, :, 2] *= 1.5
    assert job.run() == []
    assert job.detector.division() is Division.SEQUENCE


def test_microbatches_of_random_length_are_sequences() -> None:
    job = Job(stages=3, replicas=4, steps=40, units=8)
    job.factors *= np.exp(np.random.default_rng(5).normal(0, 0.4, (40, 1, 4, 8)))
    assert job.run() == []
    assert job.detector.division() is Division.SEQUENCE


def test_a_slow_worker_is_found_under_long_sequences() -> None:
    job = Job(stages=4, replicas=4, steps=40, units=8)
    job.factors *= np.exp(np.random.default_rng(5).normal(0, 0.4, (40, 1, 4, 8)))
    job.factors[10:, 1, 2] *= 1.5
    (finding,) = job.run()
    assert (finding.worker, finding.step) == (6, 12)


def test_a_slow_worker_is_no_uneven_division() -> None:
    job = Job(stages=2, replicas=4)
    job.factors[10:, 1, 2] *= 2.4
    job.run()
    assert job.detector.division() is Division.NONE
    assert max(job.detector.shares().stage, job.detector.shares().sequence) < 0.02


def transfers(job: Job) -> np.ndarray:
    """Transfer times of 10 ms with 2 % noise, shape (steps, links)."""
    noise = np.random.default_rng(3).normal(1, 0.02, (job.steps, len(job.links.source)))
    return np.asarray(0.01 * noise)


def test_a_slow_link_is_named_and_no_worker() -> None:
    job = Job(stages=3, replicas=4)
    job.transfer_seconds = transfers(job)
    job.transfer_seconds[10:, 5] *= 4.0
    assert job.run() == []
    (found,) = job.detector.slow_links
    assert (found.link, found.step) == (5, 12)
    assert found.ratio == pytest.approx(4.0, rel=0.1)
    assert job.detector.division() is Division.LINK


def test_slow_transfers_of_a_slow_worker_are_no_slow_link() -> None:
    job = Job(stages=3, replicas=4)
    job.factors[:, 1, 1] *= 2.0
    job.transfer_seconds = transfers(job)
    touched = (job.links.source == 5) | (job.links.target == 5)
    job.transfer_seconds[:, touched] *= 4.0
    assert [finding.worker for finding in job.run()] == [5]
    assert job.detector.slow_links == []
    assert job.detector.division() is Division.NONE


def test_a_path_between_two_stages_that_takes_twice_as_long_is_no_slow_link() -> None:
    job = Job(stages=3, replicas=2)
    job.transfer_seconds = transfers(job)
    job.transfer_seconds[:, 2:] *= 2.0
    job.run()
    assert job.detector.slow_links == []
