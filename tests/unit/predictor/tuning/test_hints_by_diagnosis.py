"""Hints that carry out the advice of a rule which holds for a program."""

import pytest
from tests.support.predictor.tunables import BUSY, NOW_NS

from kernelcast.predictor.settings import HintSettings
from kernelcast.predictor.tuning.diagnosis import Diagnosis, ProgramOnDevice
from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.predictor.tuning.rules import RULE_NAMES, by_diagnosis
from kernelcast.predictor.tuning.tunables import ReportedTunable
from kernelcast.wire.catalogue.diagnosis.rules import RULES
from kernelcast.wire.events import HintMode
from kernelcast.wire.tuning.approvals import REQUIRED


def tunable(value: str, kind: str, *allowed: str, scope: str = "local", granularity: str = "step") -> ReportedTunable:
    return ReportedTunable("train", "knob", value, allowed, kind, scope=scope, granularity=granularity)


def diagnosis(name: str, program: str = "train") -> Diagnosis:
    rule = next(rule for rule in RULES if rule.name == name)
    return Diagnosis(ProgramOnDevice(program, ("n1", "GPU-0", "")), rule, 0.25)


def proposed(one: ReportedTunable, *names: str, program: str = "train") -> str | None:
    found = by_diagnosis(one, [diagnosis(name, program) for name in names])
    return found.value if found else None


@pytest.mark.parametrize(
    ("value", "kind", "allowed", "rule", "expected"),
    [
        ("0", "loader_workers", ("0", "1", "2", "4"), "input_bound", "1"),
        ("2", "loader_workers", ("4", "0", "1", "2"), "input_bound", "4"),
        ("4", "loader_workers", ("0", "1", "2", "4"), "input_bound", None),
        ("1", "bucket_size", ("1", "25"), "communication_bound", "25"),
        ("off", "pinned_memory", ("off", "on"), "pageable_copies", "on"),
        ("True", "pinned_memory", ("True", "False"), "pageable_copies", None),
        ("False", "cuda_graph", ("True", "False"), "launch_bound", "True"),
        ("few", "loader_workers", ("few", "many"), "input_bound", None),
        ("0", "loader_workers", ("0", "nan", "inf"), "input_bound", None),
    ],
)
def test_the_next_value_in_the_direction_of_the_advice_is_proposed(
    value: str, kind: str, allowed: tuple[str, ...], rule: str, expected: str | None
) -> None:
    assert proposed(tunable(value, kind, *allowed), rule) == expected


def test_a_tunable_of_another_kind_or_program_is_left_alone() -> None:
    assert proposed(tunable("0", "bucket_size", "0", "1"), "input_bound") is None
    assert proposed(tunable("0", "loader_workers", "0", "1"), "input_bound", program="other") is None


def test_a_tunable_that_all_ranks_share_is_proposed_too() -> None:
    assert proposed(tunable("0", "loader_workers", "0", "1", scope="collective"), "input_bound") == "1"


def test_a_tunable_that_needs_a_restart_waits_for_a_person() -> None:
    workers = tunable("0", "loader_workers", "0", "1", granularity="restart")
    (issued,) = HintBook(HintSettings()).propose([workers], BUSY, now_ns=NOW_NS, diagnoses=[diagnosis("input_bound")])
    hint = issued.hint
    assert (hint.value, hint.approval, hint.mode, hint.granularity) == ("1", REQUIRED, HintMode.DRY_RUN, "restart")


def test_the_hint_names_the_rule_its_figure_and_its_source_and_claims_no_gain() -> None:
    book = HintBook(HintSettings())
    (issued,) = book.propose(
        [tunable("0", "loader_workers", "0", "1")], BUSY, now_ns=NOW_NS, diagnoses=[diagnosis("input_bound")]
    )
    assert issued.rule == "input_bound"
    assert issued.rule in RULE_NAMES
    assert (issued.hint.value, issued.hint.requires, issued.hint.expected_ratio) == ("1", "0", None)
    (evidence,) = issued.hint.evidence
    assert (evidence.rule, evidence.field, evidence.value) == ("input_bound", "data_wait_share", "0.25")
    assert "PyTorch Profiler" in evidence.source
