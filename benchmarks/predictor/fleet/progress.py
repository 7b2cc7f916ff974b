"""Progress of a long run: step, simulated day, faults found, pages, and the time that is left."""

import time
from collections.abc import Callable
from typing import Final, TextIO

from benchmarks.predictor.fleet.engine import Change
from benchmarks.predictor.fleet.layout import DAY_STEPS
from benchmarks.predictor.fleet.recording import Recording
from benchmarks.predictor.fleet.score import score

ON_TERMINAL_SECONDS: Final = 3.0
IN_LOG_SECONDS: Final = 60.0


class Progress:
    """Prints a line every few seconds on a terminal, or every minute into a log.

    Args:
        stream: Where the lines go.
        clock: Seconds that pass.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._on_terminal = stream.isatty()
        self._every = ON_TERMINAL_SECONDS if self._on_terminal else IN_LOG_SECONDS
        self._began = self._last = clock()

    def show(self, seed: int, recording: Recording, done: tuple[int, int], changes: list[Change]) -> None:
        """Print a line if it is time.

        Args:
            seed: Of the fleet.
            recording: The fleet.
            done: Evaluations so far, and all of them.
            changes: Changes so far.
        """
        now, (count, every) = self._clock(), done
        if now - self._last < self._every:
            return
        self._last = now
        found = score(recording, changes)
        left = (now - self._began) / count * (every - count)
        day = recording.size.days - (every - count) / DAY_STEPS
        line = (
            f"seed {seed}: step {count} of {every}, day {day:.2f}, {found['right']} of {found['faults']} faults found,"
            f" {found['pages']} pages, about {left / 60:.0f} min left"
        )
        self._stream.write(f"\r{line}\x1b[K" if self._on_terminal else f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """End the line on a terminal."""
        if self._on_terminal:
            self._stream.write("\n")
