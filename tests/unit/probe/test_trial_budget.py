"""Trials may cost a share of a process's time; their cost and their budget are reported."""

from dataclasses import replace

import pytest
from tests.unit.probe.test_pauses import run
from tests.unit.probe.test_probe_hints import Program

from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.settings import settings_from
from kernelcast.probe.trial_budget import FIRST_LAUNCHES, FIRST_NS, SHARE, LaunchCost, TrialBudget, share_from
from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.terms import CallAccounts, CallTerms
from kernelcast.wire.events import OutcomeState

SECOND_NS = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


def test_a_share_of_the_running_time_may_be_lost_and_a_beginning_is_granted() -> None:
    clock = Clock()
    budget = TrialBudget(0.01, clock)
    assert (budget.allowed_ns, budget.exhausted, budget.is_used) == (0, False, False)
    clock.now_ns += 100 * SECOND_NS
    assert budget.allowed_ns == SECOND_NS
    budget.grant(0.1 * SECOND_NS)
    assert budget.is_used
    assert budget.allowed_ns == SECOND_NS + FIRST_LAUNCHES * SECOND_NS // 10 + FIRST_NS
    budget.lose(budget.allowed_ns + 1)
    assert budget.exhausted
    clock.now_ns += SECOND_NS
    budget.lose(-5)
    assert (budget.lost_ns, budget.exhausted) == (3 * SECOND_NS + FIRST_NS + 1, False), "time brings it back"


def test_a_trial_costs_what_the_candidate_takes_longer_than_the_kept_value() -> None:
    budget = TrialBudget(0.0, Clock())
    cost = LaunchCost(budget)
    cost.launch(9.0, candidate=True)
    for seconds, candidate in ((1.0, False), (1.0, False), (3.0, True), (0.5, True)):
        cost.launch(seconds, candidate=candidate)
    assert budget.lost_ns == 2 * SECOND_NS, "without a kept launch nothing can be compared; a gain pays nothing back"
    assert budget.allowed_ns == FIRST_LAUNCHES * SECOND_NS + FIRST_NS


def test_a_first_launch_that_compiles_does_not_decide_what_the_first_trials_may_cost() -> None:
    """A first launch of 3 s before others of 5 ms granted 60 s."""
    budget = TrialBudget(0.0, Clock())
    cost = LaunchCost(budget)
    for seconds in (3.0, 0.005, 0.005, 0.005):
        cost.launch(seconds, candidate=False)
    assert budget.allowed_ns == round(FIRST_LAUNCHES * 0.005 * SECOND_NS) + FIRST_NS


def test_no_trial_begins_while_the_budget_is_spent_and_the_hint_waits() -> None:
    program = Program()
    budget = program.context.budget
    budget.lose(1e18)
    program.hear()
    assert set(run(program, 20)) == {48}
    assert program.states() == [OutcomeState.RECEIVED]
    budget.lost_ns = 0
    run(program, 3)
    assert program.states() == [OutcomeState.APPLIED]
    assert budget.is_used


def test_the_step_in_which_a_stop_ends_a_trial_is_charged() -> None:
    program, step_ns = Program(), [0]
    program.receiver._context = replace(program.context, step_clock=lambda: step_ns[0])
    program.hear()

    def step(seconds: int) -> None:
        step_ns[0] += seconds * SECOND_NS
        program.step()

    while program.block.value == 48 or program.context.budget.allowed_ns < FIRST_LAUNCHES * SECOND_NS:
        step(1)
    program.orders.order = "an order"
    step(9)
    assert program.block.value == 48
    assert program.context.budget.lost_ns == 8 * SECOND_NS


class Slow:
    """A space whose second configuration takes ten times as long."""

    kept = 0
    ordinal = 1
    launches = 10**9
    may_wait = True
    start = 0

    def configuration(self, ordinal: int) -> int:
        return ordinal

    def text(self, ordinal: int) -> str:
        return str(ordinal)

    def find(self, text: str) -> int | None:
        return int(text)

    def campaign(self, name: str) -> "Slow":
        del name
        return self

    def next(self) -> "Slow":
        return self

    def measured(self, times: list[float]) -> None:
        raise AssertionError(times)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)

    def refused(self, reason: str) -> None:
        raise AssertionError(reason)


def test_two_spaces_share_the_budget_of_their_process() -> None:
    clock = Clock()
    budget = TrialBudget(0.01, clock)

    def call(configuration: int) -> int:
        clock.now_ns += SECOND_NS * (10 if configuration else 1)
        return configuration

    def seconds() -> float:
        return clock.now_ns / SECOND_NS

    def stopped() -> str:
        return "spent" if budget.exhausted else ""

    terms = CallTerms("conv")
    spaces = [TunedCalls(terms, Slow(), None, stopped, seconds, CallAccounts(budget)).decorate(call) for _ in range(2)]
    budget.grant(SECOND_NS)
    first = [spaces[0]() for _ in range(100)]
    assert sum(first) == 3, "the third is the first that costs more than 20 s"
    assert [spaces[1]() for _ in range(100)] == [0] * 100


def test_what_trials_cost_is_in_the_frame_of_counters_once_one_has_begun() -> None:
    recorder = Recorder()
    recorder.observe("stencil", 5)
    recorder.budget = TrialBudget(0.5, Clock())
    assert recorder.counters(0, dropped_frames=0).trial_allowed_ns == 0
    recorder.budget.grant(SECOND_NS)
    recorder.budget.lose(7)
    counters = recorder.counters(0, dropped_frames=0)
    assert (counters.trial_lost_ns, counters.trial_allowed_ns) == (7, FIRST_LAUNCHES * SECOND_NS + FIRST_NS)


@pytest.mark.parametrize(
    ("shown", "share"), [("", SHARE), ("0.05", 0.05), ("0", 0.0), ("-1", 0.0), ("7", 1.0), ("nan", SHARE), ("x", SHARE)]
)
def test_the_share_comes_from_the_environment_and_an_unusable_one_is_replaced(shown: str, share: float) -> None:
    environ = {"KERNELCAST_TRIAL_SHARE": shown} if shown else {}
    assert share_from(environ) == share
    assert settings_from("training", None, environ).trial_share == share
