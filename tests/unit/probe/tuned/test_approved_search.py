"""A search of a space that changes results: nothing is in force that a person's approval does not cover."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.unit.probe.tuned.test_step_spaces import Training

from kernelcast.probe.tuned.space import ProgramSpace, SpaceTerms
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import OutcomeState
from kernelcast.wire.tuning.approvals import Approval, ApprovalState, approval_event, search_id

SIZES = {"size": [32, 64, 96, 128, 160, 192, 256]}
LATER_NS = 4_000_000_000 * NANOSECONDS


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    made = Training(tmp_path, monkeypatch)
    yield made
    made.probe.abandon()


def approval(**changes: Any) -> Approval:
    made = Approval(
        search_id("train", "batch"), "train", "batch", "", expires_at_ns=LATER_NS, by="ana", time_ns=1, most=6
    )
    return replace(made, **changes)


def hear(training: Training, answer: Approval) -> None:
    training.probe._receiver.receive(approval_event(answer, source="/test"))


def batch_of(training: Training, **changes: Any) -> ProgramSpace:
    terms = replace(SpaceTerms(per="step", changes_results=True), **changes)
    return training.probe.space("batch", SIZES, start={"size": 64}, terms=terms, share=1.0)


def train(training: Training, batch: ProgramSpace, steps: int) -> list[int]:
    """Steps whose time per sample is shorter for larger batches; returns the sizes in force."""
    sizes = []
    for _ in range(steps):
        sizes.append(batch.size)
        training.step(0.05 + 0.001 * batch.size, items=batch.size)
    return sizes


def test_one_approval_covers_a_search_and_its_result_is_kept(training: Training) -> None:
    batch = batch_of(training)
    assert set(train(training, batch, 100)) == {64}
    hear(training, approval())
    assert len(set(train(training, batch, 1_500))) > 3
    assert batch.size == 256
    first, *_, last = training.probe.outcomes
    assert first.state is OutcomeState.APPLIED
    assert first.reason.startswith("searched, as ana has approved: at most 6 candidates")
    assert (last.state, last.value) == (OutcomeState.KEPT, "size=256")
    tunable = training.probe._tunables.get("batch")
    assert tunable is not None
    assert tunable.kept == "size=256"
    assert set(train(training, batch, 300)) == {256}


def test_what_a_search_has_kept_is_in_force_at_the_next_start_though_the_approval_is_not(
    training: Training, tmp_path: Path
) -> None:
    batch = batch_of(training)
    hear(training, approval())
    train(training, batch, 1_500)
    training.probe.abandon()
    training.probe = training.begun(tmp_path)
    assert batch_of(training).size == 256


OTHERS: Final[tuple[dict[str, Any], ...]] = (
    {"program": "other"},
    {"program": "other", "hint_id": search_id("other", "batch")},
    {"tunable": "precision", "hint_id": search_id("train", "precision")},
    {"hint_id": "a-hint"},
    {"device_model": "H100"},
    {"code_version": "v2"},
    {"expires_at_ns": 1},
    {"state": ApprovalState.WITHDRAWN},
)
"""Answers that do not approve a search of this space."""


@pytest.mark.slow
def test_an_unapproved_configuration_is_never_in_force_in_100_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers about this and other searches in any order; the bound of an approval is never passed."""
    steps_on_candidates = 0
    for seed in range(100):
        chance, training = Random(seed), Training(tmp_path / str(seed), monkeypatch)
        batch = batch_of(training)
        tunable = training.probe._tunables.get("batch")
        assert tunable is not None
        in_force: Approval | None = None
        for number in range(1, 12):
            answer = approval(time_ns=number, most=chance.randrange(1, 5))
            other = chance.choice([{}] * len(OTHERS) + list(OTHERS))
            hear(training, replace(answer, **other))
            if other.get("tunable") != "precision":  # it says nothing about this space
                in_force = None if other else answer
            kept, tried = tunable.kept, set()
            for _ in range(chance.randrange(60)):
                train(training, batch, 1)
                if batch.size != int(kept.removeprefix("size=")):
                    assert in_force is not None, (seed, number)
                    tried.add(batch.size)
                    steps_on_candidates += 1
            assert in_force is None or len(tried) <= in_force.most, (seed, number)
        training.probe.abandon()
    assert steps_on_candidates > 1000


def test_a_withdrawal_ends_the_search_with_the_kept_configuration_at_the_next_step(training: Training) -> None:
    batch = batch_of(training)
    hear(training, approval())
    while batch.size == 64:
        train(training, batch, 1)
    hear(training, approval(state=ApprovalState.WITHDRAWN, time_ns=2))
    train(training, batch, 1)
    assert set(train(training, batch, 300)) == {64}
    assert "approval of its search has ended" in training.probe.outcomes[-1].reason


def test_the_bound_counts_over_a_restart_of_the_program(training: Training, tmp_path: Path) -> None:
    batch = batch_of(training)
    hear(training, approval(most=2))
    seen = set(train(training, batch, 300))
    training.probe.abandon()
    training.probe = training.begun(tmp_path)
    again = batch_of(training)
    kept = again.size
    hear(training, approval(most=2))
    seen |= set(train(training, again, 300))
    assert len(seen - {64}) <= 2
    assert again.size == kept


def test_a_hint_that_waits_ends_a_candidate_and_the_search_goes_on_from_the_kept_value(training: Training) -> None:
    batch = batch_of(training)
    hear(training, approval())
    while batch.size == 64:
        train(training, batch, 1)
    training.hear("batch", "size=96", approved_by="bo")
    assert set(train(training, batch, 3)[1:]) <= {64, 96}
    train(training, batch, 2_500)
    states = [(one.hint_id, one.state) for one in training.probe.outcomes]
    assert ("batch size=96", OutcomeState.KEPT) in states
    assert batch.size == 256


def test_a_space_that_changes_with_calls_is_not_covered(training: Training) -> None:
    batch = batch_of(training, per="call")
    hear(training, approval())
    assert set(train(training, batch, 100)) == {64}


class Alone:
    def all_gather(self, text: str) -> list[str]:
        return [text]


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "call": ({"per": "call"}, "no approval covers its search, because it changes with each call"),
    "collective": ({"scope": "collective"}, "no approval covers its search, because it is collective"),
}


@pytest.mark.parametrize("known_before", [False, True])
@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_approval_that_covers_nothing_is_answered_with_the_reason(
    training: Training, changes: dict[str, Any], reason: str, *, known_before: bool
) -> None:
    """A person who approves such a search would otherwise wait for nothing; the outcome is in `hints list`."""
    if known_before:
        hear(training, approval())
    changes = {**changes, "group": Alone()} if "scope" in changes else changes
    batch = batch_of(training, **changes)
    hear(training, approval())
    hear(training, approval())  # repeated after a reconnect
    assert set(train(training, batch, 50)) == {64}
    (outcome,) = training.probe.outcomes
    assert (outcome.tunable, outcome.state) == ("batch", OutcomeState.REJECTED)
    assert outcome.hint_id.startswith("search-")
    assert outcome.reason.startswith(reason)
    hear(training, approval(time_ns=2, state=ApprovalState.WITHDRAWN))
    hear(training, approval(time_ns=3, by="bo"))
    assert len(training.probe.outcomes) == 2


def test_a_space_whose_search_can_be_approved_refuses_no_approval(training: Training) -> None:
    batch_of(training)
    hear(training, approval())
    assert not [one for one in training.probe.outcomes if one.state is OutcomeState.REJECTED]
