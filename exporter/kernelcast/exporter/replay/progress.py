"""Progress of a replay or a simulation: a bar on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from kernelcast.exporter.delivery.publish import Tally
from kernelcast.exporter.replay.run import FiniteSource, Progress

LINE_SECONDS: Final = 10.0


class ProgressLines:
    """A plain line at first and then at most every ten seconds."""

    def __init__(self, name: str, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._stream = stream
        self._clock = clock
        self._last: float | None = None

    def show(self, source: FiniteSource, tally: Tally) -> None:
        """Write a line if it is time."""
        now = self._clock()
        if self._last is not None and now - self._last < LINE_SECONDS:
            return
        self._last = now
        with suppress(BrokenPipeError):  # who reads a pipe may end before the replay
            self._stream.write(f"{self._name}: {_progress_line(source, tally)}\n")
            self._stream.flush()


class Terminal:
    """A bar that moves."""

    def __init__(self, name: str, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task(name, total=None, text="")

    def show(self, source: FiniteSource, tally: Tally) -> None:
        """Update the bar."""
        total = source.length_seconds if math.isfinite(source.length_seconds) else None
        self._bar.update(self._task, total=total, completed=source.position_seconds, text=_progress_line(source, tally))


@contextmanager
def progress(name: str) -> Iterator[Progress]:
    """Show progress on standard error: a bar on a terminal, else lines."""
    if not sys.stderr.isatty():
        yield ProgressLines(name, sys.stderr)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Terminal(name, bar)


def _progress_line(source: FiniteSource, tally: Tally) -> str:
    length = f" of {source.length_seconds:.1f}" if math.isfinite(source.length_seconds) else ""
    return (
        f"{source.position_seconds:.1f}{length} s, {tally.kernels} kernel launches, {tally.copies} copies, "
        f"{tally.points} points"
    )
