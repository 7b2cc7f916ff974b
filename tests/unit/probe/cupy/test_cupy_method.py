"""CuPy's launches as the probe sees them, on a double that has CuPy's shape."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.probe.cupy_double import Clock, CudaError, Cupy, Gpu, installed

from kernelcast.probe.cupy.events import EventTimer, SamplingBucket
from kernelcast.probe.cupy.hook import FunctionStandIn, LaunchObserver, calibrate, probed_function
from kernelcast.probe.cupy.method import CupyMethod
from kernelcast.probe.cupy.traced import Traced, TracedKernels
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.regions import current, region, table
from kernelcast.probe.trial import LaunchMeasurement


class Rig:
    def __init__(self, cupy: Cupy) -> None:
        self.cupy = cupy
        self.clock = Clock()
        self.recorder = Recorder()
        self.method_used = CupyMethod(self.recorder, self.clock, lambda: 100.0)

    def begin(self, share: float = 1.0) -> "Rig":
        self.method_used.sample(share)
        self.method_used.begin()
        return self

    def poll(self, seconds: float = 1.0) -> None:
        self.clock.pass_seconds(seconds)
        self.method_used.poll()

    def cell(self, signature: str, device: int = 0) -> Any:
        return next(cell for cell in self.recorder.cells(device) if cell.signature == signature)


@pytest.fixture
def cupy() -> Iterator[Cupy]:
    with installed() as double:
        yield double


@pytest.fixture
def rig(cupy: Cupy) -> Iterator[Rig]:
    made = Rig(cupy)
    yield made
    made.method_used.stop()
    table.forget()


def test_every_launch_is_counted_once_and_made_once(rig: Rig, cupy: Cupy) -> None:
    rig.begin(0)
    raw, ufunc = cupy.compile("raw", "cupy_add")
    for _ in range(40):
        raw((8,), (128,), ("a",), shared_mem=64)
        ufunc.linear_launch(1000, ("a",))
    rig.poll()
    assert (rig.cell("raw").launches, rig.cell("cupy_add").launches) == (40, 40)
    assert len(cupy.gpu.launches) == 80
    assert cupy.gpu.launches[:2] == [("raw", 0, ((8,), (128,), 64)), ("cupy_add", 0, (1000, 128, 0))]


def test_some_launches_are_timed_and_the_rest_counted(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    raw((1,), (1,), ())
    rig.poll()  # makes the events
    for _ in range(100):
        raw((8, 2), (128,), (), shared_mem=64)
    cupy.gpu.finish()
    rig.poll()
    cell = rig.cell("raw")
    assert cell.launches == 101
    assert 1 <= cell.durations.count <= 50  # a quarter of a second of 200 a second
    assert cell.durations.sum_ns == cell.durations.count * 250_000
    name = cell.name()
    assert (name.grid, name.block, name.registers, name.local_memory_bytes) == ("8x2x1", "128x1x1", 40, 16)
    assert name.shared_memory_bytes == 1024 + 64
    assert name.occupancy == pytest.approx(8 * 128 / 2048)
    assert cupy.gpu.synchronised == 0


def test_a_launch_under_way_is_neither_lost_nor_counted_twice(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    for _ in range(3):
        raw((1,), (1,), ())
    rig.poll()
    early = rig.cell("raw").launches
    cupy.gpu.finish()
    rig.poll()
    assert early < rig.cell("raw").launches == 3


def test_an_error_of_the_programs_passes_and_is_no_launch(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    cupy.gpu.fail.add("launch")
    for _ in range(5):
        with pytest.raises(CudaError, match="launch"):
            raw((1,), (1,), ())
    cupy.gpu.fail.clear()
    raw((1,), (1,), ())
    cupy.gpu.finish()
    rig.poll()
    assert rig.cell("raw").launches == 1


@pytest.mark.parametrize("call", ["eventRecord", "eventQuery", "eventCreateWithFlags", "funcGetAttribute"])
def test_trouble_of_the_probe_with_cuda_costs_times_and_no_launch(rig: Rig, cupy: Cupy, call: str) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    cupy.gpu.fail.add(call)
    for _ in range(50):
        for _ in range(10):
            raw((1,), (1,), ())
        cupy.gpu.finish()
        rig.poll()
    assert len(cupy.gpu.launches) == 500
    assert rig.cell("raw").launches == 500
    assert (rig.method_used.failures > 0) is (call != "funcGetAttribute")


def test_nothing_is_recorded_into_a_graph_and_captured_launches_count_as_unseen(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    stream = cupy.stream(5)
    stream.begin_capture()
    for _ in range(20):
        raw((1,), (1,), (), 0, stream)
    assert stream.end_capture() == "graph"
    for _ in range(20):
        raw((1,), (1,), (), 0, stream)
    cupy.gpu.finish()
    rig.poll()
    assert rig.cell("raw").launches == 20
    assert rig.recorder.counters(0, dropped_frames=0).unseen == (("graph", 20),)


def test_a_capture_that_others_began_is_noticed_before_an_event_is_recorded(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    cupy.gpu.capturing.add(9)
    for _ in range(100):
        raw((1,), (1,), (), stream=cupy.stream(9))
    assert not cupy.gpu.recorded


def test_devices_have_events_of_their_own(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    for device in (0, 1):
        cupy.gpu.device = device
        (raw,) = cupy.compile("raw")
        raw((1,), (1,), ())
        rig.poll()
        cupy.gpu.device = device
        for _ in range(100):
            raw((1,), (1,), ())
    cupy.gpu.finish()
    rig.poll()
    assert [rig.cell("raw", device).launches for device in (0, 1)] == [101, 101]
    assert all(rig.cell("raw", device).durations.count for device in (0, 1))


def test_launches_and_gpu_time_go_to_the_innermost_region(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    with region("outer"):
        for _ in range(10):
            raw((1,), (1,), ())
        with region("inner"):
            for _ in range(400):
                raw((1,), (1,), ())
    cupy.gpu.finish()
    rig.poll()
    rows = {row.name: row for row in table.growth(0)}
    assert (rows["outer"].launches, rows["inner"].launches) == (10, 400)
    assert 50e6 < rows["inner"].gpu_ns < 150e6  # 400 launches of 0.25 ms, of which some were timed
    assert current.get() is None


def test_threads_lose_no_launch(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()

    def work() -> None:
        for _ in range(20_000):
            raw((1,), (1,), ())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cupy.gpu.finish()
    rig.poll()
    rig.poll()
    assert rig.cell("raw").launches == 80_000


def test_memory_pools_are_reported_with_their_limit_only_if_there_is_one(rig: Rig, cupy: Cupy) -> None:
    rig.begin(0)
    cupy.compile("raw")
    rig.poll()
    assert set(rig.recorder.counters(0, dropped_frames=0).pools) == {
        ("device", "used", 300),
        ("device", "free", 200),
        ("device", "total", 500),
    }
    cupy.pool.limit = 900
    rig.poll()
    assert ("device", "limit", 900) in rig.recorder.counters(0, dropped_frames=0).pools


def test_overhead_is_charged(rig: Rig, cupy: Cupy) -> None:
    rig.begin(0)
    (raw,) = cupy.compile("raw")
    for _ in range(1000):
        raw((1,), (1,), ())
    rig.poll()
    assert rig.recorder.overhead_ns == 1000 * 100
    assert 0 < calibrate() < 50_000


def test_retired_it_is_cupys_own_way_to_launch(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    rig.method_used.attend(wanted=False)
    assert type(raw).__call__ is cupy.modules["cupy.cuda.function"].Function.__call__
    assert type(raw).linear_launch is cupy.modules["cupy.cuda.function"].Function.linear_launch
    raw((1,), (1,), ())
    rig.method_used.attend(wanted=True)
    raw((1,), (1,), ())
    rig.poll()
    assert rig.cell("raw").launches == 1


def test_stopped_it_leaves_cupy_as_it_was(rig: Rig, cupy: Cupy) -> None:
    compiler, stream = cupy.modules["cupy.cuda.compiler"], cupy.modules["cupy.cuda.stream"]
    before = (compiler.function, stream._BaseStream.begin_capture, stream._BaseStream.end_capture)
    rig.begin()
    assert isinstance(compiler.function, FunctionStandIn)
    assert compiler.function.LinkState is object
    rig.method_used.stop()
    assert (compiler.function, stream._BaseStream.begin_capture, stream._BaseStream.end_capture) == before


def test_a_function_made_without_a_module_still_launches(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    orphan = type(raw)(None, "orphan")
    orphan((1,), (1,), ())
    assert cupy.gpu.launches == [("orphan", 0, ((1,), (1,), 0))]


def test_more_kernels_than_are_kept_apart_are_counted_as_other(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.probe.cupy.traced.TracedKernels.__init__.__defaults__", (2,))
    rig = Rig(cupy).begin(0)
    for function in cupy.compile("a", "b", "c", "d"):
        function((1,), (1,), ())
    rig.poll()
    rig.method_used.stop()
    assert {cell.signature: cell.launches for cell in rig.recorder.cells(0)} == {"a": 1, "b": 1, "other": 2}


def test_the_rate_is_held_however_much_is_launched(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    functions = cupy.compile(*(f"k{index}" for index in range(20)))
    rig.poll()
    for _ in range(3):
        for function in functions:
            for _ in range(2000):
                function((1,), (1,), ())
        cupy.gpu.finish()
        rig.poll()
    timed = sum(cell.durations.count for cell in rig.recorder.cells(0))
    assert timed <= 200 * 4
    assert rig.method_used.sampled_ratio < 0.05


def test_cuda_is_asked_in_a_mode_that_breaks_no_capture(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []

    class Driver:
        def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802  CUDA's name
            modes.append(mode._obj.value)
            return 0

    monkeypatch.setattr("kernelcast.probe.cupy.method.loaded_driver", Driver)
    rig = Rig(cupy).begin()
    cupy.compile("raw")
    rig.poll()
    rig.poll()
    rig.method_used.stop()
    assert modes == [2]


def test_the_double_reports_forbidden_calls_of_the_probe() -> None:
    gpu = Gpu()
    gpu.capturing.add(3)
    from tests.support.probe.cupy_double import runtime_of

    with pytest.raises(AssertionError):
        runtime_of(gpu)["eventRecord"](1, 3)


def test_the_device_time_of_a_trials_step_counts_each_launch_once(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    raw((1,), (1,), ())
    rig.poll()
    measured = LaunchMeasurement(rig.recorder, ["raw"], rig.clock)
    seconds = []
    for step in range(100):
        measured.begin(step, "kept")
        for _ in range(10):
            raw((1,), (1,), ())
        rig.clock.pass_seconds(0.1)
        cupy.gpu.finish()
        if step % 10 == 5:
            rig.method_used.poll()
        measured.step_ended(1)
        measured.end()
        seconds += [found.seconds for found in measured.device_times()]
    assert seconds
    assert seconds == pytest.approx([10 * 0.25e-3] * len(seconds))


def test_kernels_whose_reported_names_are_equal_count_together_in_a_trials_step(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    for function in cupy.compile("triton_poi_fused_add_3", "triton_poi_fused_add_4"):
        function((1,), (1,), ())
    assert rig.recorder.launch_counts is not None
    assert list(rig.recorder.launch_counts().values()) == [2]


def test_launches_while_none_was_timed_are_not_the_gpu_time_of_a_later_region(rig: Rig, cupy: Cupy) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    raw((1,), (1,), ())
    rig.poll()
    for _ in range(50):
        raw((1,), (1,), ())
    cupy.gpu.finish()
    rig.poll()
    rig.method_used.sample(0.0)
    with region("train"):
        for _ in range(20_000):
            raw((1,), (1,), ())
    rig.poll(60.0)
    rig.method_used.sample(1.0)
    rig.clock.pass_seconds(1.0)
    with region("validate"):
        raw((1,), (1,), ())
    cupy.gpu.finish()
    rig.poll()
    rows = {row.name: row for row in table.growth(0)}
    assert (rows["train"].launches, rows["train"].gpu_ns) == (20_000, 0)
    assert (rows["validate"].launches, rows["validate"].gpu_ns) == (1, 250_000)


@pytest.mark.parametrize("call", ["eventRecord", "eventQuery", "eventElapsedTime"])
def test_after_errors_of_cuda_launches_are_timed_again(rig: Rig, cupy: Cupy, call: str) -> None:
    rig.begin()
    (raw,) = cupy.compile("raw")
    raw((1,), (1,), ())
    rig.poll()
    cupy.gpu.fail.add(call)
    for _ in range(80):
        for _ in range(60):
            raw((1,), (1,), ())
        cupy.gpu.finish()
        rig.poll()
    assert rig.method_used.failures >= 512
    cupy.gpu.fail.clear()
    before = rig.cell("raw").durations.count
    for _ in range(5):
        for _ in range(60):
            raw((1,), (1,), ())
        cupy.gpu.finish()
        rig.poll()
    assert rig.cell("raw").durations.count > before
    assert len(cupy.gpu.created) <= 2 * 512


def test_a_cupy_that_cannot_be_hooked_stays_as_it_was_and_the_reason_is_known(rig: Rig, cupy: Cupy) -> None:
    compiler, stream = cupy.modules["cupy.cuda.compiler"], cupy.modules["cupy.cuda.stream"]
    own = compiler.function
    del stream._BaseStream
    rig.begin()
    assert compiler.function is own
    assert not rig.method_used.hooked
    assert "_BaseStream" in rig.method_used.hook_error


def test_a_capture_that_the_program_gives_up_costs_later_launches_nothing_for_ever(rig: Rig, cupy: Cupy) -> None:
    rig.begin(0)
    (raw,) = cupy.compile("raw")
    runtime: Any = cupy.modules["cupy_backends.cuda.api.runtime"]
    is_capturing, questions = runtime.streamIsCapturing, []

    def counted(stream: int) -> Any:
        questions.append(stream)
        return is_capturing(stream)

    runtime.streamIsCapturing = counted
    cupy.stream(5).begin_capture()
    cupy.gpu.capturing.clear()  # an error has ended it, and the program never calls `end_capture`
    for _ in range(20_000):
        raw((1,), (1,), ())
    questions.clear()
    raw((1,), (1,), ())
    assert questions == []
    again = cupy.stream(6)
    again.begin_capture()
    raw((1,), (1,), (), 0, again)
    again.end_capture()
    rig.poll()
    assert rig.recorder.counters(0, dropped_frames=0).unseen == (("graph", 1),)


def test_a_wrapper_that_others_put_around_ours_stays(rig: Rig, cupy: Cupy) -> None:
    base = cupy.modules["cupy.cuda.stream"]._BaseStream
    own = base.begin_capture, base.end_capture
    rig.begin()
    ours = base.begin_capture

    def theirs(self: Any) -> Any:
        return ours(self)

    base.begin_capture = theirs
    rig.method_used.stop()
    assert (base.begin_capture, base.end_capture) == (theirs, own[1])
    cupy.stream(5).begin_capture()
    assert cupy.gpu.capturing == {5}


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ((), {}),
        ((64, "stream"), {}),
        ((), {"shared_mem": 64, "stream": "stream"}),
        ((), {"enable_cooperative_groups": False}),
        ((), {"enable_cooperative_groups": True}),
        ((0, None, True, "a later parameter"), {}),
        ((), {"later": "option"}),
    ],
)
def test_a_launch_passes_on_what_the_program_gives(timed: bool, more: tuple[Any, ...], named: dict[str, Any]) -> None:  # noqa: FBT001
    class Function:
        __slots__ = ()

        def __call__(
            self,
            grid: Any,
            block: Any,
            args: Any,
            shared_mem: int = 0,
            stream: Any = None,
            enable_cooperative_groups: bool = False,  # noqa: FBT001, FBT002
            *later: Any,
            **others: Any,
        ) -> Any:
            return grid, block, args, shared_mem, stream, enable_cooperative_groups, later, others

        linear_launch = __call__

    kernels, timer = TracedKernels(), EventTimer(None, lambda: None)
    probed = probed_function(Function, LaunchObserver(None, lambda: None, kernels, timer, SamplingBucket(0)))()
    probed.traced = Traced("kernel", 0)
    if timed:
        probed.traced.sample_at = 1
    given = ((8,), (128,), ("a",), *more)
    assert probed(*given, **named) == Function()(*given, **named)
    assert probed.traced.launched == 1
