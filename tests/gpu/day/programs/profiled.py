"""PyTorch's profiler in a measured program: `profiled URL SECONDS`; URL is the page of the exporter that it reports to.

Kernels have a name for each phase: before the profiler, while it runs, after it. Two graphs are captured, one before
the first switch and one after it.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from tests.gpu.day.names import LAUNCHES, STATE
from tests.gpu.day.node import Exporter, launches, states
from tests.gpu.day.programs.kernels import answer

PROGRAM = "day"
NODES = 20
BEFORE_SECONDS = 20.0
NAMES = ("plain_before", "plain_during", "plain_after", "node_early", "node_late")
CODE = "\n".join(f'extern "C" __global__ void {name}(float* x) {{ x[threadIdx.x] += 1.0f; }}' for name in NAMES)


class Phases:
    """Launches kernels and graphs by name, and counts them."""

    def __init__(self) -> None:
        import cupy

        module = cupy.RawModule(code=CODE)
        self._kernels = {name: module.get_function(name) for name in NAMES}
        self._x = cupy.zeros(32, dtype=cupy.float32)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._graphs: dict[str, Any] = {}
        self.launched = dict.fromkeys(NAMES, 0)

    def plain(self, name: str, count: int) -> None:
        """Launch a kernel."""
        with self._stream:
            for _ in range(count):
                self._kernels[name]((1,), (32,), (self._x,))
        self.launched[name] += count
        self._stream.synchronize()

    def capture(self, name: str) -> None:
        """Capture a graph of a kernel."""
        with self._stream:
            self._stream.begin_capture()
            for _ in range(NODES):
                self._kernels[name]((1,), (32,), (self._x,))
            self._graphs[name] = self._stream.end_capture()

    def replay(self, name: str, count: int) -> None:
        """Launch a graph."""
        with self._stream:
            for _ in range(count):
                self._graphs[name].launch()
        self.launched[name] += count * NODES
        self._stream.synchronize()


def main() -> None:
    """Run the three phases."""
    import torch

    node, phases = Exporter.at(sys.argv[1]), Phases()
    after_seconds = float(sys.argv[2])
    phases.plain("plain_before", 1)  # the first compilation lets the probe begin
    time.sleep(3.0)
    phases.capture("node_early")

    def seen() -> dict[str, int]:
        return launches(node.samples(), PROGRAM, LAUNCHES)

    def work_until(names: tuple[str, ...], seconds: float, work: Callable[[], None]) -> float:
        """Work until the page has more launches of these kernels than at the start; returns the seconds."""
        began, earlier = time.monotonic(), seen()
        while time.monotonic() - began < seconds:
            for _ in range(5):
                work()
                time.sleep(0.1)
            now = seen()
            if all(now.get(name, 0) > earlier.get(name, 0) for name in names):
                break
        return round(time.monotonic() - began, 1)

    def before() -> None:
        phases.plain("plain_before", 100)
        phases.replay("node_early", 5)

    work_until(("plain_before", "node_early"), BEFORE_SECONDS, before)
    truth_before, state_before = dict(phases.launched), states(node.samples(), STATE)
    time.sleep(2.0)
    seen_before = seen()

    early = phases.launched["node_early"]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
        phases.plain("plain_during", 500)
        phases.replay("node_early", 50)
        torch.cuda.synchronize()
    truth_trace = {"plain_during": 500, "node_early": phases.launched["node_early"] - early}
    names = [event.name for event in run.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    trace = {name: sum(each.startswith(name) for each in names) for name in truth_trace}

    phases.capture("node_late")

    def after() -> None:
        phases.plain("plain_after", 100)
        phases.replay("node_early", 5)
        phases.replay("node_late", 5)

    seconds = work_until(("plain_after", "node_early", "node_late"), after_seconds, after)
    time.sleep(2.0)
    samples = node.samples()
    answer(
        truth_before=truth_before,
        seen_before=seen_before,
        state_before=state_before,
        trace=trace,
        truth_trace=truth_trace,
        seen_after=launches(samples, PROGRAM, LAUNCHES),
        truth_after=phases.launched,
        state_after=states(samples, STATE),
        seconds_after=seconds,
    )


if __name__ == "__main__":
    main()
