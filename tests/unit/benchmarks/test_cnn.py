"""The statistics of the CNN's benchmark, and its reading of the program's output and of outcomes."""

import json
from dataclasses import asdict
from random import Random

import pytest
from benchmarks.cnn.campaign import CampaignResult, Claim, claims, result_of
from benchmarks.cnn.program import Epoch, Settings, epochs_of, seconds_per_sample
from benchmarks.cnn.statistics import Ratio, difference, paired

from kernelcast.wire.events import Outcome, OutcomeState


def test_the_interval_of_paired_runs_covers_the_true_ratio() -> None:
    covered = 0
    for seed in range(400):
        random = Random(seed)
        pairs = [(0.8 * random.lognormvariate(0, 0.1), random.lognormvariate(0, 0.1)) for _ in range(10)]
        found = paired(pairs)
        covered += found.low <= 0.8 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_a_claim_that_is_too_good_has_a_negative_difference() -> None:
    apart, joint = difference(Ratio(0.5, 0.4, 0.625), Ratio(0.8, 0.64, 1.0))
    assert apart == pytest.approx(-0.47, abs=0.001)
    assert joint == pytest.approx(0.223 * 2**0.5, abs=0.001)


def test_the_lines_of_the_program_are_read() -> None:
    text = "".join(
        f"epoch {number}: {rate} samples/s, loss 0.5, 2 loader workers, 1 threads, buckets of 0.1 MB\n"
        for number, rate in enumerate((1.0, 1.0, 50.0, 100.0, 200.0))
    )
    epochs = epochs_of(f"kernelcast probe found no exporter\n{text}")
    assert len(epochs) == 5
    assert (epochs[0].workers, epochs[0].threads, epochs[0].bucket_mb) == (2, 1, 0.1)
    assert seconds_per_sample(epochs) == 0.01


def test_a_kept_outcome_is_measured_beside_the_values_of_its_time() -> None:
    def outcome(hint_id: str, tunable: str, state: OutcomeState, value: str) -> Outcome:
        return Outcome(hint_id, "cnn", tunable, state, value=value)

    outcomes = [
        outcome("a", "threads", OutcomeState.KEPT, "1"),
        outcome("b", "threads", OutcomeState.ROLLED_BACK, "1"),
        outcome("c", "loader_workers", OutcomeState.KEPT, "2"),
    ]
    first, second = claims(Settings(), outcomes, {"a", "b"})
    assert (first.settings, first.changed) == (Settings(), Settings(threads=1))
    assert (second.settings, second.changed) == (Settings(threads=1), Settings(threads=1, loader_workers=2))
    assert (first.from_diagnosis, second.from_diagnosis) == (False, True)


def test_a_run_goes_on_from_the_campaigns_in_its_file() -> None:
    kept = Outcome(
        "a", "cnn", "threads", OutcomeState.KEPT, value="1", measured_ratio=0.9, measured_interval=(0.8, 1.0)
    )
    ended = CampaignResult([Claim(Settings(), kept, True)], [kept], 12.5, 60.0, 70.0, Epoch(50.0, 0.5, 0, 1, 0.1), 2.5)
    for written in (ended, CampaignResult()):
        assert result_of(json.loads(json.dumps(asdict(written), default=str))) == written
