"""Proposed values of tunables, and the reasons for withholding a proposal."""

import pytest
from tests.support.predictor.tunables import BUSY, NOW_NS, SECOND_NS, tunable

from kernelcast.predictor.settings import HintSettings
from kernelcast.predictor.tuning.hints import HintBook, Withheld
from kernelcast.predictor.tuning.rules import block_size_not_warp_multiple, block_size_small
from kernelcast.predictor.tuning.tunables import TunableReports
from kernelcast.wire.events import Outcome, OutcomeState


def outcome(hint_id: str, state: OutcomeState) -> Outcome:
    return Outcome(hint_id=hint_id, program="train", tunable="block", state=state)


@pytest.mark.parametrize(
    ("value", "proposed", "ratio"),
    [
        ("33", "128", 1 - 0.5 * (31 / 32)),
        ("48", "128", 0.75),
        ("250", "256", 1 - (1 / 8) * (1 - 26 / 32)),
        ("1", "128", 1 / 32),
    ],
)
def test_a_block_that_is_no_multiple_of_a_warp_gets_the_nearest_good_one(
    value: str, proposed: str, ratio: float
) -> None:
    proposal = block_size_not_warp_multiple(tunable(value))
    assert proposal is not None
    assert proposal.value == proposed
    assert proposal.expected_ratio == pytest.approx(ratio)
    assert all(one.source for one in proposal.evidence)


def test_a_single_warp_gets_a_larger_block_without_a_promise() -> None:
    proposal = block_size_small(tunable("32"))
    assert proposal is not None
    assert (proposal.value, proposal.expected_ratio) == ("128", None)


@pytest.mark.parametrize("value", ["128", "192", "64", "1024"])
def test_good_blocks_are_left_alone(value: str) -> None:
    assert block_size_not_warp_multiple(tunable(value)) is None
    assert block_size_small(tunable(value)) is None


def test_only_allowed_values_of_block_sizes_are_proposed() -> None:
    assert block_size_not_warp_multiple(tunable("33", allowed=("33", "47"))) is None
    assert block_size_not_warp_multiple(tunable("33", kind="batch_size")) is None
    assert block_size_not_warp_multiple(tunable("many")) is None
    only_small = block_size_not_warp_multiple(tunable("33", allowed=("33", "64", "96")))
    assert only_small is not None
    assert only_small.value == "64"


def book(*, min_share_ratio: float = 0.02) -> HintBook:
    return HintBook(HintSettings(cooldown_seconds=3600.0, expires_seconds=60.0, min_share_ratio=min_share_ratio))


def test_one_hint_is_open_at_a_time_and_a_new_one_follows_when_it_has_expired() -> None:
    hints = book()
    first = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)
    assert [(one.hint.value, one.hint.requires) for one in first] == [("128", "33")]
    assert first[0].hint.expires_at_ns == NOW_NS + 60 * SECOND_NS
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 30 * SECOND_NS)
    assert hints.withheld[Withheld.OPEN] == 1
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 61 * SECOND_NS)


@pytest.mark.parametrize("state", [OutcomeState.REJECTED, OutcomeState.ROLLED_BACK, OutcomeState.KEPT])
def test_an_answered_hint_is_not_repeated_until_it_has_cooled_down(state: OutcomeState) -> None:
    hints = book()
    first = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0]
    hints.learn_outcome(outcome(first.hint.hint_id, state), time_ns=NOW_NS)
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 1000 * SECOND_NS)
    assert hints.withheld[Withheld.COOLING_DOWN] == 1
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 3601 * SECOND_NS)


def test_a_restarted_predictor_learns_from_kafka_in_whatever_order() -> None:
    issued = book().propose([tunable("33")], BUSY, now_ns=NOW_NS)[0].hint
    hints = book()
    hints.learn_outcome(outcome(issued.hint_id, OutcomeState.ROLLED_BACK), time_ns=NOW_NS)
    hints.learn_hint(issued)
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 70 * SECOND_NS)


def test_kernels_unseen_or_with_a_small_share_of_gpu_time_get_no_hint() -> None:
    hints = book(min_share_ratio=0.2)
    assert not hints.propose([tunable("33", kernel="unknown"), tunable("33", kernel="gemm")], BUSY, now_ns=NOW_NS)
    assert hints.withheld == {Withheld.KERNEL_UNSEEN: 1, Withheld.SHARE_TOO_SMALL: 1}


@pytest.mark.parametrize("named", ["saxpy", "saxpy#0123abcd", "other;saxpy"])
def test_a_tunable_may_name_its_kernel_by_label_or_by_name(named: str) -> None:
    assert BUSY.share("train", named) == pytest.approx(0.9)


def test_hints_can_be_switched_off() -> None:
    hints = HintBook(HintSettings(enabled=False))
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)


def test_the_last_report_of_a_tunable_counts_and_a_new_code_version_is_noticed() -> None:
    tunables = TunableReports()
    for moment, value, version in ((1, "33", "v1"), (3, "128", "v2"), (2, "33", "v1")):
        words = {"program": "train", "tunable": "block", "value": value, "code_version": version, "allowed": "33,128"}
        tunables.observe(tuple(sorted(words.items())), time_ns=moment, owner=0, now_ns=moment)
    assert [one.value for one in tunables.current()] == ["128"]
    assert tunables.take_redeployed() == {"train"}
    assert not tunables.take_redeployed()
    tunables.drop_silent(silent_ns=10, now_ns=20)
    assert not tunables.current()


def observe(tunables: TunableReports, version: str, *, minute: float) -> None:
    words = {"program": "train", "tunable": "block", "value": "33", "code_version": version, "allowed": "33,128"}
    now_ns = NOW_NS + round(minute * 60 * SECOND_NS)
    tunables.observe(tuple(sorted(words.items())), time_ns=now_ns, owner=0, now_ns=now_ns)


def test_a_rollout_with_two_versions_side_by_side_is_one_deploy() -> None:
    tunables = TunableReports()
    seen = []
    for minute, version in enumerate(("v1", "v2", "v1", "v2", "v1", "v2", "v2")):
        observe(tunables, version, minute=minute)
        seen.append(tunables.take_redeployed())
    assert seen == [set(), {"train"}, set(), set(), set(), set(), set()]


def test_going_back_to_an_older_version_is_a_deploy_too() -> None:
    tunables = TunableReports()
    for minute, version in ((0, "v1"), (5, "v2"), (10, "v2"), (15, "v1")):
        observe(tunables, version, minute=minute)
        redeployed = tunables.take_redeployed()
    assert redeployed == {"train"}


def test_a_program_that_paused_and_goes_on_is_no_deploy() -> None:
    tunables = TunableReports()
    observe(tunables, "v1", minute=0)
    observe(tunables, "v1", minute=30)
    assert not tunables.take_redeployed()


def test_a_hint_that_comes_back_from_kafka_after_its_outcome_is_not_open_again() -> None:
    hints = book()
    issued = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0].hint
    hints.learn_outcome(outcome(issued.hint_id, OutcomeState.EXPIRED), time_ns=NOW_NS)
    hints.learn_hint(issued)
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + SECOND_NS)
