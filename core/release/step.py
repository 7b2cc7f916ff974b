"""Runs a step of `make` and prints one line every few seconds in place of its output, which it prints after a failure.

    python -m release.step "installing packages" -- COMMAND ARGUMENT…

The Makefile runs it before anything is installed, so it imports the standard library alone.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

EVERY_SECONDS: Final = 4.0
"""Time between two lines."""
CHECK_SECONDS: Final = 0.1
WIDTH: Final = 110
"""Characters of a line."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT."""


def report(
    label: str,
    read: Callable[[], str],
    wait: Callable[[float], int | None],
    *,
    write: Callable[[str], object],
    monotonic: Callable[[], float] = time.monotonic,
) -> int:
    """Report a command until it ends.

    Args:
        label: Name of the step.
        read: Returns the command's output so far.
        wait: Waits for some seconds at most; returns the exit code, or None while the command runs.
        write: Receives a line.
        monotonic: The clock.

    Returns:
        The exit code.
    """
    began = written = monotonic()
    write(label)
    while (code := wait(CHECK_SECONDS)) is None:
        if monotonic() - written >= EVERY_SECONDS:
            written = monotonic()
            write(_line(written - began, label, _last_line(read())))
    if code:
        write(read())
    elif monotonic() - began >= EVERY_SECONDS:
        write(_line(monotonic() - began, label, "done"))
    return code


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    label, separator, *command = arguments if len(arguments) > 2 else ("", "")
    if separator != "--":
        sys.stderr.write('usage: python -m release.step LABEL -- COMMAND…; give a label, "--" and a command\n')
        return 2
    with tempfile.NamedTemporaryFile(prefix="kernelcast-step-") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

        def wait(seconds: float) -> int | None:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None

        try:
            return report(label, lambda: Path(output.name).read_text(errors="replace"), wait, write=_write)
        except KeyboardInterrupt:  # Ctrl-C reaches the command, too: both are in the terminal's foreground group
            process.wait()
            return INTERRUPTED


def _line(seconds: float, label: str, state: str) -> str:
    return f"  {seconds:3.0f} s  {label}: {state}"[:WIDTH].rstrip(": ")


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2].strip()


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
