"""Selects the measurement method of this process: the best of three that is possible, allowed and affordable.

CUPTI where it is asked for and can be used; else CuPy's launches, some of them timed by CUDA events; else their counts.
Where none sees anything (PyTorch or JAX without CUPTI) the state says so, and no figure is invented. `Status` frames
report the method in use, the reason, and the share of launches that is timed.
"""

import threading
from logging import getLogger
from math import inf
from typing import Final

from kernelcast.probe.methods.budget import SamplingLevel
from kernelcast.probe.methods.environment import CuptiMethod, MethodEnvironment
from kernelcast.probe.process.profilers import other_profiler, silent_libraries
from kernelcast.probe.recording.recorder import Recorder

METHODS: Final = ("auto", "cupti", "event", "count")
CUPTI_SWITCH: Final = "KERNELCAST_CUPTI"
ACTIVE: Final = "active"
BACKED_OFF: Final = "backed_off"
YIELDED: Final = "yielded"
OFF: Final = "off"
# Longest wait of `stop` for a poll in progress.
STOP_SECONDS: Final = 0.1
# Time between two reads of the list of libraries: a large process's map takes a millisecond.
LIBRARIES_SECONDS: Final = 30.0
NANOSECONDS: Final = 1_000_000_000
# Time between two looks for the program's first context: in the first minute where there may be a GPU, and else.
LOOK_SECONDS: Final = 0.05
LATER_LOOK_SECONDS: Final = 0.5
SOON_NS: Final = 60 * NANOSECONDS
FRAMEWORKS: Final = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}

_log = getLogger("kernelcast.probe")


class MethodSelection:
    """Selects the method, watches its cost and other profilers, and reports its state.

    `begin`, `stop` and `forked` run on the program's thread, `poll` and `finish` on the probe's; a lock orders them.

    Args:
        recorder: Receives the totals.
        method: `auto`, `cupti`, `event`, `count`; anything else leaves measuring to the program.
        environment: The methods, and facts about the process; None makes the usual one.
    """

    def __init__(self, recorder: Recorder, method: str = "auto", environment: MethodEnvironment | None = None) -> None:
        self._recorder = recorder
        self._wanted = method
        self._environment = environment or MethodEnvironment()
        self._cupy = self._environment.cupy(recorder)
        self._cupti: CuptiMethod | None = None
        self._cupti_reason = ""
        self._other = ""
        self._libraries: frozenset[str] = frozenset()
        self._libraries_read_ns: int | None = None
        self._lock = threading.Lock()
        recorder.clock = self._environment.clock
        self._began_ns = self._looked_ns = 0
        self._began = self._awake = self._warned_off = self._finishing = False

    @property
    def has_context(self) -> bool:
        """Whether this process uses a GPU."""
        return bool(self._environment.contexts())

    @property
    def has_seen_context(self) -> bool:
        """Whether a poll has seen that this process uses a GPU; asks no driver."""
        return self._awake

    @property
    def method(self) -> str:
        """The method as far as it is known now, for the program's first frame."""
        if self._cupti is not None:
            return "cupti"
        if self._wanted in {"auto", "cupti"}:
            return "event" if self._cupy.hooked else "manual"
        return self._wanted

    def begin(self) -> None:
        """Hook CuPy now or when it is imported; on the program's thread, without a CUDA call."""
        if self._wanted in METHODS:
            self._began = True
            self._began_ns = self._environment.clock()
            self._cupy.sample(0.0 if self._wanted == "count" else 1.0)
            self._cupy.begin()

    def poll(self) -> None:
        """Report to the recorder; the probe's own thread calls it once an interval."""
        self._environment.each_poll()
        with self._lock:
            self._report_own()
            if self._began and (self._awake or self._wake()):
                self._measure()

    def switch(self) -> float:
        """Do what cannot wait for the next poll: begin with the program's first context, begin and end windows.

        Returns:
            Seconds until it is to be called again.
        """
        with self._lock:
            if not self._began:
                return inf
            if self._awake or self._wake():
                return inf if self._cupti is None else self._cupti.switch()
            is_likely = self._looked_ns - self._began_ns < SOON_NS and self._environment.may_have_gpu()
            return LOOK_SECONDS if is_likely else LATER_LOOK_SECONDS

    def finish(self) -> None:
        """Report the last totals and end; on the probe's own thread."""
        self._finishing = True
        self.poll()
        self.stop()

    def stop(self, longest_seconds: float = STOP_SECONDS) -> None:
        """Remove the hooks; a poll that lasts longer does so at its end. Safe to call twice."""
        if not self._lock.acquire(timeout=longest_seconds):
            return
        try:
            if self._began:
                self._began = False
                self._drop_cupti("")
                self._cupy.stop()
        finally:
            self._lock.release()

    def forked(self) -> None:
        """Reset in a forked child: all totals are the parent's, and no CUDA call may be made."""
        self._lock = threading.Lock()
        self._began = False
        if self._cupti is not None:
            self._cupti.forked()
            self._cupti = None
        self._cupy.stop()
        self._environment.regions.forget()

    def _wake(self) -> bool:
        now_ns = self._environment.clock()
        if not self._environment.contexts():
            self._looked_ns = now_ns
            return False
        self._awake = True
        # Work since the last look was not seen; the time counts as running, and not as measured.
        self._recorder.measured.begin(self._looked_ns or now_ns, measuring=False)
        self._recorder.touch()
        switch = self._environment.environ.get(CUPTI_SWITCH, "").strip().lower()
        if switch in {"0", "false", "no", "off"}:
            self._cupti_reason = f"{CUPTI_SWITCH} is {switch}"
        elif self._wanted == "cupti" or (self._wanted == "auto" and switch in {"1", "true", "yes", "on"}):
            self._start_cupti()
        return True

    def _start_cupti(self) -> None:
        try:
            method_used = self._environment.cupti(self._recorder)
            if method_used.start() or method_used.state == YIELDED:
                self._cupti = method_used
            self._cupti_reason = method_used.reason
        except Exception as error:  # noqa: BLE001  whatever a driver or a library lacks: the next method will do
            self._cupti_reason = f"CUPTI cannot be used: {error}"

    def _drop_cupti(self, reason: str) -> None:
        method_used, self._cupti = self._cupti, None
        if method_used is not None:
            self._cupti_reason = reason
            method_used.stop(reason)

    def _measure(self) -> None:
        self._check_profilers()
        if self._cupti is not None:
            self._cupti.tick()
            if self._cupti.state == OFF:
                self._drop_cupti(self._cupti.reason)
        level = self._judge() if self._cupti is None else SamplingLevel.FULL
        self._apply(level)
        self._cupy.poll()
        self._report(level)

    def _judge(self) -> SamplingLevel:
        """Judge the cost of hooks; CUPTI's own is judged where its windows are chosen."""
        budget, now_ns = self._environment.budget, self._environment.clock()
        before = budget.level
        level = budget.feed(now_ns, self._recorder.overhead_ns)
        if level is SamplingLevel.OFF and before is not level:
            self._warn_off()
        sees_kernels = self._cupy.hooked or any(map(self._recorder.cells, self._recorder.devices()))
        self._recorder.measured.switch(
            now_ns,
            measuring=sees_kernels and level is not SamplingLevel.OFF,
            waits=self._recorder.reports_waits,
        )
        return level

    def _check_profilers(self) -> None:
        environment, now_ns = self._environment, self._environment.clock()
        if self._libraries_read_ns is None or now_ns - self._libraries_read_ns >= LIBRARIES_SECONDS * NANOSECONDS:
            self._libraries_read_ns = now_ns
            self._libraries = environment.libraries()
        self._other = other_profiler(environment.environ, self._libraries, environment.modules)

    def _apply(self, level: SamplingLevel) -> None:
        quiet = self._wanted == "count" or self._other or self._cupti is not None
        self._cupy.sample(0.0 if quiet else level.sampling)
        self._cupy.attend(wanted=level is not SamplingLevel.OFF and self._cupti is None)

    def _report(self, level: SamplingLevel) -> None:
        if self._cupti is not None:
            self._recorder.status("cupti", self._cupti.state, self._cupti.reason, 1.0, self._cupti.cost)
            return
        timing = self._cupy.hooked and self._wanted != "count" and not self._other and level.sampling > 0
        method = "event" if timing else "count"
        self._recorder.status(method, self._state(level), self._reason(level), self._cupy.sampled_ratio)

    def _state(self, level: SamplingLevel) -> str:
        if level is SamplingLevel.OFF or not self._cupy.hooked:
            return OFF
        if self._other and self._wanted != "count":
            return YIELDED
        return ACTIVE if level is SamplingLevel.FULL else BACKED_OFF

    def _reason(self, level: SamplingLevel) -> str:
        parts = [self._other] if self._other else []
        if level is not SamplingLevel.FULL:
            parts.append("measuring took more of the program's time than it may")
        if self._cupti_reason:
            parts.append(self._cupti_reason)
        if self._cupy.hooked and self._cupy.late:
            parts.append("kernels that CuPy had compiled before are not seen")
        if self._cupy.hook_error:
            parts.append(self._cupy.hook_error)
        if self._cupy.failures:
            parts.append("CUDA refused some measurements")
        frameworks = [shown for name, shown in FRAMEWORKS.items() if name in self._environment.modules]
        if hidden := [*frameworks, *silent_libraries(self._libraries)]:
            parts.append(f"not seen without CUPTI: {', '.join(hidden)}")
        return "; ".join(parts)

    def _warn_off(self) -> None:
        if not self._warned_off:
            self._warned_off = True
            _log.warning(
                "kernelcast probe took %.1f %% of this program's time and switched itself off; the program runs on",
                100 * self._environment.budget.off_at,
            )

    def _home(self) -> int | None:
        """The device of the process's own values; None while the program may still choose one."""
        recorder = self._recorder
        if recorder.home is not None and recorder.uses_devices:
            return recorder.home
        contexts = self._environment.contexts()
        if contexts:
            return contexts[0]
        if recorder.progress.steps:  # a step without a GPU: it is reported now, and for a GPU once there is one
            return recorder.home or 0
        return None if self._environment.may_have_gpu() and not self._finishing else 0

    def _report_own(self) -> None:
        """Report what belongs to the process: its steps and its regions."""
        home, recorder = self._home(), self._recorder
        if home is not None and home != recorder.home and recorder.progress.steps:
            recorder.report_on(home)
        for row in self._environment.regions.growth(home):
            recorder.region(row.name, row.launches, row.gpu_ns, row.wall_ns, row.device)
