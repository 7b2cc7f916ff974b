"""The CUPTI method: CUPTI found and asked, totals handed on, other profilers given way, forks and ends survived."""

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest
from tests.service.probe.cupti.double import ENABLE, FLUSH, REGISTER, SMALL, SUBSCRIBE, Double, copied
from tests.service.probe.cupti.records import START_NS, Packer
from tests.support.waiting import wait_for

from kernelcast.probe.cupti import build
from kernelcast.probe.cupti import method as method_used
from kernelcast.probe.cupti.library import KINDS, Cupti
from kernelcast.probe.cupti.method import (
    ACTIVE,
    BACKED_OFF,
    OFF,
    RETURN_SECONDS,
    YIELDED,
    ActivityEnvironment,
    ActivityMethod,
)
from kernelcast.probe.cupti.native import ActivityDecoder
from kernelcast.probe.cupti.watch import ProfilerWatch
from kernelcast.probe.methods.budget import Budget
from kernelcast.probe.methods.environment import MethodEnvironment as MethodMeans
from kernelcast.probe.methods.selection import MethodSelection
from kernelcast.probe.process.demangle import demangled
from kernelcast.probe.process.mappings import mapped_libraries
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.regions import RegionTable


@dataclass
class Stage:
    """A CUPTI method with everything around it a double."""

    folder: Path
    built: Path
    double: Double
    environ: dict[str, str] = field(default_factory=dict)
    modules: dict[str, ModuleType] = field(default_factory=dict)
    maps: str = ""
    seconds: float = 0.0
    rest: float = 0.0
    recorder: Recorder = field(default_factory=Recorder)
    packer: Packer = field(default_factory=Packer)

    def __post_init__(self) -> None:
        watch = ProfilerWatch(self.environ, self.modules, self.libraries)
        environment = ActivityEnvironment(
            self.environ, self.decoder, self.cupti, watch, lambda device: (8, 0), lambda: self.seconds, SMALL, self.rest
        )
        self.method_used = ActivityMethod(self.recorder, environment)

    def libraries(self) -> frozenset[str]:
        maps = self.folder / "maps"
        maps.write_text(self.maps)
        return mapped_libraries(maps)

    def decoder(self) -> ActivityDecoder:
        return ActivityDecoder(copied(self.built / build.LIBRARY_NAME, self.folder))

    def cupti(self, _: Mapping[str, str]) -> Cupti:
        return Cupti(self.double.library)

    def launches(self) -> int:
        return sum(cell.launches for device in self.recorder.devices() for cell in self.recorder.cells(device))

    def launch(self, count: int = 1) -> None:
        self.double.bring([self.packer.kernel("k", START_NS, START_NS + 100)] * count)


@pytest.fixture
def stage(built: Path, double: Double, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, built, double)
    yield stage
    stage.method_used.stop()


def test_it_asks_for_kernels_copies_fills_and_waits_and_stops_asking(stage: Stage) -> None:
    assert stage.method_used.start()
    assert (stage.method_used.state, stage.method_used.reason) == (ACTIVE, "")
    assert stage.double.enabled() == set(KINDS) == {1, 2, 10, 22, 38}
    assert stage.double.library.double_subscribed() == 0, "a subscription that is kept would empty a user's own trace"
    assert stage.double.library.double_latency() == 0, "queueing times cost, so they are asked for apart"
    stage.launch()
    stage.method_used.stop()
    assert stage.double.enabled() == set()
    assert stage.double.library.double_flushes(1) == 1
    assert (stage.method_used.state, stage.launches()) == (OFF, 1)
    stage.method_used.stop()


@pytest.mark.parametrize(("reason", "said"), [("", (ACTIVE, "")), ("no memory", (OFF, "no memory"))])
def test_a_program_that_ends_was_measured_and_one_whose_measuring_ends_is_not(
    stage: Stage, reason: str, said: tuple[str, str]
) -> None:
    stage.method_used.start()
    stage.method_used.stop(reason)
    assert stage.recorder.current is not None
    assert (stage.recorder.current.state, stage.recorder.current.reason) == said


def test_each_tick_collects_complete_buffers_and_passes_them_on(stage: Stage) -> None:
    stage.method_used.start()
    stage.launch(3)
    stage.method_used.tick()
    stage.launch(2)
    stage.method_used.tick()
    assert stage.launches() == 5
    assert stage.double.library.double_flushes(0) == 2
    assert stage.recorder.overhead_ns > 0


def test_the_pause_after_a_report_is_proportional_to_its_cost(built: Path, double: Double, tmp_path: Path) -> None:
    stage = Stage(tmp_path, built, double, rest=1e9)
    assert stage.method_used.start()
    stage.launch()
    stage.method_used.tick()
    stage.launch()
    stage.seconds = 9.9
    stage.method_used.tick()
    assert (stage.launches(), double.library.double_flushes(0)) == (1, 1), "decoded, but not reported yet"
    stage.seconds = 10.0
    stage.method_used.tick()
    assert stage.launches() == 2
    stage.launch()
    stage.method_used.stop()
    assert stage.launches() == 3, "the last word does not wait"


def test_a_kernel_is_reported_with_all_that_is_known_of_its_launch(stage: Stage) -> None:
    ctypes.CDLL("libstdc++.so.6")
    demangled.cache_clear()  # a test before may have asked while no C++ runtime was loaded
    stage.method_used.start()
    kernel = stage.packer.kernel(
        "_Z4gemmPfi",
        START_NS,
        START_NS + 1_000,
        grid=(8, 2, 1),
        block=(256, 1, 1),
        registers=128,
        shared=(1_024, 2_048),
        local=64,
        queued_ns=START_NS - 500,
        graph=5,
    )
    stage.double.bring([kernel])
    stage.method_used.tick()
    (cell,) = stage.recorder.cells(0)
    name, row = cell.name(), stage.recorder.take(cell)
    assert name.signature == "gemm(float*, int)"
    assert (name.grid, name.block, name.registers) == ("8x2x1", "256x1x1", 128)
    assert (name.shared_memory_bytes, name.local_memory_bytes, name.occupancy) == (3_072, 64, 0.25)
    assert (row.launches, row.graph_launches, row.queue_delays, row.queue_delay_ns) == (1, 1, 1, 500)
    (variant,) = stage.recorder.take_variants([cell])
    assert (variant.variant, variant.launches, variant.sum_ns) == ("8x2x1|256x1x1|3072", 1, 1_000)


def test_limits_that_the_program_passes_are_named_in_the_states_reason(stage: Stage) -> None:
    stage.method_used.start()
    kernels = [stage.packer.kernel(f"k{at}", START_NS, START_NS + 1) for at in range(4_094)]
    for begin in (0, 2_000, 4_000):
        stage.double.bring(kernels[begin : begin + 2_000])
        stage.method_used.tick()
    assert (stage.method_used.state, stage.method_used.reason) == (ACTIVE, "")
    for _ in range(2):
        stage.double.bring([stage.packer.kernel("one more", START_NS, START_NS + 1)])
        stage.method_used.tick()
    assert (stage.method_used.state, stage.method_used.reason) == (ACTIVE, method_used.UNNAMED)
    stage.double.bring(kernels)
    stage.method_used.tick()
    assert (stage.method_used.state, stage.method_used.reason) == (
        ACTIVE,
        f"{method_used.UNNAMED}; {method_used.CROWDED}",
    )
    assert stage.recorder.current is not None
    assert stage.recorder.current.reason == stage.method_used.reason


def test_records_that_cupti_will_not_give_are_lost_records(stage: Stage) -> None:
    stage.double.library.double_breaks(10, 21)
    stage.double.library.double_break_walk(1)
    stage.method_used.start()
    stage.launch(100)
    stage.method_used.tick()
    assert (stage.launches(), stage.recorder.dropped_records) == (10, 90)


def test_copies_fills_waits_gaps_and_states_reach_the_recorder(stage: Stage) -> None:
    stage.method_used.start()
    packer = stage.packer
    stage.double.bring(
        [
            packer.copy(1, 100, START_NS, START_NS + 10, source=2),
            packer.copy(2, 200, START_NS + 20, START_NS + 40, source=3, destination=1),
            packer.copy(4, 1, START_NS + 40, START_NS + 41, source=4, destination=2),
            packer.fill(300, START_NS + 50, START_NS + 60),
            packer.sync(3, START_NS, START_NS + 70),
            packer.sync(3, START_NS, START_NS + 5),
        ]
    )
    stage.method_used.stop()
    counters = stage.recorder.counters(0, dropped_frames=0)
    assert counters.memcpy == (
        ("d2h", "false", 200, 1, 20),
        ("d2h", "true", 1, 1, 1),
        ("h2d", "true", 100, 1, 10),
        ("memset", "", 300, 1, 10),
    )
    assert counters.sync == (("stream", 2, 75),)
    assert dict(counters.device_time) == {"copy": 41, "idle": 19}
    assert counters.launch_gaps is not None
    assert (counters.launch_gaps.count, counters.launch_gaps.sum_ns) == (2, 19)


def test_records_that_are_lost_are_counted(stage: Stage) -> None:
    stage.method_used.start()
    stage.double.library.double_take(SMALL.buffers)
    stage.launch(4)
    stage.method_used.tick()
    assert stage.recorder.dropped_records == 4


def test_queueing_times_are_asked_for_before_kernels(stage: Stage) -> None:
    stage.environ["KERNELCAST_CUPTI_LATENCY"] = "1"
    stage.method_used.start()
    assert stage.double.library.double_latency() == 1


@pytest.mark.parametrize(
    ("call", "error", "state", "reason"),
    [
        (SUBSCRIBE, 39, YIELDED, "another profiler has subscribed"),
        (SUBSCRIBE, 15, OFF, r"kernelcast\[cupti12\] for CUDA 12"),
        (ENABLE, 35, OFF, "NVreg_RestrictProfilingToAdminUsers=0"),
        (REGISTER, 999, OFF, "answered 999"),
    ],
)
def test_a_refusal_becomes_a_reason(stage: Stage, call: int, error: int, state: str, reason: str) -> None:
    stage.double.library.double_answer(call, error)
    assert not stage.method_used.start()
    assert stage.method_used.state == state
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(stage.method_used.reason)
    assert stage.double.enabled() == set()
    expected = 1 if state == YIELDED else 0
    assert wait_for(lambda: threads_called("kc-cupti") == expected), "joined threads are listed a moment longer"
    status = stage.recorder.current
    assert status is not None
    assert (status.method, status.state) == ("cupti", state)


def threads_called(name: str) -> int:
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count(name)


def test_an_error_while_running_ends_the_probe_and_the_program_continues(stage: Stage) -> None:
    stage.method_used.start()
    stage.double.library.double_answer(FLUSH, 7)
    stage.method_used.tick()
    assert stage.method_used.state == OFF
    assert "cuptiActivityFlushAll answered 7" in stage.method_used.reason
    assert stage.double.enabled() == set()
    stage.method_used.tick()
    stage.method_used.stop()


def test_a_last_flush_that_fails_loses_no_decoded_total_and_leaves_no_wrapper_behind(stage: Stage) -> None:
    module = torch_profiler([], stage.double)
    own = module._prepare_profiler
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.start()
    stage.launch(3)
    stage.double.library.double_answer(FLUSH, 7)
    stage.method_used.stop()
    assert stage.launches() == 3
    assert module._prepare_profiler is own
    assert (stage.method_used.state, stage.double.enabled()) == (OFF, set())
    assert stage.method_used.reason.startswith("cuptiActivityFlushAll answered 7")


def test_records_before_an_error_are_reported_by_stop(stage: Stage) -> None:
    stage.method_used.start()
    stage.launch(3)
    stage.double.library.double_answer(FLUSH, 7)
    stage.method_used.tick()
    assert stage.double.library.double_flushes(1) == 1, "the buffers in use are completed, too"
    stage.method_used.stop()
    assert stage.launches() == 3
    assert stage.method_used.state == OFF


def test_a_flush_that_fails_for_a_profiler_keeps_neither_it_nor_ours_from_running(stage: Stage) -> None:
    module = torch_profiler([], stage.double)
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.start()
    stage.double.library.double_answer(FLUSH, 7)
    module._prepare_profiler()
    stage.method_used.tick()
    assert (stage.method_used.state, stage.double.enabled()) == (YIELDED, {10})
    module._disable_profiler()
    stage.double.library.double_answer(FLUSH, 0)
    stage.method_used.tick()
    assert (stage.method_used.state, stage.double.enabled()) == (ACTIVE, set(KINDS))


@pytest.mark.parametrize(
    ("environ", "maps", "reason"),
    [
        ({"CUDA_INJECTION64_PATH": "/x.so"}, "", "CUDA_INJECTION64_PATH is set"),
        ({"NVTX_INJECTION64_PATH": "/x.so"}, "", "NVTX_INJECTION64_PATH is set"),
        ({"NV_NSIGHT_INJECTION_PORT_BASE": "49152"}, "", "Nsight Compute profiles this process"),
        ({"KINETO_USE_DAEMON": "1"}, "", "Kineto takes traces on demand"),
        ({}, "7f0 r-xp /opt/nsys/libToolsInjection64.so\n", "Nsight Systems is loaded"),
        ({}, "7f0 r-xp /opt/parca/libparcagpucupti.so\n", "Parca's GPU profiler is loaded"),
    ],
)
def test_a_tool_that_came_with_the_process_keeps_cupti(
    stage: Stage, environ: dict[str, str], maps: str, reason: str
) -> None:
    stage.environ.update(environ)
    stage.maps = maps
    assert not stage.method_used.start()
    assert (stage.method_used.state, reason in stage.method_used.reason) == (YIELDED, True)
    assert stage.double.library.double_flushes(0) == 0
    stage.method_used.tick()
    assert stage.double.enabled() == set()


def torch_profiler(seen: list[set[int]], double: Double) -> ModuleType:
    """PyTorch's profiler: like Kineto, it keeps its subscription, and registers its callbacks at each start."""
    module = ModuleType("torch.autograd.profiler")
    module._is_profiler_enabled = False  # type: ignore[attr-defined]

    def prepare(*_: object) -> None:
        seen.append(double.enabled())
        double.library.double_another_begins()

    module.__dict__.update(
        _prepare_profiler=prepare,
        _enable_profiler=lambda *_: None,
        _disable_profiler=double.library.double_another_ends,
    )
    return module


def test_pytorchs_profiler_finds_cupti_free_and_ours_comes_back_after_it(stage: Stage) -> None:
    seen: list[set[int]] = []
    module = torch_profiler(seen, stage.double)
    stage.method_used.start()
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.tick()
    stage.launch()
    module._prepare_profiler("config", "activities")
    assert seen == [set()], "our kinds are off before the profiler begins"
    assert stage.double.library.double_flushes(1) == 1
    assert (stage.method_used.state, stage.method_used.reason) == (YIELDED, "PyTorch's profiler runs")
    stage.method_used.tick()
    assert stage.launches() == 1, "earlier records are reported"
    module._enable_profiler()
    stage.launch(7)
    stage.seconds += RETURN_SECONDS
    stage.method_used.tick()
    assert (stage.method_used.state, stage.double.enabled()) == (YIELDED, {10})
    module._disable_profiler()
    stage.method_used.tick()
    assert (stage.method_used.state, stage.double.enabled()) == (ACTIVE, set(KINDS)), "without a wait"
    stage.launch()
    stage.method_used.stop()
    assert (stage.launches(), stage.double.library.double_others_records()) == (2, 7)
    assert not hasattr(module._prepare_profiler, "__wrapped__"), "nothing of ours is left behind"


def test_ten_cycles_of_a_profiler_that_keeps_its_subscription_lose_only_its_own_windows(stage: Stage) -> None:
    """`torch.profiler.schedule` in a loop; Kineto holds CUPTI's subscription from its first use on."""
    module = torch_profiler([], stage.double)
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.start()
    for _ in range(10):
        stage.launch(40)
        module._prepare_profiler()
        module._enable_profiler()
        stage.launch(5)
        stage.method_used.tick()
        module._disable_profiler()
        stage.seconds += 1
        stage.method_used.tick()
        assert (stage.method_used.state, stage.method_used.reason) == (ACTIVE, "")
    stage.method_used.stop()
    assert (stage.launches(), stage.double.library.double_others_records()) == (400, 50)
    assert stage.recorder.dropped_records == 0


def test_a_profiler_that_ran_when_the_probe_began_is_followed_by_ours(stage: Stage) -> None:
    module = torch_profiler([], stage.double)
    stage.modules["torch.autograd.profiler"] = module
    module._prepare_profiler()
    module._is_profiler_enabled = True  # type: ignore[attr-defined]
    assert not stage.method_used.start()
    stage.method_used.tick()
    assert stage.method_used.state == YIELDED
    module._disable_profiler()
    module._is_profiler_enabled = False  # type: ignore[attr-defined]
    stage.method_used.tick()
    assert (stage.method_used.state, stage.double.enabled()) == (ACTIVE, set(KINDS))


def test_an_unknown_client_that_holds_the_subscription_keeps_cupti(stage: Stage) -> None:
    stage.double.library.double_another_subscribes()
    assert not stage.method_used.start()
    for _ in range(3):
        stage.seconds += RETURN_SECONDS
        stage.method_used.tick()
        assert (stage.method_used.state, "subscribed" in stage.method_used.reason) == (YIELDED, True)
    assert stage.double.enabled() == set()


def test_a_profiler_that_will_take_cupti_down_is_waited_for(stage: Stage) -> None:
    """With TEARDOWN_CUPTI=1 Kineto ends CUPTI after its trace, in the program's next call of CUDA: kinds and all."""
    stage.environ["TEARDOWN_CUPTI"] = "1"
    module = torch_profiler([], stage.double)
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.start()
    module._prepare_profiler()
    module._disable_profiler()
    stage.method_used.tick()
    assert (stage.method_used.state, "subscribed" in stage.method_used.reason) == (YIELDED, True)
    stage.double.library.double_another_unsubscribes()
    stage.seconds += RETURN_SECONDS
    stage.method_used.tick()
    assert stage.method_used.state == ACTIVE


def test_a_profiler_found_running_is_left_alone(stage: Stage) -> None:
    stage.method_used.start()
    module = torch_profiler([], stage.double)
    module._is_profiler_enabled = True  # type: ignore[attr-defined]
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.tick()
    assert stage.method_used.state == YIELDED
    assert stage.double.enabled() == set(KINDS), "they are the other's kinds now"
    assert stage.double.library.double_flushes(0) == 0
    stage.method_used.stop()
    assert stage.double.enabled() == set(KINDS)


CUPTIS_OWN = {5: 0, 0: 3_200_000, 2: 250, 4: 250}
OURS = {5: 1, 0: 3_200_000, 2: 32, 4: 32}
"""Attributes as CUpti_ActivityAttribute numbers them: buffers of zeros, size and number of buffers on the device."""


def attributes(stage: Stage) -> dict[int, int]:
    return {number: stage.double.attribute(number) for number in OURS}


def test_memory_on_the_device_is_bounded_and_buffers_are_ours_to_clear_while_we_measure(stage: Stage) -> None:
    seen: list[dict[int, int]] = []
    module = torch_profiler([], stage.double)
    theirs = module._prepare_profiler

    def prepare() -> None:
        seen.append(attributes(stage))
        theirs()

    module._prepare_profiler = prepare  # type: ignore[attr-defined]
    stage.modules["torch.autograd.profiler"] = module
    assert attributes(stage) == CUPTIS_OWN
    stage.method_used.start()
    assert attributes(stage) == OURS
    assert OURS[2] * 4 * 1024 * 1024 == 128 * 1024 * 1024
    module._prepare_profiler()
    assert (seen, attributes(stage)) == ([CUPTIS_OWN], CUPTIS_OWN), "another client's buffers are not zeros"
    stage.launch(3)
    module._disable_profiler()
    stage.method_used.tick()
    assert attributes(stage) == OURS
    stage.launch(3)
    stage.method_used.stop()
    assert (attributes(stage), stage.launches()) == (CUPTIS_OWN, 3)
    assert stage.double.library.double_late_attributes() == 0, "before the kinds"
    assert stage.double.library.double_dirty_buffers() == 0


def test_buffers_come_back_clear_however_often_they_are_used(stage: Stage) -> None:
    stage.method_used.start()
    for _ in range(3):
        stage.launch(10_000)
        stage.method_used.tick()
    stage.method_used.stop()
    assert stage.double.library.double_dirty_buffers() == 0
    assert stage.launches() == 3 * 10_000


@pytest.mark.parametrize("attribute", OURS)
def test_an_attribute_that_cupti_refuses_is_no_error(stage: Stage, attribute: int) -> None:
    stage.double.library.double_refuse_attribute(attribute, 27)
    assert stage.method_used.start()
    assert attributes(stage) == OURS | {attribute: CUPTIS_OWN[attribute]}
    stage.launch(3)
    stage.method_used.stop()
    assert (stage.launches(), attributes(stage)) == (3, CUPTIS_OWN)


def test_a_profiler_found_running_has_its_attributes_back(stage: Stage) -> None:
    stage.method_used.start()
    module = torch_profiler([], stage.double)
    module._is_profiler_enabled = True  # type: ignore[attr-defined]
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.tick()
    assert attributes(stage) == CUPTIS_OWN


@pytest.mark.parametrize(("version", "refused"), [(26, 0), (28, 1)])
def test_before_version_27_cupti_is_never_refused_a_buffer(stage: Stage, version: int, refused: int) -> None:
    """It would end the program; the records in a spare buffer are lost."""
    stage.double.library.double_version(ctypes.c_uint32(version))
    stage.method_used.start()
    stage.double.library.double_take(SMALL.buffers)
    assert (not stage.double.library.double_take(1)) == bool(refused)
    stage.launch(400)
    stage.method_used.tick()
    assert stage.launches() == 0
    assert stage.recorder.dropped_records >= 400
    stage.method_used.stop()
    assert (not stage.double.library.double_take(1)) == bool(refused), "a thread that launches may ask late"


def test_an_incomplete_record_keeps_its_buffer_until_it_is_complete(stage: Stage) -> None:
    stage.method_used.start()
    kernel = stage.packer.kernel("k", START_NS, START_NS + 100)
    stage.double.hold(kernel, kernel)
    stage.double.hold(kernel, kernel, incomplete=True)
    stage.method_used.tick()
    assert stage.launches() == 2
    stage.double.library.double_finish()
    stage.method_used.tick()
    assert stage.launches() == 4
    assert stage.recorder.timeless_records == 0


def test_a_record_without_a_time_is_counted_and_many_of_them_back_the_method_off(stage: Stage) -> None:
    """CUPTI writes 0 for both times where it has none."""
    method, packer = stage.method_used, stage.packer
    kernel, timeless = packer.kernel("k", START_NS, START_NS + 100), packer.kernel("k", 0, 0)
    method.start()
    stage.double.bring([kernel] * 400 + [timeless] * 400)
    method.tick()
    assert (method.state, method.untimed_ratio) == (ACTIVE, 0), "too few to judge"
    stage.double.bring([kernel] * 990 + [timeless] * 10)
    method.tick()
    assert (method.state, method.untimed_ratio) == (ACTIVE, 0.01)
    stage.double.bring([kernel] * 1_940 + [timeless] * 60)
    method.tick()
    assert (method.state, method.untimed_ratio) == (BACKED_OFF, 0.03)
    assert method.reason == "kernels are measured for 1 s in 10: 3% of CUPTI's records have no usable time"
    status = stage.recorder.current
    assert status is not None
    assert (status.method, status.state, status.reason) == ("cupti", BACKED_OFF, method.reason)
    assert stage.launches() == 3_800
    assert stage.recorder.timeless_records == 400 + 10 + 60
    stage.double.bring([kernel] * 2_000)
    method.tick()
    assert method.untimed_ratio == 0
    method.stop()
    counters = stage.recorder.counters(0, dropped_frames=0)
    assert (counters.untimed_records, counters.dropped_records) == (470, 0)
    assert sum(cell.durations.count for cell in stage.recorder.cells(0)) == 5_800 - 470


def test_who_backed_off_yields_and_ends_as_ever(stage: Stage) -> None:
    module = torch_profiler([], stage.double)
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.start()
    stage.double.bring([stage.packer.kernel("k", 0, 0)] * 2_000)
    stage.method_used.tick()
    assert stage.method_used.state == BACKED_OFF
    module._prepare_profiler()
    assert (stage.method_used.state, stage.double.enabled()) == (YIELDED, {10})
    module._disable_profiler()
    stage.method_used.tick()
    assert (stage.method_used.state, stage.method_used.untimed_ratio) == (BACKED_OFF, 0), "it is not calm yet"
    assert stage.double.enabled() >= {1, 2, 10, 22}
    stage.double.bring([stage.packer.kernel("k", 0, 0)] * 2_000)
    stage.method_used.tick()
    stage.method_used.stop()
    assert (stage.method_used.state, stage.double.enabled(), stage.launches()) == (OFF, set(), 4_000)


def test_an_error_of_the_users_profiler_is_the_users(stage: Stage) -> None:
    module = torch_profiler([], stage.double)

    def fail() -> None:
        raise RuntimeError("theirs")

    module._prepare_profiler = fail  # type: ignore[attr-defined]
    stage.modules["torch.autograd.profiler"] = module
    stage.method_used.start()
    with pytest.raises(RuntimeError, match="theirs"):
        module._prepare_profiler()
    assert stage.method_used.state == YIELDED


def test_jaxs_profiler_server_keeps_cupti(stage: Stage) -> None:
    module = ModuleType("jax._src.profiler")
    module._profiler_server = object()  # type: ignore[attr-defined]
    stage.modules["jax._src.profiler"] = module
    assert not stage.method_used.start()
    assert "JAX's profiler server runs" in stage.method_used.reason


def test_a_forked_child_makes_no_calls(stage: Stage) -> None:
    stage.method_used.start()
    before = stage.double.library.double_flushes(0)
    child = os.fork()
    if child == 0:
        stage.method_used.forked()
        stage.method_used.tick()
        stage.method_used.stop()
        silent = stage.double.library.double_flushes(0) == before and stage.double.enabled() == set(KINDS)
        os._exit(0 if silent and stage.method_used.state == OFF else 1)
    assert os.waitpid(child, 0)[1] == 0
    stage.launch()
    stage.method_used.tick()
    assert stage.launches() == 1


def test_a_profiler_that_starts_while_a_tick_hangs_waits_a_moment_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method_used, "LOCK_SECONDS", 0.01)
    stage.method_used.start()
    with stage.method_used._lock:
        asked = threading.Thread(target=stage.method_used.yield_to_profiler, args=("it",))
        asked.start()
        asked.join(5)
        assert not asked.is_alive()
    assert stage.method_used.state == ACTIVE


def test_the_selection_takes_it_where_it_is_asked_for_and_lets_it_go_at_the_end(stage: Stage) -> None:
    surroundings = MethodMeans(
        environ={"KERNELCAST_CUPTI": "1"},
        contexts=lambda: (0,),
        libraries=frozenset,
        modules={},
        cupti=lambda _: stage.method_used,
        budget=Budget(),
        regions=RegionTable(),
    )
    selection = MethodSelection(stage.recorder, "auto", surroundings)
    selection.begin()
    selection.poll()
    assert (selection.method, stage.method_used.state) == ("cupti", ACTIVE)
    stage.launch(3)
    selection.poll()
    assert stage.launches() == 3
    stage.launch()
    selection.finish()
    assert (stage.launches(), stage.method_used.state, stage.double.enabled()) == (4, OFF, set())


def test_the_double_is_found_by_its_path_and_measured(built: Path, tmp_path: Path, double: Double) -> None:
    environ = {"KERNELCAST_CUPTI_LIBRARY": str(double.path), "PATH": ""}
    recorder = Recorder()
    environment = ActivityEnvironment(
        environ,
        lambda: ActivityDecoder(copied(built / build.LIBRARY_NAME, tmp_path)),
        watch=ProfilerWatch({}, {}, frozenset),
    )
    found = ActivityMethod(recorder, environment)
    assert found.start(), found.reason
    found.stop()
