"""Programs that stand still: no progress for longer than their limit, although they live.

`ProbeSession` hands each frame to its `ProgressWatch` on the server's thread; `StandingJudge` decides once an interval,
on the daemon's thread, under the same lock. It also decides when reports stop: then `/proc` says why, as far as the pid
is of this namespace.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelcast.exporter.process_stat import stat_fields
from kernelcast.exporter.totals.report import Standing
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.frames import ENDED, PERSON, PHASES, Counters, KernelRows
from kernelcast.wire.frames.left import LEFT_NAME, stacks_directory
from kernelcast.wire.histogram import BUCKETS_PER_DOUBLING, DurationTotals

TRAINING: Final = frozenset({"", "data", "forward", "backward", "optimizer"})
"""Phases with the limit of training; the others take long by their nature. A program without phases makes steps."""
GAP_MULTIPLE: Final = 10
"""The limit of training, in 99th percentiles of a program's own gaps."""
LONGEST_MULTIPLE_IN_TRAINING: Final = 2
LONGEST_MULTIPLE: Final = 5
"""The limit in the longest gap that a program has come back from, in training and outside of it."""
LONGEST_SECONDS: Final = 600.0
"""Longest gap that raises the limit of training: a program may have hung for longer, and come back."""
FIRST_GAPS: Final = 30
FIRST_STEPS: Final = 3
"""Below these numbers of gaps and of steps nothing is known of a program, and its limit is the long one: a step of many
gaps may have a single long one, such as a pipeline's end."""
MANY_GAPS: Final = 100
"""Below this number of gaps their 90th percentile stands for the 99th."""
SILENT_SECONDS: Final = 4.0
SILENT_INTERVALS: Final = 3
"""Time without a frame after which a process is silent, besides a number of its own intervals between frames."""
STACKS_PAUSE_SECONDS: Final = 3600.0
"""Between two dumps of a process."""
MAX_STACK_FILES: Final = 64
STACKS_MODE: Final = 0o1733
"""Programs of any user create files; only the exporter lists them."""
STOPPED, DISK, SILENT, UNKNOWN = "stopped", "disk", "silent", "unknown"
"""States besides phases; see the catalogue."""
_LOOPBACK: Final = ("localhost:", "127.", "::1:", "[::1]:")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StandingLimits:
    """Shortest limits, in seconds: of training, and of evaluation, checkpoint, compilation and what is not seen."""

    training_seconds: float = 60.0
    long_seconds: float = 600.0


class ProgressWatch:
    """The progress of one process, from its frames. Not thread-safe; the server's lock protects it.

    A gap is the time between two moments of progress as frames show it, once a second: shorter ones are seen as one.

    Args:
        clock: Monotonic seconds.
        wall: Unix nanoseconds.

    Attributes:
        phase: Its phase in the last frame; empty if it is not known.
        standby: Its `Counters.standby`.
        job: Names and values of its place in its job.
        moved_at: Its last progress, by `clock`; None before its first step.
        heard_at: Its last frame, likewise.
        heard_every: Its interval between frames, in seconds; a longer one counts at once, a shorter one by and by.
        asked_at: When it was last asked for its stacks, by `wall`; 0 for never.
        stands: Whether it was judged to stand still, and has made no progress since.
        stacks: File with its stacks then; empty if there was none.
        was_stopped: Whether it was stopped meanwhile, so that the gap is not its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], int] = time.time_ns) -> None:
        self.clock = clock
        self.wall = wall
        self.phase = self.standby = ""
        self.job: dict[str, str] = {}
        self.moved_at: float | None = None
        self.heard_at = clock()
        self.heard_every = 0.0
        self.asked_at = 0
        self.stands = self.was_stopped = False
        self.stacks = ""
        self._progress_ns = 0
        self._steps_before = self._steps = 0
        self._gaps = DurationTotals()
        self._longest: dict[str, float] = {}
        self._timed: dict[tuple[int, int], int] = {}

    def counters(self, frame: Counters) -> None:
        """Note the counters of a device; those of the process are with the device that it used first."""
        now = self.clock()
        self.heard_every = max(now - self.heard_at, 0.9 * self.heard_every)
        self.heard_at = now
        if not frame.steps:
            return
        phase = frame.phase if frame.phase in PHASES else ""
        self._steps = frame.steps
        self._steps_before = self._steps_before or frame.steps
        if frame.progress_ns != self._progress_ns:
            self._progress_ns = frame.progress_ns
            # Its own clock's time to the progress: the wall clock may be set.
            self._move(now - max(0.0, (self.wall() - frame.progress_ns) / NANOSECONDS))
        self.phase, self.standby, self.job = phase, frame.standby, dict(frame.job)

    def kernels(self, frame: KernelRows) -> None:
        """Note totals of kernels: one that has ended is progress."""
        ended = False
        for row in frame.rows:
            key, count = (frame.device, row.kernel), row.durations.count
            ended = ended or self._timed.get(key, 0) < count
            self._timed[key] = count
        if ended and self.moved_at is not None:
            self._move(self.clock())

    def limit(self, limits: StandingLimits) -> float:
        """Seconds without progress from which on the program stands still, in its present phase."""
        longest = self._longest.get(self.phase, 0.0)
        is_known = self._gaps.count >= FIRST_GAPS and self._steps - self._steps_before >= FIRST_STEPS
        if self.phase in TRAINING and is_known:
            own = max(GAP_MULTIPLE * self._usual_gap(), LONGEST_MULTIPLE_IN_TRAINING * min(longest, LONGEST_SECONDS))
            return max(limits.training_seconds, own)
        return max(limits.long_seconds, LONGEST_MULTIPLE * longest)

    def _usual_gap(self) -> float:
        """The 99th percentile of the gaps, or while there are few the 90th; its bucket's upper bound."""
        gaps = self._gaps
        wanted = gaps.count * (0.99 if gaps.count >= MANY_GAPS else 0.9)
        running = gaps.zero_count
        for index in sorted(gaps.buckets):
            running += gaps.buckets[index]
            if running >= wanted:
                return float(2.0 ** ((index + 1) / BUCKETS_PER_DOUBLING))
        return 0.0

    def _move(self, at: float) -> None:
        before, self.moved_at = self.moved_at, at if self.moved_at is None else max(at, self.moved_at)
        if before is not None and not self.was_stopped and self.standby != PERSON:
            gap = self.moved_at - before
            self._gaps.observe(round(gap * NANOSECONDS))
            self._longest[self.phase] = max(gap, self._longest.get(self.phase, 0.0))
        self.was_stopped = False


class StackFiles:
    """The files in which programs write their stacks, beside the socket; programs of all users may write there.

    Args:
        socket_path: The probe's socket.
    """

    def __init__(self, socket_path: Path) -> None:
        self._directory = Path(stacks_directory(str(socket_path)))

    def open(self) -> None:
        """Make the directory, or use that of the last run; without one, programs write nothing."""
        try:
            self._directory.mkdir(STACKS_MODE, exist_ok=True)
            if self._directory.lstat().st_uid != os.geteuid() or not stat.S_ISDIR(self._directory.lstat().st_mode):
                raise PermissionError(f"{self._directory} belongs to another user; remove it")
            self._directory.chmod(STACKS_MODE)
        except OSError as error:
            _log.warning("programs that stand still cannot write their stacks", reason=str(error))

    def written(self, nonce: str, since_ns: int) -> str:
        """Return the path of a process's stacks, if it has written them since a moment; else an empty text."""
        path = self._directory / nonce
        if not since_ns or not LEFT_NAME.fullmatch(nonce):
            return ""
        try:
            status = path.lstat()
        except OSError:
            return ""
        return str(path) if stat.S_ISREG(status.st_mode) and status.st_mtime_ns >= since_ns - NANOSECONDS else ""

    def remove_oldest(self) -> None:
        """Keep the newest files only."""
        try:
            oldest_first = sorted(
                (entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in os.scandir(self._directory)
            )
            for _, path in oldest_first[:-MAX_STACK_FILES]:
                Path(path).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("stacks of programs cannot be removed", reason=str(error))


@dataclass(frozen=True, slots=True)
class JudgedProcess:
    """A process as the judge sees it: names for the log, its pid in this namespace (0 if unknown)."""

    program: str
    rank: str
    nonce: str
    hostname: str
    pid: int
    is_connected: bool


class StandingJudge:
    """Judges each process once an interval. Not thread-safe.

    Args:
        limits: The shortest limits.
        stacks: Where programs write their stacks.
        process_state: Returns the letter of a pid's state in `/proc`; empty if it is not known.
    """

    def __init__(
        self,
        limits: StandingLimits,
        stacks: StackFiles,
        process_state: Callable[[int], str] | None = None,
    ) -> None:
        self._limits = limits
        self._stacks = stacks
        self._process_state = process_state or state_of
        self._judged_at = 0.0
        self._interval_seconds = 0.0

    def begin(self, now: float) -> None:
        """Begin an interval, at a time by the watches' clock."""
        if self._judged_at:
            self._interval_seconds = now - self._judged_at
        self._judged_at = now

    def judge(self, process: JudgedProcess, watch: ProgressWatch, ask: Callable[[], object]) -> Standing | None:
        """Return whether a process stands still; None for one that makes no steps.

        Args:
            process: The process.
            watch: Its progress.
            ask: Asks it for its stacks, once an hour at most: an interval before the limit, so that they are there.
        """
        if watch.moved_at is None:
            return None
        job_id = identity(process, watch.job)
        seconds, limit = self._judged_at - watch.moved_at, watch.limit(self._limits)
        if seconds + self._interval_seconds >= limit:
            self._ask(process, watch, ask)
        if seconds < limit:
            if watch.stands:
                watch.stands = False
                _log.info("program makes progress again", program=process.program, rank=process.rank, job=job_id)
            return Standing(job_id)
        state = self._state(process, watch)
        if not watch.stands:
            watch.stands = True
            watch.stacks = self._stacks.written(process.nonce, watch.asked_at)
            _log.info(
                "program stands still",
                program=process.program,
                rank=process.rank,
                job=job_id,
                state=state,
                seconds=round(seconds),
                limit_seconds=round(limit),
                stacks=watch.stacks or _without_stacks(state),
            )
        return Standing(job_id, state, seconds, watch.stacks)

    def _ask(self, process: JudgedProcess, watch: ProgressWatch, ask: Callable[[], object]) -> None:
        now_ns = watch.wall()
        if process.is_connected and not 0 <= now_ns - watch.asked_at < STACKS_PAUSE_SECONDS * NANOSECONDS:
            watch.asked_at = now_ns
            self._stacks.remove_oldest()
            ask()

    def _state(self, process: JudgedProcess, watch: ProgressWatch) -> str:
        letter = self._process_state(process.pid) if process.pid else ""
        if letter in {"T", "t"}:
            watch.was_stopped = True
            return STOPPED
        if watch.standby == PERSON:
            return PERSON
        if letter == "D":
            return DISK
        if watch.clock() - watch.heard_at >= SILENT_SECONDS + SILENT_INTERVALS * watch.heard_every:
            return SILENT
        return ENDED if watch.standby == ENDED else watch.phase or UNKNOWN


def identity(process: JudgedProcess, job: dict[str, str]) -> str:
    """The identity of a process's job, the same on all of its ranks and on no other job.

    An address of one node is completed by the node's name. A program without a launcher is a job of its own.
    """
    name = job.get("job", "")
    if not name:
        return f"{process.hostname}:{process.pid or process.nonce}"
    return f"{process.hostname}/{name}" if name.startswith(_LOOPBACK) else name


def state_of(pid: int) -> str:
    """Return the letter of a process's state (proc(5)); empty if it cannot be read."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return ""
    return fields[0].decode() if fields else ""


def _without_stacks(state: str) -> str:
    """Why there are no stacks, for the log."""
    reasons = {
        STOPPED: "cannot be dumped: the process is stopped",
        SILENT: "cannot be dumped: the interpreter's lock is held, or the probe's thread gets no time",
    }
    return reasons.get(state, "none: written within the last hour already")
