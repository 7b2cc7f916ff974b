"""Findings of searches reach other nodes: failures at once, a kept configuration after a second node has proved it."""

from typing import Any, Final

import pytest

from kernelcast.predictor.settings import HintSettings
from kernelcast.predictor.tuning.experiences import MAX_SPACES, Experiences
from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.tuning.experience import (
    MAX_FAILED,
    Experience,
    KeptElsewhere,
    experience_event,
    experience_from,
)

ABOUT = ("hpc", "conv.run", "A100", "v1")


def outcome(node: str, state: OutcomeState, decision: str = "", candidate: str = "", **facts: Any) -> Outcome:
    about = {"program": "hpc", "tunable": "conv.run", "device_model": "A100", "code_version": "v1", **facts}
    return Outcome("search-1", state=state, decision=decision, candidate=candidate, hostname=node, **about)


def begun(node: str) -> Outcome:
    return outcome(node, OutcomeState.APPLIED)


def kept(node: str, candidate: str) -> Outcome:
    return outcome(node, OutcomeState.KEPT, "kept", candidate)


def found(*outcomes: Outcome) -> list[Experience]:
    experiences = Experiences()
    for one in outcomes:
        experiences.learn(one)
    return experiences.take_changed()


def test_a_failed_configuration_is_known_to_all_nodes_of_the_model_and_code() -> None:
    failed = outcome("n1", OutcomeState.ROLLED_BACK, "failed", "[1024]")
    assert found(begun("n1"), failed) == [Experience(*ABOUT, failed=("[1024]",))]
    other = outcome("n1", OutcomeState.ROLLED_BACK, "failed", "[1024]", device_model="H100")
    assert {one.device_model for one in found(failed, other)} == {"A100", "H100"}


def test_a_kept_configuration_is_offered_to_one_other_node_and_spreads_after_its_proof() -> None:
    (first,) = found(begun("n1"), begun("n3"), begun("n2"), kept("n1", "[128]"))
    assert first.kept == (KeptElsewhere("[128]", 1, "n2"),)
    assert [first.kept[0].is_for(node) for node in ("n1", "n2", "n3")] == [False, True, False]
    (second,) = found(begun("n1"), begun("n3"), begun("n2"), kept("n1", "[128]"), kept("n2", "[128]"))
    assert second.kept == (KeptElsewhere("[128]", 2),)
    assert second.kept[0].is_for("n3")


def test_what_was_taken_back_or_failed_elsewhere_is_not_offered() -> None:
    taken_back = outcome("n1", OutcomeState.ROLLED_BACK, "rolled_back", "[128]")
    assert found(kept("n1", "[128]"), begun("n2"), taken_back) == [Experience(*ABOUT)]
    failed = outcome("n2", OutcomeState.ROLLED_BACK, "failed", "[128]")
    assert found(kept("n1", "[128]"), failed) == [Experience(*ABOUT, failed=("[128]",))]


def test_a_kept_configuration_that_was_taken_back_is_withdrawn_from_the_other_nodes() -> None:
    taken_back = outcome("n1", OutcomeState.ROLLED_BACK, "rolled_back", "[128]")
    experiences = Experiences()
    experiences.learn(begun("n1"))
    assert experiences.take_changed() == []
    experiences.learn(kept("n1", "[128]"))
    assert [one.kept for one in experiences.take_changed()] == [(KeptElsewhere("[128]", 1),)]
    experiences.learn(taken_back)
    assert [one.kept for one in experiences.take_changed()] == [()]
    assert experiences.take_changed() == []


def test_only_changes_are_written_and_memory_is_bounded() -> None:
    experiences = Experiences()
    for number in range(MAX_FAILED + 5):
        experiences.learn(outcome("n1", OutcomeState.ROLLED_BACK, "failed", f"[{number}]"))
    (written,) = experiences.take_changed()
    assert len(written.failed) == MAX_FAILED
    assert experiences.take_changed() == []
    for number in range(MAX_SPACES + 5):
        experiences.learn(outcome("n1", OutcomeState.ROLLED_BACK, "failed", "[1]", tunable=f"s{number}"))
    assert len(experiences.take_changed()) == MAX_SPACES


def test_the_hint_book_passes_searches_on() -> None:
    book = HintBook(HintSettings())
    book.learn_outcome(kept("n1", "[128]"), time_ns=1)
    assert [one.space for one in book.experiences.take_changed()] == ["conv.run"]


ENDLESS: Final = {"kept": [{"value": "[1]", "nodes": float("inf")}]}


def test_findings_travel_and_garbage_is_refused() -> None:
    one = Experience(*ABOUT, ("[1024]",), (KeptElsewhere("[128]", 1, "n2"),))
    event = experience_event(one, source="/test", time_ns=1)
    assert experience_from(event) == one
    assert one.key == "experience|hpc|conv.run|A100|v1"
    for data in ({"program": 5}, {"failed": [5]}, {"kept": [{"value": "[1]"}]}, {"failed": 7}, ENDLESS):
        with pytest.raises(EventError, match="unusable data"):
            experience_from({**event, "data": {**event["data"], **data}})
    with pytest.raises(EventError, match="expected"):
        experience_from({**event, "type": "another"})


def test_the_findings_of_a_space_with_long_values_fit_into_an_event_without_the_oldest_failures() -> None:
    flags = [f'["{number} {"-O3 " * 60}"]' for number in range(MAX_FAILED)]
    failed = (outcome("n1", OutcomeState.ROLLED_BACK, "failed", one) for one in flags)
    (findings,) = found(kept("n1", "[128]"), *failed)
    encode_event(experience_event(findings, source="/test", time_ns=1))
    assert findings.kept[0].value == "[128]"
    assert set(findings.failed) == set(flags[-len(findings.failed) :])
    assert len(findings.failed) > MAX_FAILED // 4
