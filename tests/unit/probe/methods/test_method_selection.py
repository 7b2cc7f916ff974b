"""Selection of the measurement method, and the reported state."""

from collections.abc import Iterator
from math import inf
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.support.probe.cupy_double import Clock, Cupy, installed

from kernelcast.probe.cupti import ActivityMethod
from kernelcast.probe.cupy.method import CupyMethod
from kernelcast.probe.methods.budget import Budget, SamplingLevel
from kernelcast.probe.methods.environment import MethodEnvironment, open_cupti
from kernelcast.probe.methods.selection import MethodSelection
from kernelcast.probe.process.mappings import mapped_libraries
from kernelcast.probe.process.profilers import injected, other_profiler, running, silent_libraries
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.regions import RegionTable


def test_cupti_is_found_by_its_name_in_the_package() -> None:
    assert isinstance(open_cupti(Recorder()), ActivityMethod)


class Cupti:
    """A double of `kernelcast.probe.cupti`."""

    def __init__(self, state: str = "active", reason: str = "") -> None:
        self.state, self.reason = state, reason
        self.cost: tuple[float, ...] = ()
        self.calls: list[str] = []

    def switch(self) -> float:
        self.calls.append("switch")
        return 0.25

    def start(self) -> bool:
        self.calls.append("start")
        return self.state == "active"

    def tick(self) -> None:
        self.calls.append("tick")

    def stop(self, reason: str) -> None:
        self.calls.append(f"stop: {reason}")

    def forked(self) -> None:
        self.calls.append("forked")


class Rig:
    def __init__(
        self, method: str = "auto", *, cupti: Cupti | None = None, may_have_gpu: bool = True, **environ: str
    ) -> None:
        self.clock = Clock()
        self.recorder = Recorder()
        self.contexts: tuple[int, ...] = (0,)
        self.libraries: frozenset[str] = frozenset()
        self.modules: dict[str, Any] = {}
        self.cupti = cupti
        self.budget = Budget()
        self.regions = RegionTable()
        environment = MethodEnvironment(
            environ=environ,
            clock=self.clock,
            contexts=lambda: self.contexts,
            libraries=lambda: self.libraries,
            modules=self.modules,
            cupti=self._cupti,
            cupy=lambda recorder: CupyMethod(recorder, self.clock, lambda: 100.0),
            budget=self.budget,
            regions=self.regions,
            may_have_gpu=lambda: may_have_gpu,
        )
        self.selection = MethodSelection(self.recorder, method, environment)

    def _cupti(self, _recorder: Recorder) -> Cupti:
        if self.cupti is None:
            raise ImportError("no CUPTI here")
        return self.cupti

    def poll(self, seconds: float = 1.0, spent_ns: int = 0) -> tuple[str, str, str]:
        self.clock.pass_seconds(seconds)
        self.recorder.charge(spent_ns)
        self.selection.poll()
        status = self.recorder.current
        return (status.method, status.state, status.reason) if status else ("", "", "")


@pytest.fixture
def cupy() -> Iterator[Cupy]:
    with installed() as double:
        yield double


def test_before_there_is_a_context_nothing_is_logged_or_sent() -> None:
    rig = Rig()
    rig.contexts = ()
    rig.selection.begin()
    assert rig.poll() == ("", "", "")
    assert [rig.recorder.touched, rig.recorder.current] == [False, None]
    rig.contexts = (0,)
    rig.poll()
    assert rig.recorder.touched
    rig.selection.stop()


def test_cupy_is_timed_by_events(cupy: Cupy) -> None:
    rig = Rig()
    rig.selection.begin()
    cupy.compile("raw")
    method, state, reason = rig.poll()
    assert (method, state) == ("event", "active")
    assert reason == "kernels that CuPy had compiled before are not seen"
    assert rig.selection.method == "event"
    rig.selection.stop()


def test_a_program_that_measures_itself_is_left_alone(cupy: Cupy) -> None:
    before = cupy.modules["cupy.cuda.compiler"].function
    for method in ("manual", "my own timers"):
        rig = Rig(method)
        rig.selection.begin()
        assert rig.poll() == ("", "", "")
        assert rig.selection.method == method
        assert cupy.modules["cupy.cuda.compiler"].function is before


def test_a_method_that_sees_nothing_reports_the_reason() -> None:
    rig = Rig()
    rig.modules["torch"] = ModuleType("torch")
    rig.libraries = frozenset({"libcublas.so.12", "libnccl.so.2", "libc.so.6"})
    rig.selection.begin()
    assert rig.poll() == ("count", "off", "not seen without CUPTI: PyTorch, cuBLAS, NCCL")
    assert rig.recorder.devices() == []
    rig.selection.stop()


def test_cupti_is_used_only_where_it_is_asked_for(cupy: Cupy) -> None:
    for rig in (Rig("cupti", cupti=Cupti()), Rig("auto", cupti=Cupti(), KERNELCAST_CUPTI="1")):
        rig.selection.begin()
        assert rig.poll() == ("cupti", "active", "")
        assert rig.cupti is not None
        assert rig.cupti.calls == ["start", "tick"]
        (raw,) = cupy.compile("raw")
        raw((1,), (1,), ())
        rig.poll()
        assert not any(map(rig.recorder.cells, rig.recorder.devices())), "CUPTI sees them, so the hook must not"
        rig.selection.stop()
        assert rig.cupti.calls[-1] == "stop: "
    unasked = Rig("auto", cupti=Cupti())
    unasked.selection.begin()
    assert unasked.poll()[0] == "event"
    unasked.selection.stop()


def test_without_cupti_the_next_method_serves_and_says_why(cupy: Cupy) -> None:
    for rig, why in (
        (Rig("cupti"), "no CUPTI here"),
        (Rig("cupti", cupti=Cupti("off", "not permitted")), "not permitted"),
    ):
        rig.selection.begin()
        method, state, reason = rig.poll()
        assert (method, state) == ("event", "active")
        assert why in reason
        rig.selection.stop()


def test_cupti_that_yields_stays_selected_and_is_said_to() -> None:
    rig = Rig("cupti", cupti=Cupti("yielded", "PyTorch's profiler runs"))
    rig.selection.begin()
    assert rig.poll() == ("cupti", "yielded", "PyTorch's profiler runs")
    rig.selection.stop()


def test_what_cupti_costs_is_judged_by_its_windows_and_never_ends_it(cupy: Cupy) -> None:
    rig = Rig("cupti", cupti=Cupti("backed_off", "kernels are measured for 1 s in 10: decoding took 20% of a core"))
    assert rig.cupti is not None
    rig.cupti.start = lambda: True  # type: ignore[method-assign]
    rig.cupti.cost = (1.01, 1.02, 1.03)
    rig.selection.begin()
    for _ in range(7200):
        seen = rig.poll(spent_ns=15_000_000)
    assert seen == ("cupti", "backed_off", rig.cupti.reason)
    assert rig.recorder.current is not None
    assert rig.recorder.current.cost == (1.01, 1.02, 1.03)
    assert not cupy.gpu.recorded
    rig.selection.stop()


def test_the_switch_keeps_cupti_off_whatever_the_method_is() -> None:
    rig = Rig("cupti", cupti=Cupti(), KERNELCAST_CUPTI="0")
    rig.selection.begin()
    _, _, reason = rig.poll()
    assert rig.cupti is not None
    assert rig.cupti.calls == []
    assert "KERNELCAST_CUPTI is 0" in reason
    rig.selection.stop()


def test_windows_are_switched_between_polls() -> None:
    rig = Rig("cupti", cupti=Cupti())
    rig.selection.begin()
    rig.poll()
    assert rig.cupti is not None
    assert (rig.selection.switch(), rig.cupti.calls[-1]) == (0.25, "switch")
    rig.selection.stop()
    assert rig.selection.switch() == inf


def test_measuring_begins_with_the_context_and_time_before_it_is_not_measured() -> None:
    rig = Rig("cupti", cupti=Cupti())
    rig.contexts = ()
    rig.selection.begin()
    rig.clock.pass_seconds(3)
    assert rig.selection.switch() == 0.05
    rig.contexts = (0,)
    rig.clock.pass_seconds(0.05)
    rig.selection.switch()
    assert rig.cupti is not None
    assert rig.cupti.calls[0] == "start"
    rig.recorder.measured.switch(rig.clock(), measuring=True, waits=True)
    rig.clock.pass_seconds(0.95)
    assert rig.recorder.measured.until(rig.clock()) == (1_000_000_000, 950_000_000, 950_000_000)
    rig.selection.stop()


def test_a_program_that_waits_long_for_its_first_context_is_looked_at_less_often() -> None:
    rig = Rig()
    rig.contexts = ()
    rig.selection.begin()
    rig.clock.pass_seconds(61)
    assert rig.selection.switch() == 0.5


def test_kernels_that_no_method_sees_are_in_no_measured_time() -> None:
    rig = Rig()
    rig.selection.begin()
    rig.poll()
    rig.poll(10)
    assert rig.recorder.measured.until(rig.clock()) == (10_000_000_000, 0, 0)
    rig.selection.stop()


def test_waits_that_the_program_reports_itself_are_measured_without_cupti() -> None:
    rig = Rig()
    rig.selection.begin()
    rig.recorder.sync("stream", 500)
    rig.poll()
    rig.poll(10)
    assert rig.recorder.measured.until(rig.clock()).waits_measured_ns == 11_000_000_000
    rig.selection.stop()


def test_beside_another_profiler_launches_are_only_counted(cupy: Cupy) -> None:
    rig = Rig(NSYS_PROFILING_SESSION_ID="7")
    rig.selection.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    for _ in range(500):
        raw((1,), (1,), ())
    method, state, reason = rig.poll()
    assert (method, state) == ("count", "yielded")
    assert reason.startswith("Nsight Systems records this process (NSYS_PROFILING_SESSION_ID is set)")
    assert not cupy.gpu.recorded
    (cell,) = rig.recorder.cells(0)
    assert cell.launches == 500
    rig.selection.stop()


def test_pytorchs_profiler_is_yielded_to_for_as_long_as_it_runs(cupy: Cupy) -> None:
    rig = Rig()
    profiler = ModuleType("torch.autograd.profiler")
    profiler.__dict__["_is_profiler_enabled"] = True
    rig.modules["torch.autograd.profiler"] = profiler
    rig.selection.begin()
    assert rig.poll()[:2] == ("count", "yielded")
    profiler.__dict__["_is_profiler_enabled"] = False
    assert rig.poll()[:2] == ("event", "active")
    rig.selection.stop()


def test_at_two_per_cent_it_is_off_says_so_once_and_the_hook_is_gone(
    cupy: Cupy, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.selection.begin()
    (raw,) = cupy.compile("raw")
    for _ in range(7):
        method, state, _ = rig.poll(spent_ns=40_000_000)
    assert (method, state) == ("count", "off")
    assert type(raw).__call__ is cupy.modules["cupy.cuda.function"].Function.__call__
    for _ in range(400):
        rig.poll(spent_ns=0)
    assert rig.budget.level is SamplingLevel.QUARTER
    assert rig.poll()[:2] == ("event", "backed_off")
    raw((1,), (1,), ())
    cupy.gpu.finish()
    rig.poll()
    assert sum(cell.launches for cell in rig.recorder.cells(0)) == 1
    assert [record.message for record in caplog.records] == [
        "kernelcast probe took 4.0 % of this program's time and switched itself off; the program runs on"
    ]
    rig.selection.stop()


def test_regions_are_reported_with_every_method() -> None:
    rig = Rig("manual")
    rig.regions.totals("forward").wall_ns += 7
    rig.selection.poll()
    assert rig.recorder.counters(0, dropped_frames=0).regions == (("forward", 0, 0, 7),)


def test_a_forked_child_lets_go_of_everything_without_a_call(cupy: Cupy) -> None:
    rig = Rig("cupti", cupti=Cupti())
    rig.selection.begin()
    (raw,) = cupy.compile("raw")
    rig.poll()
    rig.regions.totals("forward").wall_ns += 7
    rig.selection.forked()
    assert rig.cupti is not None
    assert rig.cupti.calls[-1] == "forked"
    assert type(raw).__call__ is cupy.modules["cupy.cuda.function"].Function.__call__
    assert list(rig.regions.growth(0)) == []


def test_loaded_libraries_are_read_from_the_processs_own_map() -> None:
    found = mapped_libraries()
    assert any(name.startswith("libc.") for name in found)
    assert silent_libraries(frozenset({"libcufft.so.11"})) == ("cuFFT",)
    assert other_profiler({}, frozenset({"libToolsInjection64.so"}), {}) == "Nsight Systems is loaded"
    assert other_profiler({}, frozenset({"libcudart.so.12"}), {}) == ""


@pytest.mark.parametrize("variable", ["NVTX_INJECTION64_PATH", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"])
def test_events_are_kept_out_of_every_recorded_trace(variable: str) -> None:
    assert variable in other_profiler({variable: "/opt/tool"}, frozenset(), {})


def test_jaxs_profiler_is_yielded_to_while_it_records() -> None:
    jax = ModuleType("jax._src.profiler")
    jax.__dict__["_profile_state"] = state = SimpleNamespace(profile_session=object())
    modules = {"jax._src.profiler": jax}
    assert other_profiler({}, frozenset(), modules) == "JAX's profiler runs"
    state.profile_session = None
    assert other_profiler({}, frozenset(), modules) == ""


def test_a_profiler_that_only_waits_does_not_end_the_timing_by_events() -> None:
    environ, libraries = {"KINETO_USE_DAEMON": "1"}, frozenset({"libparcagpucupti.so"})
    jax = ModuleType("jax._src.profiler")
    jax.__dict__["_profiler_server"] = object()
    modules = {"jax._src.profiler": jax}
    assert other_profiler(environ, libraries, modules) == ""
    assert running(modules) == "JAX's profiler server runs"
    assert injected(environ, libraries) == "Kineto takes traces on demand (KINETO_USE_DAEMON is set)"


def test_a_region_before_the_first_kernel_chooses_no_device() -> None:
    rig = Rig("manual")
    rig.contexts = ()
    rig.regions.totals("load data").wall_ns += 7
    rig.selection.poll()
    assert rig.recorder.devices() == []
    rig.recorder.observe("k", 1000, device=3)
    rig.selection.poll()
    assert (rig.recorder.home, rig.recorder.devices()) == (3, [3])
    assert rig.recorder.counters(3, dropped_frames=0).regions == (("load data", 0, 0, 7),)


def test_regions_of_a_program_whose_kernels_are_not_seen_belong_to_the_device_of_its_context() -> None:
    rig = Rig("auto")
    rig.contexts = (3,)
    rig.regions.totals("forward").wall_ns += 7
    rig.selection.poll()
    assert rig.recorder.counters(3, dropped_frames=0).regions == (("forward", 0, 0, 7),)


def test_regions_of_a_program_that_used_no_gpu_are_reported_at_its_end() -> None:
    rig = Rig("manual")
    rig.contexts = ()
    rig.regions.totals("forward").wall_ns += 7
    rig.selection.poll()
    assert rig.recorder.devices() == []
    rig.selection.finish()
    assert rig.recorder.counters(0, dropped_frames=0).regions == (("forward", 0, 0, 7),)


def test_on_a_machine_without_a_gpu_regions_are_reported_at_once() -> None:
    rig = Rig("manual", may_have_gpu=False)
    rig.contexts = ()
    rig.regions.totals("forward").wall_ns += 7
    rig.selection.poll()
    assert rig.recorder.counters(0, dropped_frames=0).regions == (("forward", 0, 0, 7),)
