"""Progress of a start that takes long: one line that names the step, as a sign that it does not hang.

`run.Demo` reports its steps to a `StartProgress`, which writes on the main thread.
"""

import time
from collections.abc import Callable
from typing import Final, TextIO

REWRITE_SECONDS: Final = 0.5
"""Time between two writings of the line on a terminal."""
EVERY_SECONDS: Final = 15.0
"""Time between two lines where there is no terminal; a new step has one at once."""
_ERASE: Final = "\r\x1b[K"


class StartProgress:
    """Writes the present step of a start: in one line on a terminal, which is erased at the end; else in plain lines.

    Args:
        output: Where the line is written.
        width: Columns of the terminal, so that the line does not wrap.
        monotonic: The clock.
    """

    def __init__(self, output: TextIO, *, width: int = 80, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._rewritten = output.isatty()
        self._width = width
        self._monotonic = monotonic
        self._began = monotonic()
        self._written = -EVERY_SECONDS
        self._number = 0

    def report(self, number: int, count: int, step: str) -> None:
        """Take note of the present step: its number, their count, and what it does."""
        now = self._monotonic()
        pause = REWRITE_SECONDS if self._rewritten else EVERY_SECONDS
        if number == self._number and now - self._written < pause:
            return
        self._number, self._written = number, now
        line = f"step {number} of {count}, {now - self._began:.0f} s: {step}"
        self._write(f"{_ERASE}{line[: self._width - 1]}" if self._rewritten else f"{line}\n")

    def end(self) -> None:
        """Erase the line from a terminal."""
        if self._rewritten and self._number:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()
