"""Reasons to pause trials: files that the node's exporter writes (alerts, policy), and a checkpoint of the program."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, time
from typing import Final

from kernelcast.probe.recording import regions
from kernelcast.wire.tuning.orders import ANY, MAX_FILE_BYTES, reasons_in
from kernelcast.wire.tuning.pauses import CHECKPOINT, PAUSED_FILE, SPACES_FILE

# Shortest time between two reads of a file, because every step asks.
READ_SECONDS: Final = 0.5
# An older file is ignored: the exporter renews its files every minute, so that one has ended.
ABANDONED_SECONDS: Final = 3600.0


class ProgramFile:
    """Reads a file of programs and reasons, at most twice a second. For any thread.

    In a file the line of the program counts before that of `*`; an empty reason exempts the program.

    Args:
        paths: Paths of the file; the first with a reason for the program counts.
        program: The program.
        clock: Monotonic seconds.
    """

    def __init__(self, paths: Iterable[Path], program: str, clock: Callable[[], float]) -> None:
        self._paths = tuple(map(str, paths))
        self._program = program
        self._clock = clock
        self._read_at = -READ_SECONDS
        self._reason = ""

    def reason(self) -> str:
        """Return the reason for this program; empty if no file names it."""
        now = self._clock()
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._reason = next(filter(None, map(self._read, self._paths)), "")
        return self._reason

    def _read(self, path: str) -> str:
        if not os.path.exists(path):  # noqa: PTH110  cheaper by far
            return ""
        try:
            if time() - os.stat(path).st_mtime > ABANDONED_SECONDS:  # noqa: PTH116  cheaper by far
                return ""
            with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  cheaper by far
                reasons = reasons_in(file.read(MAX_FILE_BYTES))
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        return reasons.get(self._program, reasons.get(ANY, ""))


class CheckpointWatch:
    """Finds steps that a checkpoint made longer. Whoever measures steps has one of its own."""

    def __init__(self) -> None:
        self._checkpoint = regions.table.totals(CHECKPOINT)
        self._wall_ns = self._checkpoint.wall_ns

    @property
    def is_open(self) -> bool:
        """Whether this thread or task is writing a checkpoint."""
        return regions.inside(self._checkpoint)

    def in_step(self) -> bool:
        """Whether a checkpoint was written since the last call, or is being written; asked once for each step."""
        before, self._wall_ns = self._wall_ns, self._checkpoint.wall_ns
        return self._wall_ns != before or self.is_open


class PauseChecks:
    """Finds whether trials are paused.

    Args:
        directories: Folders in which the files may be; empty names are left out.
        program: The program.
        clock: Monotonic seconds.
    """

    def __init__(
        self, directories: Iterable[str] = (), program: str = "", clock: Callable[[], float] = monotonic
    ) -> None:
        folders = [Path(one) for one in dict.fromkeys(directories) if one]
        self._all = ProgramFile([folder / PAUSED_FILE for folder in folders], program, clock)
        self._spaces = ProgramFile([folder / SPACES_FILE for folder in folders], program, clock)
        self._checkpoints = CheckpointWatch()

    def reason(self) -> str:
        """Return why no trial may go on now; empty if it may. Cheap enough for every step."""
        return "a checkpoint is being written" if self._checkpoints.is_open else self._all.reason()

    def spaces(self) -> str:
        """Return why no configuration of a space may be tried now; empty if it may."""
        return self.reason() or self._spaces.reason()

    def at_boundary(self) -> str:
        """Return `reason`, or that the step which has just ended wrote a checkpoint; once for each step."""
        was_written = self._checkpoints.in_step()
        return self.reason() or ("a checkpoint was written" if was_written else "")
