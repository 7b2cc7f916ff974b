"""A signal handler of the program may call the probe while the thread that it interrupts is inside the probe."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import time_ns
from types import FrameType
from typing import Any

import pytest
from tests.unit.probe.tuned.test_tuned_calls import Blocks, tuned

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.cupy.events import SamplingBucket
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.regions import RegionTable
from kernelcast.probe.recording.step_times import StepTimes
from kernelcast.probe.recording.totals import check_durations
from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.probe.tunables import Terms, Tunable, TunableSet
from kernelcast.probe.tuned.approved import SearchApprovals
from kernelcast.wire.events import Hint, OutcomeState, to_event
from kernelcast.wire.tuning.approvals import Approval, search_id

MAX_LINES = 1000
HANG_SECONDS = 10.0


class Interruption:
    """Calls a handler before one line of the work that it runs, as CPython calls a signal handler."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.happened = False

    def run(self, work: Callable[[], object], handler: Callable[[], object]) -> None:
        lines = 0

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal lines
            if "/kernelcast/" not in frame.f_code.co_filename:
                return None
            lines += event == "line"
            if event == "line" and lines == self.line:
                self.happened = True
                handler()
            return trace

        def traced() -> None:
            sys.settrace(trace)
            work()

        thread = threading.Thread(target=traced, daemon=True)
        thread.start()
        thread.join(HANG_SECONDS)
        assert not thread.is_alive(), f"interrupted before line {self.line}, it waits for itself"


def interruptions() -> Iterator[Interruption]:
    """One interruption before each line."""
    for line in range(1, MAX_LINES):
        interruption = Interruption(line)
        yield interruption
        if not interruption.happened:
            assert line > 2, "nothing was interrupted"
            return
    raise AssertionError(f"more than {MAX_LINES} lines")


@pytest.mark.parametrize("signature", ["k", "a new one"])
def test_a_launch_that_a_handler_observes_is_added_or_refused_and_the_sums_agree(signature: str) -> None:
    for interruption in interruptions():
        recorder = Recorder()
        recorder.observe("k", 1000, variant="v")

        def observe(recorder: Recorder = recorder) -> None:
            recorder.observe(signature, 1000, variant="v")

        interruption.run(observe, observe)
        cells = recorder.cells(0)
        for cell in cells:
            check_durations(cell.durations)
            assert cell.launches == cell.durations.count == sum(count for count, _, _ in cell.variants.values())
        assert sum(cell.launches for cell in cells) + recorder.refused == 2 + interruption.happened
        assert recorder.refused <= 1


def test_a_wait_that_a_handler_reports_is_added_or_refused() -> None:
    for interruption in interruptions():
        recorder = Recorder()
        interruption.run(partial(recorder.sync, "stream", 5), partial(recorder.sync, "stream", 5))
        calls = sum(number for _, number, _ in recorder.counters(0, dropped_frames=0).sync)
        assert calls + recorder.refused == 1 + interruption.happened


def test_a_launch_of_a_handler_is_timed_at_about_the_usual_rate() -> None:
    for interruption in interruptions():
        bucket = SamplingBucket(4.0, lambda: 0)  # a burst of one sample
        taken: list[bool] = []
        interruption.run(lambda: taken.append(bucket.take()), lambda: taken.append(bucket.take()))  # noqa: B023
        assert 1 <= sum(taken) <= 2
        assert not bucket.take()


def test_an_outcome_that_a_handler_adds_is_queued() -> None:
    for interruption in interruptions():
        queue = OutcomeQueue("train", "0", lambda: 1, lambda: None)

        def add(queue: OutcomeQueue = queue) -> None:
            queue.add_trial("trial", "tunable", OutcomeState.KEPT, "faster")

        interruption.run(add, add)
        assert len(queue) + queue.dropped == 1 + interruption.happened


def test_a_launch_of_a_handler_counts_in_the_step_of_a_trial() -> None:
    for interruption in interruptions():
        times = StepTimes(())
        times.begin(0, "kept")
        times.begin(1, "kept")

        def timed(times: StepTimes = times) -> None:
            times.timed(0, "k", 1_000, 0)

        interruption.run(timed, timed)
        times.end(0, 1.0)
        times.timed(0, "k", 1_000, 1)
        (step,) = times.pop_complete()
        assert step.seconds == pytest.approx((1 + interruption.happened) * 1e-6)


def test_a_handler_that_adds_the_cost_of_a_trial_does_not_wait_for_its_own_thread() -> None:
    for interruption in interruptions():
        budget = TrialBudget()
        interruption.run(partial(budget.grant, 1), partial(budget.lose, 5))
        assert budget.lost_ns == 5 * interruption.happened


def test_a_handler_may_call_the_function_whose_trial_it_interrupts() -> None:
    for interruption in interruptions():
        blocks = Blocks()
        calls = tuned(blocks)
        run = calls.decorate(blocks.run)
        run()  # the next call measures a candidate
        interruption.run(run, run)
        assert (run(), calls.failures) == (2.0, 0)


def test_a_handler_may_declare_a_space_or_a_tunable() -> None:
    context = HintContext("training", "", "v1", str, time_ns)
    for interruption in interruptions():
        outcomes = OutcomeQueue("training", "", time_ns, lambda: None)
        approvals = SearchApprovals(context, outcomes)
        refuse = partial(approvals.refuse, "feed", "its ranks hear of it at different times")
        approvals.add(Approval(search_id("training", "feed"), "training", "feed", "", expires_at_ns=2 * time_ns()))
        interruption.run(refuse, refuse)
        assert {one.tunable for one in outcomes.history} == {"feed"}
    for interruption in interruptions():
        tunables = TunableSet()
        one, other = (Tunable(name, [1, 2], 1, Terms()) for name in ("block", "tile"))
        interruption.run(partial(tunables.add, one), partial(tunables.add, other))
        assert tunables.get("block") is one


def test_a_region_that_a_handler_enters_first_has_its_name() -> None:
    for interruption in interruptions():
        table = RegionTable()
        interruption.run(partial(table.totals, "step"), partial(table.totals, "checkpoint"))
        for name in ("step", "checkpoint"):
            table.totals(name).on(0).launches += 1
        assert {(row.name, row.launches) for row in table.growth(0)} == {("step", 1), ("checkpoint", 1)}


@contextmanager
def trying(directory: Path) -> Iterator[tuple[Probe, Tunable[int]]]:
    """A probe in the middle of the trial of a hint."""
    probe = Probe(ProbeSettings("train", socket_path=str(directory / "none")), {})
    try:
        tunable = probe.tunable("size", [48, 64], 48)
        hint = Hint("h1", "train", "size", "64", expires_at_ns=time_ns() + 10**12)
        probe._receiver.receive(to_event(hint, source="/test", time_ns=time_ns()))
        for _ in range(5):
            probe.step()
        yield probe, tunable
    finally:
        probe.abandon()


@pytest.mark.slow
def test_a_step_within_a_step_is_counted(tmp_path: Path) -> None:
    for interruption in interruptions():
        with trying(tmp_path) as (probe, _tunable):
            interruption.run(probe.step, probe.step)
            assert probe.steps == 6 + interruption.happened
            assert probe._sender.failures == 0


@pytest.mark.slow
def test_a_handler_that_stops_the_probe_within_a_step_leaves_the_kept_value_in_force(tmp_path: Path) -> None:
    for interruption in interruptions():
        with trying(tmp_path) as (probe, tunable):
            interruption.run(probe.step, probe.stop)
            if interruption.happened:
                assert tunable.value == 48
                ends = [outcome.decision for outcome in probe.outcomes if outcome.decision]
                assert ends == ["inconclusive"]
