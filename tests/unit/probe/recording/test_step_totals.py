"""Lengths of steps, which the program's thread leaves for the probe's to add up."""

from kernelcast.probe.recording.step_totals import MAX_LENGTHS, StepTotals


def test_the_lengths_of_all_steps_count_however_many_end_between_two_reports() -> None:
    totals = StepTotals()
    ends = [0]
    for number in range(3 * MAX_LENGTHS):
        totals.advance_by_itself(ends[-1])
        ends.append(ends[-1] + 1 + number % 7)
    found = totals.durations()
    assert found is not None
    assert (found.count, found.sum_ns) == (3 * MAX_LENGTHS - 1, totals.step_ns)
    assert len(totals._lengths_ns) == 0


def test_lengths_that_wait_for_a_report_are_bounded() -> None:
    totals = StepTotals()
    for number in range(10 * MAX_LENGTHS):
        totals.advance_by_itself(number)
        assert len(totals._lengths_ns) <= MAX_LENGTHS


def test_a_step_does_not_wait_for_the_thread_that_adds_lengths_up() -> None:
    totals = StepTotals()
    with totals._summing:
        for number in range(2 * MAX_LENGTHS):
            totals.advance_by_itself(number)
    found = totals.durations()
    assert found is not None
    assert found.count == 2 * MAX_LENGTHS - 1
