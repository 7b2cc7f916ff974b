"""Device times of a trial's steps in programs of many kernels."""

import threading

import pytest

from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.step_times import MAX_KERNELS, StepTimes


def test_kernels_beyond_the_limit_change_no_time_of_those_before() -> None:
    """A launch takes a microsecond, and one in ten is timed; the last kernel has a single launch of a millisecond."""
    times = StepTimes(())
    kernels = [f"kernel_{letter}" for letter in range(MAX_KERNELS + 44)]
    for number in (1, 2):
        times.begin(number, "kept")
        for kernel in kernels:
            duration_ns = 1_000_000 if kernel == kernels[-1] else 1000
            times.timed(0, kernel, duration_ns, number, launches=0)
        for kernel in kernels:
            times.launched(0, kernel, 1 if kernel == kernels[-1] else 10, number)
        times.end(number, 1)
    (step,) = times.pop_complete()
    own_ns = MAX_KERNELS * 10 * 1000
    shared_ns = (43 * 1000 + 1_000_000) / 44 * (43 * 10 + 1)
    assert step.seconds * 1e9 == pytest.approx(own_ns + shared_ns)


def test_a_forked_child_reports_without_waiting_for_a_trial_of_its_parent() -> None:
    """A thread of the parent, which does not exist in the child, may hold the lock of the trial's times."""
    recorder = Recorder()
    recorder.step_times = StepTimes(())
    recorder.step_times._lock.acquire()
    recorder.forked()

    def report() -> None:
        recorder.observe("k", 5)
        recorder.count("k", 2)

    child = threading.Thread(target=report, daemon=True)
    child.start()
    child.join(5)
    assert not child.is_alive()
    (cell,) = recorder.cells(0)
    assert cell.launches == 3
