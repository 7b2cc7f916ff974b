"""A badly tuned program that lets itself be tuned: `python -m kernelcast.probe.example`.

It relaxes a heated plate in blocks of 48, which is too small and no multiple of 32, and registers the block size as a
tunable. A hint that reaches it through the node's exporter is tried, measured, and kept if it helps.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kernelcast import probe
from kernelcast.probe.stencil import BLOCK_SIZES, SIGNATURE, Plate, StencilLaunch, best_plate
from kernelcast.wire.events import Outcome

SWEEPS_PER_STEP: Final = 2
STEP_SECONDS: Final = 0.04
"""Steps start this far apart, so that the example does not keep a core busy."""
REPORT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of a run; None for no limit."""

    steps: int | None
    seconds: float | None

    def reached(self, steps: int, seconds: float) -> bool:
        """Whether it is time."""
        return (self.steps is not None and steps >= self.steps) or (
            self.seconds is not None and seconds >= self.seconds
        )


class Example:
    """The program: steps of sweeps until a limit or a signal ends it.

    Args:
        plate: The grid that is computed.
        running: The probe.
        block: The tunable.
    """

    def __init__(self, plate: Plate, running: probe.Probe, block: probe.Tunable[int]) -> None:
        self._plate = plate
        self._probe = running
        self._block = block
        self._said: set[tuple[str, str]] = set()
        self._sweep_ns = 0
        self._sweeps = 0

    def run(self, limits: RunLimits, stopping: threading.Event) -> None:
        """Step until a limit or the event."""
        began = reported = time.monotonic()
        steps = 0
        while not stopping.is_set() and not limits.reached(steps, time.monotonic() - began):
            next_step = time.monotonic() + STEP_SECONDS
            self._step()
            steps += 1
            for outcome in self._probe.outcomes:
                self._say_once(outcome)
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                self._say_state(steps)
            stopping.wait(max(0.0, next_step - time.monotonic()))
        self._say_state(steps)

    def _step(self) -> None:
        for _ in range(SWEEPS_PER_STEP):
            sweep: StencilLaunch = self._plate.sweep(self._block.value)
            probe.observe(SIGNATURE, sweep.duration_ns, grid=sweep.grid, block=sweep.block, registers=sweep.registers)
            self._sweep_ns += sweep.duration_ns
            self._sweeps += 1
        probe.step()

    def _say_state(self, steps: int) -> None:
        if self._sweeps:
            mean_ms = self._sweep_ns / self._sweeps / 1e6
            say(
                f"step {steps}: block_size {self._block.value}, {mean_ms:.3f} ms a sweep, heat {self._plate.heat():.1f}"
            )
        self._sweep_ns = self._sweeps = 0

    def _say_once(self, outcome: Outcome) -> None:
        key = (outcome.hint_id, outcome.state.value)
        if key in self._said:
            return
        self._said.add(key)
        measured = "" if outcome.measured_ratio is None else f", {outcome.measured_ratio:.3f} times the time"
        reason = f" ({outcome.reason})" if outcome.reason else ""
        say(f"hint {outcome.hint_id}: {outcome.state}, block_size {outcome.value or '-'}{measured}{reason}")


def say(line: str) -> None:
    """One line for the person who watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example with command-line arguments; by default until SIGTERM or Ctrl-C."""
    options = _parser().parse_args(arguments)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))  # the demo starts it with SIGTERM blocked
    plate = best_plate()
    running = probe.start(options.program, source=plate.source, method=plate.method)
    block = probe.tunable("block_size", BLOCK_SIZES, options.block_size, kind="block_size", kernels=[SIGNATURE])
    say(
        f"{running.settings.program}: Jacobi sweeps on {plate.device}, block_size {block.value} of "
        f"{', '.join(block.allowed)}; reports to {running.settings.socket_path}"
    )
    if plate.source:
        say('no GPU is used: its series carry source="simulated"')
    Example(plate, running, block).run(RunLimits(options.steps, options.seconds), stopping)
    probe.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m kernelcast.probe.example", description=__doc__)
    parser.add_argument("--steps", type=int, help="number of steps after which to end")
    parser.add_argument("--seconds", type=float, help="number of seconds after which to end")
    parser.add_argument("--block-size", type=int, default=48, choices=BLOCK_SIZES, help="the value to start with")
    parser.add_argument(
        "--program", default=os.environ.get("KERNELCAST_PROGRAM", "example"), help="the name to report under"
    )
    return parser


if __name__ == "__main__":
    main()
