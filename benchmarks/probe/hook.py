"""Overhead of the probe in a program: a launch, a region, an observation, an interpreter's start, an import.

    python -m benchmarks.probe.hook

The launch calls a function in C that does nothing, so the added time is the hook's own cost. Everything
is processor time, the least of several rounds, so that other programs on the machine matter little. No GPU is needed.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.cupy.events import EventTimer, SamplingBucket
from kernelcast.probe.cupy.hook import LaunchObserver, probed_function
from kernelcast.probe.cupy.traced import Traced, TracedKernels
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.regions import region

LAUNCHES: Final = 200_000
ROUNDS: Final = 7
STARTS: Final = 15
ROOT: Final = Path(__file__).resolve().parents[2]
PATHS: Final = os.pathsep.join(str(ROOT / root) for root in ("core", "exporter"))


class Empty(partial[str]):
    """A double of CuPy's `Function` that launches nothing: a callee in C, as CuPy's is, which takes any arguments."""

    __slots__ = ()
    linear_launch = partial.__call__


class Runtime:
    """A double of CUDA's calls around a timed launch, which costs nothing."""

    made = 0

    def eventCreateWithFlags(self, _flags: int) -> int:  # noqa: N802  CuPy's names
        """A new event."""
        self.made += 1
        return self.made

    def eventRecord(self, _event: int, _stream: int) -> None:  # noqa: N802
        """Nothing is recorded."""

    def eventQuery(self, _event: int) -> int:  # noqa: N802
        """Done."""
        return 0

    def eventElapsedTime(self, _start: int, _end: int) -> float:  # noqa: N802
        """In milliseconds."""
        return 0.1

    def setDevice(self, _device: int) -> None:  # noqa: N802
        """There is one."""

    def streamIsCapturing(self, _stream: int) -> bool:  # noqa: N802
        """Never."""
        return False


class Stream:
    """The current stream."""

    ptr = 0


def no_driver() -> Any:
    """Fail like a load of the driver where there is none."""
    raise OSError


def probed(runtime: Any) -> tuple[Any, LaunchObserver]:
    """A function with the hook, and its observer."""
    launches = LaunchObserver(runtime, Stream, TracedKernels(), EventTimer(runtime, no_driver), SamplingBucket(1e12))
    function = probed_function(Empty, launches)("".format)
    function.traced = Traced("benchmark", 0)
    return function, launches


def nanoseconds(work: Callable[[], object], calls: int) -> float:
    """The smallest time per call of several rounds; `work` makes `calls` calls."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        work()
        rounds.append((time.thread_time_ns() - began) / calls)
    return min(rounds)


def launching(function: Any) -> Callable[[], None]:
    """Returns a function that makes LAUNCHES launches as `cupy.RawKernel` does."""

    def launch() -> None:
        grid, block, args = (8,), (128,), ()
        for _ in range(LAUNCHES):
            function(grid, block, args, enable_cooperative_groups=False)

    return launch


def launching_linear(function: Any) -> Callable[[], None]:
    """Returns a function that makes LAUNCHES launches as CuPy's elementwise kernels do."""

    def launch() -> None:
        for _ in range(LAUNCHES):
            function.linear_launch(1024, (), 0, 128)

    return launch


def timed_launches() -> float:
    """The time of a launch with events around it, including the later work of the probe's thread."""
    function, launches = probed(Runtime())
    launches.timer.prepare(0)

    def launch() -> None:
        for _ in range(LAUNCHES // 200):
            for _ in range(10):
                function.traced.sample_at = 0
                function((8,), (128,), ())
            for _sample in launches.timer.finished():
                pass

    return nanoseconds(launch, LAUNCHES // 20)


def regions() -> float:
    """Entering and leaving."""

    def enter() -> None:
        for _ in range(LAUNCHES // 10):
            with region("benchmark"):
                pass

    return nanoseconds(enter, LAUNCHES // 10)


def observing() -> float:
    """One launch that the program measured itself."""
    recorder = Recorder()

    def observe() -> None:
        for _ in range(LAUNCHES // 10):
            recorder.observe("benchmark", 1000, grid=(8, 1, 1), block=(128, 1, 1))

    return nanoseconds(observe, LAUNCHES // 10)


def starting(code: str, **environ: str) -> float:
    """Milliseconds that an interpreter takes to run a line, without site-packages, the least of several."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KERNELCAST", "PYTHON"))}
    times = []
    for _ in range(STARTS):
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-S", "-c", code], env={**clean, "PYTHONPATH": PATHS, **environ}, check=True)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(1000 * (ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime))
    return min(times)


def line_in_site_packages() -> float:
    """Nanoseconds of the `.pth` line where the variable is not set."""
    line = compile((ROOT / "exporter" / "kernelcast_probe.pth").read_text(), "kernelcast_probe.pth", "exec")
    os.environ.pop("KERNELCAST_PROBE", None)

    def run() -> None:
        for _ in range(10_000):
            exec(line)  # noqa: S102  our own file, as Python's site module does

    return nanoseconds(run, 10_000)


def main() -> None:
    """Print a table."""
    plain = nanoseconds(launching(Empty("".format)), LAUNCHES)
    function, _ = probed(None)
    counted = nanoseconds(launching(function), LAUNCHES)
    linear = nanoseconds(launching_linear(function), LAUNCHES) - nanoseconds(
        launching_linear(Empty("".format)), LAUNCHES
    )
    with region("benchmark"):
        in_region = nanoseconds(launching(function), LAUNCHES)
    type(function).retire()
    retired = nanoseconds(launching(function), LAUNCHES)
    print(f"launch, plain                    {plain:9.0f} ns")
    print(
        f"launch, counted                  {counted:9.0f} ns  (+{counted - plain:.0f} ns, {counted / plain:.1f} times)"
    )
    print(f"launch, elementwise, counted     {'':9}     (+{linear:.0f} ns)")
    print(f"launch, counted within a region  {in_region:9.0f} ns  (+{in_region - plain:.0f} ns)")
    print(f"launch, switched off             {retired:9.0f} ns  (+{retired - plain:.0f} ns)")
    print(f"launch, timed, without CUDA      {timed_launches():9.0f} ns")
    print(f"region, entered and left         {regions():9.0f} ns")
    print(f"observe                          {observing():9.0f} ns")
    print(f".pth line, variable not set      {line_in_site_packages():9.0f} ns")
    bare, armed = (
        starting("pass"),
        starting("from kernelcast.probe.preload import door; door.open_door()", KERNELCAST_PROBE="1"),
    )
    print(f"interpreter start                {bare:9.1f} ms")
    print(f"interpreter start, armed         {armed:9.1f} ms  (+{armed - bare:.1f} ms)")
    print(f"import kernelcast.probe          {starting('import kernelcast.probe') - bare:9.1f} ms")
    print(f"import, and start() looked up    {starting('import kernelcast.probe as p; p.start') - bare:9.1f} ms")


if __name__ == "__main__":
    main()
