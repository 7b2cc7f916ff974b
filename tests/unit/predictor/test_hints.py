"""Proposed values of tunables, and the reasons for withholding a proposal."""

from dataclasses import replace

import pytest
from tests.support.predictor.tunables import BUSY, NOW_NS, SECOND_NS, tunable

from kernelcast.predictor.hint_samples import open_hints
from kernelcast.predictor.settings import HintSettings
from kernelcast.predictor.tuning import runs as runs_module
from kernelcast.predictor.tuning import tunables as tunables_module
from kernelcast.predictor.tuning.hints import HintBook, HintState, Withheld
from kernelcast.predictor.tuning.rules import block_size_not_warp_multiple, block_size_small
from kernelcast.predictor.tuning.runs import RunKey, changes
from kernelcast.predictor.tuning.tunables import TunableReports
from kernelcast.wire.catalogue.forecast import HINT_OPEN
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.identity import Versions
from kernelcast.wire.tuning.orders import LIFTED_BY


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


def test_an_open_hint_is_published_with_its_value_its_promise_and_its_state_until_it_is_answered() -> None:
    hints, later_ns = book(), NOW_NS + 30 * SECOND_NS
    hint = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0].hint
    (shown,) = hints.open_hints([tunable("33"), tunable("33")], now_ns=later_ns)
    first, *promised = open_hints([shown], time_ns=later_ns)[b"train"]
    assert (first.metric, first.value) == (HINT_OPEN, NOW_NS / SECOND_NS)
    labels = dict(first.attributes)
    assert (labels["value"], labels["previous"], labels["state"]) == ("128", "33", "issued")
    assert labels["rule"] == "block_size_not_warp_multiple"
    bounds = {dict(one.attributes)["bound"]: one.value for one in promised}
    assert (bounds["mean"], len(bounds)) == (hint.expected_ratio, 3 if hint.expected_interval else 1)
    hints.learn_outcome(outcome(hint.hint_id, OutcomeState.APPLIED), time_ns=later_ns)
    assert [one.state for one in hints.open_hints([tunable("33")], now_ns=later_ns)] == [HintState.TRIAL]
    hints.learn_outcome(outcome(hint.hint_id, OutcomeState.KEPT), time_ns=later_ns)
    assert not hints.open_hints([tunable("33")], now_ns=later_ns)


def test_a_hint_without_a_promise_has_no_expected_ratio() -> None:
    hints = book()
    hints.propose([tunable("32")], BUSY, now_ns=NOW_NS)
    found = open_hints(hints.open_hints([tunable("32")], now_ns=NOW_NS), time_ns=NOW_NS)[b"train"]
    assert [one.metric for one in found] == [HINT_OPEN]


def test_a_hint_that_is_being_tried_stays_open_after_its_expiry_for_an_hour() -> None:
    hints = book()
    first = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0]
    hints.learn_outcome(outcome(first.hint.hint_id, OutcomeState.APPLIED), time_ns=NOW_NS + 30 * SECOND_NS)
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 1800 * SECOND_NS)
    assert hints.withheld[Withheld.OPEN] == 1
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 3631 * SECOND_NS)


@pytest.mark.parametrize("state", [OutcomeState.REJECTED, OutcomeState.ROLLED_BACK, OutcomeState.KEPT])
def test_an_answered_hint_is_not_repeated_until_it_has_cooled_down(state: OutcomeState) -> None:
    hints = book()
    first = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0]
    hints.learn_outcome(outcome(first.hint.hint_id, state), time_ns=NOW_NS)
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 1000 * SECOND_NS)
    assert hints.withheld[Withheld.COOLING_DOWN] == 1
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 3601 * SECOND_NS)


@pytest.mark.parametrize(
    ("state", "decision", "reason"),
    [
        (OutcomeState.ROLLED_BACK, "inconclusive", "neither was proved"),
        (OutcomeState.REJECTED, "", "3 hints in a row for block were rolled back; it takes the next in 1800 s"),
    ],
)
def test_an_outcome_that_says_little_about_the_value_cools_for_an_hour(
    state: OutcomeState, decision: str, reason: str
) -> None:
    for known_first in (True, False):
        hints = HintBook(HintSettings(cooldown_seconds=86_400.0, expires_seconds=60.0))
        hint = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0].hint
        hints = hints if known_first else HintBook(HintSettings(cooldown_seconds=86_400.0, expires_seconds=60.0))
        ended = replace(outcome(hint.hint_id, state), decision=decision, reason=reason)
        hints.learn_outcome(ended, time_ns=NOW_NS)
        hints.learn_hint(hint)
        assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 3599 * SECOND_NS)
        assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + 3601 * SECOND_NS)


def test_a_value_that_failed_on_one_node_is_proposed_on_no_other_of_its_model_and_code() -> None:
    """The issue: a candidate that failed on one node is not proposed on another; outcome and hint come in any order."""
    for known_first in (True, False):
        hint = book().propose([tunable("33")], BUSY, now_ns=NOW_NS)[0].hint
        hints = book()
        failed = replace(
            outcome(hint.hint_id, OutcomeState.ROLLED_BACK),
            decision="failed",
            hostname="node1",
            device_model="A100",
            code_version="v1",
        )
        acts = [lambda hints=hints, hint=hint: hints.learn_hint(hint)]
        acts.append(lambda hints=hints, failed=failed: hints.learn_outcome(failed, time_ns=NOW_NS))
        for act in acts if known_first else reversed(acts):
            act()
        month_ns = 30 * 86_400 * SECOND_NS
        assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + month_ns)
        assert hints.withheld[Withheld.FAILED] == 1
        for other in (replace(tunable("33"), code_version="v2"), replace(tunable("33"), device_model="H100")):
            assert hints.propose([other], BUSY, now_ns=NOW_NS + month_ns)


def test_a_failed_configuration_of_a_search_is_known_by_its_candidate() -> None:
    hints = book()
    found = Outcome(
        "search-1", "train", "block", OutcomeState.ROLLED_BACK, decision="failed", candidate="128",
        device_model="A100", code_version="v1",
    )  # fmt: skip
    hints.learn_outcome(found, time_ns=NOW_NS)
    assert hints.failures.reason(tunable("33"), "128") == ""
    assert hints.failures.reason(tunable("33"), "256") is None
    assert not hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)


def test_a_trial_that_a_person_ended_may_be_proposed_again() -> None:
    """An order to stop says nothing about the value: after it was lifted the value may be tried."""
    hints = book()
    first = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0]
    reason = f"stopped by ana: driver update (/run/kernelcast/hints.stopped); {LIFTED_BY}"
    ended = replace(outcome(first.hint.hint_id, OutcomeState.ROLLED_BACK), decision="inconclusive", reason=reason)
    hints.learn_outcome(ended, time_ns=NOW_NS)
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + SECOND_NS)


def test_a_tunable_without_kernels_affects_all_of_them() -> None:
    """Review: a tunable without `kernels=` got no hint, silently."""
    assert book().propose([tunable("33", kernel="")], BUSY, now_ns=NOW_NS)
    assert BUSY.share("train", "") == 1.0
    assert BUSY.share("another", "") is None


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
    assert tunables.runs.take_redeployed() == {RUN: Versions("v1")}
    assert not tunables.runs.take_redeployed()
    tunables.drop_silent(silent_ns=10, now_ns=20)
    assert not tunables.current()


RUN: RunKey = ("train", ("", "", ""))


def observe(tunables: TunableReports, version: str, *, minute: float) -> None:
    words = {"program": "train", "tunable": "block", "value": "33", "code_version": version, "allowed": "33,128"}
    now_ns = NOW_NS + round(minute * 60 * SECOND_NS)
    tunables.observe(tuple(sorted(words.items())), time_ns=now_ns, owner=0, now_ns=now_ns)


def test_reports_beyond_the_limits_of_memory_are_counted_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunables_module, "MAX_TUNABLES", 5)
    monkeypatch.setattr(runs_module, "MAX_RUN_TUNABLES", 4)
    monkeypatch.setattr(runs_module, "MAX_RUNS", 2)
    monkeypatch.setattr(runs_module, "MAX_VALUES", 3)
    tunables = TunableReports()
    for number in range(8):
        words = {"program": "train", "tunable": f"t{number}", "value": str(number)}
        tunables.observe(tuple(sorted(words.items())), time_ns=NOW_NS + number, owner=0, now_ns=NOW_NS + number)
    (run,) = tunables.runs.all().values()
    assert (len(tunables), len(run.values)) == (5, 4)
    assert tunables.dropped == 4  # the fifth name of the program, and three names beyond all
    for host in ("n1", "n2"):
        observe_versions(tunables, Versions("v1"), host=host, minute=1)
    assert len(tunables.runs.all()) == 2
    assert tunables.dropped == 5
    for number in range(9):
        words = {"program": "train", "tunable": "t0", "value": f"v{number}"}
        tunables.observe(tuple(words.items()), time_ns=2 * NOW_NS + number, owner=0, now_ns=NOW_NS + number)
    assert list(tunables._values["train", "t0", ""]) == ["v6", "v7", "v8"]


def test_a_rollout_with_two_versions_side_by_side_is_one_deploy() -> None:
    tunables = TunableReports()
    seen = []
    for minute, version in enumerate(("v1", "v2", "v1", "v2", "v1", "v2", "v2")):
        observe(tunables, version, minute=minute)
        seen.append(tunables.runs.take_redeployed())
    assert seen == [{}, {RUN: Versions("v1")}, {}, {}, {}, {}, {}]


def test_going_back_to_an_older_version_is_a_deploy_too() -> None:
    tunables = TunableReports()
    for minute, version in ((0, "v1"), (5, "v2"), (10, "v2"), (15, "v1")):
        observe(tunables, version, minute=minute)
        redeployed = tunables.runs.take_redeployed()
    assert redeployed == {RUN: Versions("v2")}


def test_a_program_that_paused_and_goes_on_is_no_deploy() -> None:
    tunables = TunableReports()
    observe(tunables, "v1", minute=0)
    observe(tunables, "v1", minute=30)
    assert not tunables.runs.take_redeployed()


def observe_versions(tunables: TunableReports, versions: Versions, *, host: str = "n1", minute: float) -> None:
    words = {"program": "train", "Hostname": host, "UUID": "GPU-0", **versions.labels()}
    now_ns = NOW_NS + round(minute * 60 * SECOND_NS)
    tunables.observe_versions(tuple(sorted(words.items())), time_ns=now_ns, now_ns=now_ns)


def test_a_changed_driver_concerns_one_host_and_an_unknown_version_is_no_change() -> None:
    tunables = TunableReports()
    old, new = Versions("v1", "app:1", "12.4", "550.54.15"), Versions("v1", "app:1", "12.4", "560.28.03")
    for host in ("n1", "n2"):
        observe_versions(tunables, replace(old, cuda=""), host=host, minute=0)
        observe_versions(tunables, old, host=host, minute=1)
    assert tunables.runs.take_redeployed() == {}
    for host, later in (("n1", new), ("n2", old)):
        observe_versions(tunables, later, host=host, minute=9)
    assert tunables.runs.take_redeployed() == {("train", ("n1", "GPU-0", "")): old}
    assert tunables.versions == {"train": ("v1",)}


def test_the_versions_before_include_all_that_changed_at_once() -> None:
    tunables = TunableReports()
    old, new = Versions("v1", "app:1", "12.4", "550.54.15"), Versions("v2", "app:2", "12.6", "550.54.15")
    place = {"Hostname": "n1", "UUID": "GPU-0"}
    words = {"program": "train", "tunable": "block", "value": "33", "code_version": "v2", **place}
    observe_versions(tunables, old, minute=0)
    tunables.observe(tuple(sorted(words.items())), time_ns=2 * NOW_NS, owner=0, now_ns=2 * NOW_NS)
    tunables.observe_versions(
        tuple(sorted({"program": "train", **place, **new.labels()}.items())), time_ns=2 * NOW_NS, now_ns=2 * NOW_NS
    )
    (former,) = tunables.runs.take_redeployed().values()
    (run,) = tunables.runs.all().values()
    assert changes(former, run.versions) == "code v1 -> v2, image app:1 -> app:2, cuda 12.4 -> 12.6"
    assert run.values == {"block": ("33", "")}


def test_a_hint_that_comes_back_from_kafka_after_its_outcome_is_not_open_again() -> None:
    hints = book()
    issued = hints.propose([tunable("33")], BUSY, now_ns=NOW_NS)[0].hint
    hints.learn_outcome(outcome(issued.hint_id, OutcomeState.EXPIRED), time_ns=NOW_NS)
    hints.learn_hint(issued)
    assert hints.propose([tunable("33")], BUSY, now_ns=NOW_NS + SECOND_NS)
