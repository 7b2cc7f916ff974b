"""The GPU's time in the phases of a step, with a double of `torch.cuda`.

The double has one stream in virtual time. It shows which events are recorded, and what is computed from them. It does
not show what CUDA does with events: their cost, their accuracy, or that a capture of a graph goes on.
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kernelcast.probe.marks.gpu_phases import MAX_MARKS, GpuPhases
from kernelcast.probe.marks.timeline import CHECKPOINT, EVALUATION, Timeline
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.step_totals import StepTotals


class Event:
    """An event, which is done once the stream has come to it."""

    def __init__(self, cuda: "Cuda") -> None:
        self._cuda = cuda
        self.at_ns = 0

    def record(self) -> None:
        if self._cuda.record_fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self._cuda.recorded += 1
        self.at_ns = max(self._cuda.now_ns, self._cuda.free_at_ns)

    def query(self) -> bool:
        assert self._cuda.device_of_probe == self._cuda.device, "would make a context on device 0"
        if self._cuda.query_fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.at_ns <= self._cuda.now_ns

    def elapsed_time(self, end: "Event") -> float:
        return (end.at_ns - self.at_ns) / 1e6


class Cuda:
    """`torch.cuda` with one stream; the program's thread launches work and does not wait for it."""

    def __init__(self) -> None:
        self.now_ns = self.free_at_ns = 1_000_000
        self.device = 1
        self.device_of_probe = 0
        self.made = self.recorded = 0
        self.is_used = True
        self.captures = self.record_fails = self.query_fails = False

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802  PyTorch's name
        assert enable_timing
        self.made += 1
        return Event(self)

    def is_initialized(self) -> bool:
        return self.is_used

    def is_current_stream_capturing(self) -> bool:
        return self.captures

    def current_device(self) -> int:
        return self.device

    def set_device(self, device: int) -> None:
        self.device_of_probe = device

    def launch(self, gpu_ns: int) -> None:
        self.free_at_ns = max(self.now_ns, self.free_at_ns) + gpu_ns


class Training:
    """A program: each part of a step takes time of the host, and launches work for the GPU."""

    def __init__(self, *, contexts: tuple[int, ...] = (1,)) -> None:
        self.cuda = Cuda()
        self.totals = StepTotals()
        self.timeline = Timeline(self.totals, lambda: self.cuda.now_ns)
        self.relaxed = 0
        modules = {"torch": SimpleNamespace(cuda=self.cuda)}
        self.report = GpuPhases(self.totals, modules, lambda: contexts, self._relax)
        self.work: tuple[int, int, int, int] = (10, 100, 1_000, 10_000)
        self._fetch = self.timeline.fetching(lambda _iterator: self.work_for(5, self.work[0]), lambda: True, None)

    def _relax(self) -> None:
        self.relaxed += 1

    def work_for(self, host_ns: int, gpu_ns: int = 0) -> None:
        self.cuda.now_ns += host_ns
        self.cuda.launch(gpu_ns)

    def step(self, within: Callable[[], object] = lambda: None) -> None:
        _, forward, backward, optimizer = self.work
        self._fetch(None)
        self.work_for(5, forward)
        within()
        assert self.timeline.backward_begins()
        self.work_for(5, backward)
        self.timeline.backward_ends()
        assert self.timeline.step_begins()
        self.work_for(5, optimizer)
        self.timeline.step_ends(1)

    def wait(self) -> None:
        """Wait for the GPU."""
        self.cuda.now_ns = max(self.cuda.now_ns, self.cuda.free_at_ns)


def timed(training: Training, within: Callable[[], object] = lambda: None) -> tuple[int, dict[str, int]]:
    """Make the steps around one that is timed; returns what is reported then."""
    training.step()
    training.report()
    for _ in range(3):
        training.step(within)
    training.wait()
    found = training.report()
    return found.steps, dict(found.phases)


def test_the_phases_of_a_step_on_the_gpu_are_the_times_between_its_marks_there() -> None:
    training = Training()
    steps, phases = timed(training)
    assert steps == 1
    assert phases == {"data": 10, "forward": 100, "backward": 1_000, "optimizer": 10_000}


def test_the_gpus_wait_for_the_program_is_the_time_of_the_phase_that_it_waits_in() -> None:
    training = Training()
    training.work = (0, 2, 3, 4)  # of the GPU, which waits for the host's 5 ns in each phase
    _steps, phases = timed(training)
    assert phases == {"data": 1, "forward": 7, "backward": 6, "optimizer": 6}


def test_one_step_a_report_is_timed_and_the_others_record_no_event() -> None:
    training = Training()
    timed(training)
    recorded = training.cuda.recorded
    for _ in range(5):
        training.step()
    assert training.cuda.recorded == 2 * recorded  # the report has chosen another one
    assert isinstance(training.totals.phase_ns, list)
    training.wait()
    assert training.report().steps == 2
    assert training.cuda.made == recorded  # events are used again


def test_the_hosts_phases_are_complete_while_a_step_is_timed() -> None:
    training = Training()
    timed(training)
    assert sum(training.totals.phase_ns) == training.totals.step_ns


def test_a_step_is_read_once_the_gpu_has_come_to_its_end_and_nothing_waits_for_that() -> None:
    training = Training()
    training.step()
    training.report()
    for _ in range(3):
        training.step()
    assert training.cuda.free_at_ns > training.cuda.now_ns
    assert training.report() == (0, ())
    training.wait()
    assert training.report().steps == 1
    assert training.relaxed == 2, "each time it asks, on whatever thread"


@pytest.mark.parametrize("contexts", [(), (0,)])
def test_no_event_is_recorded_on_a_device_without_a_context(contexts: tuple[int, ...]) -> None:
    training = Training(contexts=contexts)
    assert timed(training) == (0, {})
    assert training.cuda.made == 0


def test_a_program_that_has_not_used_cuda_runs_none_of_this() -> None:
    training = Training()
    training.cuda.is_used = False
    training.step()
    training.report()
    assert isinstance(training.totals.phase_ns, list)
    assert GpuPhases(training.totals, {}, lambda: (1,))() == (0, ())


def test_no_event_is_recorded_while_a_stream_captures_a_graph() -> None:
    training = Training()

    def capture() -> None:
        training.cuda.captures = True

    training.step()
    training.report()
    training.step()
    training.step(capture)
    recorded = training.cuda.recorded
    training.step()
    assert training.cuda.recorded == recorded
    training.wait()
    training.cuda.captures = False
    assert training.report().steps == 0
    for _ in range(3):
        training.step()
    training.wait()
    assert training.report().steps == 1


@pytest.mark.parametrize("fault", ["checkpoint", "device", "marks", "error"])
def test_a_step_that_cannot_be_timed_is_left_out_and_the_program_goes_on(fault: str) -> None:
    training = Training()

    def disturb() -> None:
        if fault == "checkpoint":
            assert training.timeline.interrupt(CHECKPOINT)
            training.timeline.resume()
        elif fault == "device":
            training.cuda.device = 0
        elif fault == "marks":
            for _ in range(MAX_MARKS):
                training.timeline.interrupt(EVALUATION)
                training.timeline.resume()
        else:
            training.cuda.record_fails = True

    training.step()
    training.report()
    for _ in range(3):
        training.step(disturb)
    assert isinstance(training.totals.phase_ns, list)
    assert sum(training.totals.phase_ns) == training.totals.step_ns
    training.wait()
    assert training.report() == (0, ())


def test_after_an_error_of_cuda_no_further_step_is_timed() -> None:
    training = Training()
    training.cuda.query_fails = True
    assert timed(training) == (0, {})
    training.cuda.query_fails = False
    recorded = training.cuda.recorded
    training.report()
    for _ in range(3):
        training.step()
    assert training.cuda.recorded == recorded


def test_a_report_has_the_phases_on_the_gpu_for_the_device_that_was_used_first() -> None:
    training, recorder = Training(), Recorder()
    recorder.gpu_phases = training.report
    timed(training)
    for device in (1, 0):
        recorder.count("kernel", 1, device=device)
    first, other = (recorder.counters(device, dropped_frames=0) for device in (1, 0))
    assert (first.gpu_steps, dict(first.gpu_phases)["backward"]) == (1, 1_000)
    assert (other.gpu_steps, other.gpu_phases) == (0, ())
