"""Everything that a probe writes for the program's user: lines, the summary at the end, a report file.

`start` makes one `UserMessages`. The probe's thread calls `poll`; the program's thread calls `finish` at its end.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from kernelcast.probe.switch import LAUNCH, REPORT
from kernelcast.probe.terminal.announcement import Announcement
from kernelcast.probe.terminal.role import LaunchRole
from kernelcast.probe.terminal.situation import CALL_STEP, Situation

if TYPE_CHECKING:
    from kernelcast.probe.terminal.summary import RunSummary

REPORT_SECONDS: Final = 5.0
"""Time between two writings of a report, so that a program that is killed leaves one."""

Summarise = Callable[[bool], "RunSummary"]
"""Returns the summary of the run, which has ended or not."""


class UserMessages:
    """Writes for the program's user what this process is to write; never raises.

    Args:
        role: Returns this process's role in the launch; called once there is something to report.
        environ: The process's environment.
        trouble: Returns the reason why there is no exporter beside the program; None where there is to be none.
        write: Writes a line.
        is_terminal: Whether a person reads the lines, in a terminal or a notebook.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        role: Callable[[], LaunchRole],
        environ: Mapping[str, str] = os.environ,
        trouble: Callable[[], str] | None = None,
        write: Callable[[str], None] | None = None,
        is_terminal: Callable[[], bool] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._find_role = role
        self._role: LaunchRole | None = None
        # A person who starts a program with the command, or an exporter beside it, looks at this run.
        self._is_watched = bool(environ.get(LAUNCH)) or trouble is not None
        self._report = environ.get(REPORT, "")
        self._trouble = trouble
        self._write = write or StandardError().write
        self._is_terminal = is_terminal or has_terminal
        self._clock = clock
        self._announcement = Announcement(self._write, clock)
        self._report_at = 0.0

    def poll(self, situation: Situation, summarise: Summarise, *, ends: bool = False) -> float:
        """Write what is due.

        Args:
            situation: State of the probe; `starts_exporter` and `trouble` are added here.
            summarise: Makes the summary for the report.
            ends: The probe's thread ends.

        Returns:
            Seconds until it is to be called again, at the latest.
        """
        if not situation.has_begun:
            return inf
        if self._role is None:
            self._role = self._find_role()
        pause_seconds = inf
        if self._role.is_first_of_node and not self._role.is_quiet:
            if self._trouble is not None:
                situation = replace(situation, starts_exporter=True, trouble=self._trouble())
            pause_seconds = self._announcement.poll(situation, ends=ends)
        if self._report and self._role.is_first_of_job and not ends:
            left_seconds = self._report_at - self._clock()
            if left_seconds <= 0:
                left_seconds = REPORT_SECONDS
                self._report_at = self._clock() + left_seconds
                self._write_report(summarise(False))
            pause_seconds = min(pause_seconds, left_seconds)
        return pause_seconds

    def finish(self, summarise: Summarise) -> None:
        """Write report and summary at the program's end, or the reason for which there are none.

        Imports no module with dataclasses or named tuples: they run `exec`, after which CPython (3.11 to 3.13) has
        forgotten that Ctrl-C ended the program, and exits with 1 in place of SIGINT.
        """
        with suppress(Exception):  # nothing here may reach the program
            if self._role is None:
                self.explain_silence()
            if not self.has_summary:
                return
            run = summarise(True)
            if self._report:
                self._write_report(run)
            if self._shows():
                from kernelcast.probe.terminal.box import box  # noqa: PLC0415  for the first process of a job only

                self._write("\n".join(box(run, _terminal_columns(_stderr_file()[0]))))

    @property
    def has_summary(self) -> bool:
        """Whether this process is to write a summary or a report, as far as known."""
        role = self._role
        return self._shows() or (bool(self._report) and role is not None and role.is_first_of_job)

    def _shows(self) -> bool:
        """Whether this process shows the summary at its end."""
        role = self._role
        may_write = role is not None and role.is_first_of_job and not role.is_quiet
        return may_write and self._is_watched and (bool(self._report) or self._is_terminal())

    def explain_silence(self) -> None:
        """Write the reason for which there is neither line, box nor report; nothing after an unhandled error."""
        processes = sys.modules.get("multiprocessing.process")
        is_worker = processes is not None and processes.parent_process() is not None
        if is_worker or hasattr(sys, "last_type"):
            return
        role = self._find_role()
        if role.is_first_of_job and not role.is_quiet and (self._report or self._is_terminal()):
            self._write(no_step_line(self._report))

    def _write_report(self, run: "RunSummary") -> None:
        temporary = f"{self._report}.{os.getpid()}"
        try:
            with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123  a path as the user wrote it
                json.dump(run.as_json(), file, indent=1)
                file.write("\n")
            os.replace(temporary, self._report)  # noqa: PTH105  likewise
        except OSError as error:
            self._write(
                f"kernelcast: the report cannot be written to {self._report}: {error.strerror}; choose another --report"
            )
            self._report = ""


def no_step_line(report: str) -> str:
    """Return the line for a program that has made no step, used no GPU and reported nothing.

    Args:
        report: Path of the requested report; empty for none.
    """
    missing = f", and no report is in {report}" if report else ""
    return f"kernelcast: no step was seen, so nothing was measured{missing}; {CALL_STEP}"


class StandardError:
    """The program's standard error, unless the program has opened another file under its descriptor since."""

    def __init__(self) -> None:
        self._file = _stderr_file()

    def write(self, line: str) -> None:
        """Write a line, if the program has a standard error."""
        with suppress(Exception):  # the program may have put any object there
            file = _stderr_file()
            if file[0] != self._file[0] or file == self._file:
                sys.stderr.write(f"{_wrapped(line, file[0])}\n")
                sys.stderr.flush()


def _wrapped(line: str, descriptor: int) -> str:
    """Break a line between words to the width of a terminal; with a progress bar of tqdm, begin a new line first."""
    columns = _terminal_columns(descriptor)
    if columns is None or "\n" in line:
        return line
    begin = "\n" if "tqdm" in sys.modules else ""
    if columns >= len(line):
        return begin + line
    from textwrap import fill  # noqa: PLC0415  for a terminal only

    return begin + fill(line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _terminal_columns(descriptor: int) -> int | None:
    """Return the width of the terminal that a descriptor leads to; None where that is not known."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None


def _stderr_file() -> tuple[int, int, int]:
    """Return the descriptor of standard error, and device and inode of its file; zeros where it has none."""
    with suppress(Exception):
        number = sys.stderr.fileno()
        status = os.fstat(number)
        return number, status.st_dev, status.st_ino
    return 0, 0, 0


def has_terminal() -> bool:
    """Whether standard error is a terminal, or the output of a cell in a notebook."""
    with suppress(Exception):  # likewise
        return bool(sys.stderr.isatty()) or type(sys.stderr).__module__.partition(".")[0] == "ipykernel"
    return False
