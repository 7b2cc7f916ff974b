"""The estimate of what marks cost, with a processor clock of the test."""

from collections.abc import Callable, Iterator

from kernelcast.probe.marks.cost import MarksCost
from kernelcast.probe.marks.timeline import Timeline
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.step_totals import StepTotals


def clock(*took_ns: int) -> Callable[[], int]:
    def times() -> Iterator[int]:
        now_ns = 0
        for ns in took_ns:
            yield now_ns
            now_ns += ns
            yield now_ns

    return times().__next__


def test_every_step_costs_what_the_marks_of_one_took_at_the_time_and_a_fault_of_a_page_does_not_count() -> None:
    progress = StepTotals()
    cost = MarksCost(progress, lambda: Timeline(progress), clock(20, 30, 900_000))
    assert cost() == 0
    progress.steps = 10
    assert cost() == 200
    assert cost() == 200  # no step since
    progress.steps = 14
    assert cost() == 200 + 4 * 25
    progress.steps = 15
    assert cost() == 300 + 30


def test_a_program_without_marks_pays_nothing_for_them() -> None:
    progress = StepTotals()
    progress.steps = 10
    assert MarksCost(progress, lambda: None, clock())() == 0


def test_a_report_has_the_marks_beside_the_probes_own_threads_and_no_budget_counts_them() -> None:
    recorder = Recorder()
    recorder.count("kernel", 1, device=0)
    recorder.charge(500)
    recorder.marks_cost = lambda: 7_000
    assert recorder.counters(0, dropped_frames=0).overhead_ns == 7_500
    assert recorder.overhead_ns == 500  # what `CostBudget` reads
