"""The measurement method that hooks CuPy's launches: `event` where some are timed, `count` where none is.

`MethodSelection` makes it, hooks CuPy by `begin`, and calls `poll` once an interval on the probe's thread.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from time import perf_counter_ns
from typing import Any, Final

from kernelcast.probe.cupy.events import EventTimer, SamplingBucket
from kernelcast.probe.cupy.hook import FunctionStandIn, LaunchObserver, calibrate, probed_function, probed_module
from kernelcast.probe.cupy.launch_facts import LaunchFacts
from kernelcast.probe.cupy.pools import read_pools
from kernelcast.probe.cupy.traced import Traced, TracedConfiguration, TracedKernels
from kernelcast.probe.process.driver import loaded_driver
from kernelcast.probe.process.imports import ImportWatch
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import variant

COMPILER: Final = "cupy.cuda.compiler"
STREAM: Final = "cupy.cuda.stream"
RUNTIME: Final = "cupy_backends.cuda.api.runtime"
DRIVER: Final = "cupy_backends.cuda.api.driver"
SAMPLES_PER_SECOND: Final = 200.0
SAMPLING_RATIO: Final = 0.003
"""Of a program thread's time that timed launches may take, whatever one costs on this machine."""
NANOSECONDS: Final = 1_000_000_000


class CupyMethod:
    """Hooks CuPy when it is imported, and reports launches to the recorder at each poll.

    Args:
        recorder: Receives the totals.
        clock: Monotonic nanoseconds.
        calibrated: Returns the cost of counting one launch, in nanoseconds.
    """

    def __init__(
        self,
        recorder: Recorder,
        clock: Callable[[], int] = perf_counter_ns,
        calibrated: Callable[[], float] = calibrate,
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._calibrated = calibrated
        self._watch = ImportWatch({COMPILER: self._try_to_hook})
        self._compiler: Any = None
        self._function: Any = None
        self._attending = False
        self._unpatch: Callable[[], None] = _nothing
        self._facts: LaunchFacts | None = None
        self._kernels = TracedKernels()
        self._launches: LaunchObserver | None = None
        self.hook_error = ""
        """Why CuPy's launches cannot be seen; empty without an error."""
        self._count_ns = 0.0
        self._charged = (0, 0, 0)
        self._polled_ns = clock()
        self._sampling = self._ratio = 0.0
        self._failed_polls = 0
        self.late = False
        """CuPy had been imported before, so it may hold kernels that are not seen."""

    @property
    def hooked(self) -> bool:
        """Whether CuPy's launches are seen."""
        return self._launches is not None

    @property
    def launched(self) -> int:
        """Launches seen so far."""
        return sum(traced.launched for traced in self._kernels)

    @property
    def failures(self) -> int:
        """Launches that CUDA refused to time, and polls in which CUDA or a memory pool refused something."""
        launches = self._launches
        return self._failed_polls + (launches.failures + launches.timer.failures if launches else 0)

    @property
    def sampled_ratio(self) -> float:
        """Timed launches per launch since the last poll."""
        return self._ratio

    def begin(self) -> None:
        """Hook CuPy now, or when it is imported; on the program's thread."""
        self.late = COMPILER in sys.modules
        self._watch.start()

    def sample(self, share: float) -> None:
        """Time launches at this share of the usual rate; 0 counts only."""
        if bool(share) != bool(self._sampling):
            self._kernels.sample(wanted=share > 0)
        self._sampling = share
        if self._launches is not None:
            self._launches.bucket.rate = self._rate(share)

    def attend(self, *, wanted: bool) -> None:
        """See launches, or give CuPy's own functions back at no cost."""
        if self._function is not None and wanted is not self._attending:
            self._attending = wanted
            (self._function.attend if wanted else self._function.retire)()

    def poll(self) -> None:
        """Report times, counts and memory pools to the recorder; on the probe's own thread."""
        if self._launches is None:
            return
        devices = sorted({traced.device for traced in self._kernels})
        self._report_times(self._launches)
        self._report_counts(self._launches)
        self._charge(self._launches)
        passed_ns = self._clock() - self._polled_ns
        self._polled_ns += passed_ns
        if self._sampling:
            self._guarded(lambda: self._prepare(devices))
            self._launches.bucket.rate = self._rate(self._sampling)
            self._kernels.share_out(self._launches.bucket.rate * passed_ns / NANOSECONDS)
        if devices:
            self._guarded(lambda: read_pools(sys.modules["cupy"], devices, self._recorder))

    def stop(self) -> None:
        """Leave CuPy as it was; functions that it has made launch as ever."""
        self._watch.stop()
        self.attend(wanted=False)
        self._unpatch()
        if self._compiler is not None and isinstance(self._compiler.function, FunctionStandIn):
            self._compiler.function = self._compiler.function.kernelcast_real
        self._compiler = None

    def _prepare(self, devices: Iterable[int]) -> None:
        for device in devices:
            if self._launches is not None:
                self._launches.timer.prepare(device)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run work whose failure costs only its own figure; the state is reported all the same."""
        try:
            work()
        except Exception:  # noqa: BLE001  the program's own error, as an illegal address, shows up here too
            self._failed_polls += 1

    def _try_to_hook(self, compiler: Any) -> None:
        try:
            self._hook(compiler)
        except Exception as error:  # noqa: BLE001  the program's import of CuPy must not fail
            self.hook_error = f"CuPy's launches cannot be seen: {error!r}"

    def _hook(self, compiler: Any) -> None:
        real = compiler.function
        real = getattr(real, "kernelcast_real", real)
        runtime, driver = import_module(RUNTIME), import_module(DRIVER)
        stream = import_module(STREAM)
        timer = EventTimer(runtime, loaded_driver)
        bucket = SamplingBucket(self._rate(self._sampling), self._clock)
        launches = LaunchObserver(runtime, stream.get_current_stream, self._kernels, timer, bucket)
        function = probed_function(real.Function, launches)
        stand_in = FunctionStandIn(real, probed_module(real.Module, function, launches))
        self._count_ns = self._calibrated()
        self._facts = LaunchFacts(driver, runtime)
        launches.configuration = self._configuration
        # Whatever may fail has been done: CuPy is changed as a whole or not at all.
        self._unpatch = _watch_captures(stream, launches)
        self._function, self._attending = function, True
        self._compiler, compiler.function = compiler, stand_in
        self._recorder.launch_counts = self._launch_counts
        self._launches = launches

    def _configuration(self) -> int:
        return self._recorder.configuration

    def _launch_counts(self) -> dict[tuple[int, str], int]:
        """Launches so far by device and kernel; read by the program's thread at the end of a trial's steps."""
        counts: dict[tuple[int, str], int] = {}
        for traced in self._kernels:
            key = (traced.device, traced.printable)
            counts[key] = counts.get(key, 0) + traced.launched
        return counts

    def _report_times(self, launches: LaunchObserver) -> None:
        summed: dict[tuple[Traced, TracedConfiguration, str], tuple[Any, DurationTotals]] = {}
        for sample, duration_ns in launches.timer.finished():
            function, traced, configuration = sample.key
            region = sample.region.name if sample.region else ""
            key = (traced, configuration, region)
            summed.setdefault(key, (function, DurationTotals()))[1].observe(duration_ns)
            self._recorder.sampled(traced.signature, traced.device, duration_ns, sample.configuration)
            if sample.region:
                sample.region.on(traced.device).gpu_ns += duration_ns * sample.weight
        for (traced, configuration, region), (function, durations) in summed.items():
            traced.reported += durations.count
            self._recorder.absorb(
                traced.signature,
                traced.device,
                launches=durations.count,
                durations=durations,
                name=self._facts.name(function, configuration) if self._facts else None,
                variant=_variant(configuration, region),
            )

    def _report_counts(self, launches: LaunchObserver) -> None:
        waiting = Counter(sample.key[1] for sample in launches.timer.pending())
        for traced in self._kernels:
            untimed = traced.launched - traced.reported - waiting[traced]
            if untimed > 0:
                traced.reported += untimed
                # Not `count`: it would add them to the step of a trial, to which `launch_counts` adds them.
                self._recorder.absorb(traced.signature, traced.device, launches=untimed, durations=DurationTotals())
            captured = traced.captured - traced.reported_captured
            if captured:
                traced.reported_captured += captured
                self._recorder.unseen("graph", captured, device=traced.device)

    def _charge(self, launches: LaunchObserver) -> None:
        launched, spent_ns, samples = self.launched, launches.spent_ns, launches.samples
        before, spent_before_ns, samples_before = self._charged
        self._charged = (launched, spent_ns, samples)
        if launched > before:
            self._ratio = min(1.0, (samples - samples_before) / (launched - before))
        self._recorder.charge(round((launched - before) * self._count_ns) + spent_ns - spent_before_ns)

    def _rate(self, share: float) -> float:
        launches = self._launches
        if launches is None or not launches.samples:
            return SAMPLES_PER_SECOND * share
        cost_ns = max(1.0, launches.spent_ns / launches.samples)
        return share * min(SAMPLES_PER_SECOND, SAMPLING_RATIO * NANOSECONDS / cost_ns)


def _variant(configuration: TracedConfiguration, region: str) -> str:
    """The variant of a kernel's launches; its shared memory is the dynamic part that the launch requested."""
    grid, block = ("x".join(map(str, part)) for part in (configuration.grid, configuration.block))
    return variant(grid, block, shared_memory_bytes=configuration.shared, region=region)


def _watch_captures(stream: Any, launches: LaunchObserver) -> Callable[[], None]:
    """Count the captures of graphs through CuPy, so that a launch's stream is queried only while there is one.

    Returns:
        A function that removes the hooks.
    """
    base = stream._BaseStream  # noqa: SLF001  the class of Stream and ExternalStream that has both methods
    begin, end = base.begin_capture, base.end_capture

    def begin_capture(self: Any, *arguments: Any, **named: Any) -> Any:
        result = begin(self, *arguments, **named)
        launches.capturing += 1
        launches.not_captured = 0
        return result

    def end_capture(self: Any, *arguments: Any, **named: Any) -> Any:
        launches.capturing = max(0, launches.capturing - 1)
        return end(self, *arguments, **named)

    wrapped = (("begin_capture", begin_capture, begin), ("end_capture", end_capture, end))

    def undo() -> None:
        for name, ours, original in wrapped:
            if getattr(base, name) is ours:  # not if somebody has wrapped ours since
                setattr(base, name, original)

    for name, ours, _original in wrapped:
        setattr(base, name, ours)
    return undo


def _nothing() -> None:
    return None
