"""Selection of the few series worth a model: screening, baselines, regimes, alarm hysteresis."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.causes.cases import Case
from kernelcast.predictor.causes.judge import Judge
from kernelcast.predictor.causes.regimes import Regimes, WatchReason
from kernelcast.predictor.screening.screen import Screening, ScreenOptions, screen
from kernelcast.predictor.series.subjects import DeviceKey, Subject
from kernelcast.predictor.series.windows import WindowArray, Windows
from kernelcast.predictor.settings import PredictorSettings

CHUNK_ROWS: Final = 4096
"""Rows copied under the lock at a time, so that reading from Kafka never waits long."""

STALE_INTERVALS: Final = 5.0
_CHANGED_RATIO: Final = 0.1
_MANY_KERNELS: Final = 3
_WIDE_SHARE: Final = 0.5


@dataclass
class ScreeningResult:
    """The result of screening all live series once.

    Attributes:
        rows: Live rows.
        generations: Of those rows.
        subjects: The series of each row.
        cases: Flagged series that have no finding yet.
        regimes_begun: Rows for which a new regime began.
    """

    rows: Ints
    generations: Ints
    subjects: list[Subject]
    cases: list[Case] = field(default_factory=list)
    regimes_begun: int = 0

    @cached_property
    def shared(self) -> set[DeviceKey]:
        """GPUs on which several programs run; looked up once, as it takes a pass over all subjects."""
        programs: dict[DeviceKey, set[str]] = {}
        for subject in self.subjects:
            if subject.is_judged_kernel:
                programs.setdefault(subject.device, set()).add(subject.program)
        return {device for device, running in programs.items() if len(running) > 1}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A copy of some rows with their screening, so that the windows' lock is held only while copying."""

    rows: Ints
    newest: Ints
    window: WindowArray
    seen: Screening


class Screener:
    """Screens all live series once per cycle and collects those that are flagged."""

    def __init__(
        self, settings: PredictorSettings, windows: Windows, regimes: Regimes, judge: Judge, lock: threading.RLock
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._regimes = regimes
        self._judge = judge
        self._lock = lock
        self._options = ScreenOptions(settings.min_points, settings.judge.drift_z)
        self._stale_seconds = max(STALE_INTERVALS * settings.interval_seconds, 10.0)

    def screen(self, *, now_seconds: float, redeployed: set[str]) -> ScreeningResult:
        """Screen every series that still reports.

        Args:
            now_seconds: This process's clock.
            redeployed: Programs with a new code version.
        """
        result = self._live_series(now_seconds)
        for program in redeployed:
            result.regimes_begun += self._begin_program(result, program)
        chunks = list(self._chunks(result))
        wide = self._program_wide(result, chunks)
        for chunk, wide_rows in zip(chunks, wide, strict=True):
            flagged = self._flagged(chunk)
            result.cases += self._cases(result, chunk, flagged, wide_rows)
        return result

    def _live_series(self, now_seconds: float) -> ScreeningResult:
        with self._lock:
            rows = self._windows.rows()
            rows = rows[self._windows.touched[rows] >= now_seconds - self._stale_seconds]
            subjects = [one for row in rows.tolist() if (one := self._windows.subject(row)) is not None]
            generations = self._windows.generation[rows]
            self._regimes.sync(rows, generations, subjects)
            self._judge.know_devices(subjects)
        return ScreeningResult(rows, generations, subjects)

    def _begin_program(self, result: ScreeningResult, program: str) -> int:
        rows = self._regimes.program_rows(result.rows, program)
        with self._lock:
            newest = self._windows.newest[rows]
        self._regimes.begin(rows, newest)
        return len(rows)

    def _chunks(self, result: ScreeningResult) -> Iterator[Chunk]:
        watched = result.rows[self._regimes.watch[result.rows] != WatchReason.NOTHING]
        for begin in range(0, len(watched), CHUNK_ROWS):
            rows = watched[begin : begin + CHUNK_ROWS]
            with self._lock:
                window = self._windows.matrix(rows, since=self._regimes.since[rows])
                newest = self._windows.newest[rows]
            self._regimes.learn(rows, window, min_points=self._settings.min_points)
            yield Chunk(rows, newest, window, screen(window, self._options))

    def _flagged(self, chunk: Chunk) -> Bools:
        baseline = self._regimes.baseline[chunk.rows]
        over = chunk.seen.level > baseline * (1 + self._settings.judge.kernel_slowdown_ratio)
        watch = self._regimes.watch[chunk.rows]
        flagged: Bools = (chunk.seen.drift & (watch != WatchReason.CLOCK)) | ((watch == WatchReason.KERNEL) & over)
        return flagged

    def _cases(self, result: ScreeningResult, chunk: Chunk, flagged: Bools, wide: Bools) -> Iterator[Case]:
        seen = chunk.seen
        for index in np.flatnonzero(flagged).tolist():
            at = int(np.searchsorted(result.rows, chunk.rows[index]))
            subject = result.subjects[at]
            yield Case(
                row=int(chunk.rows[index]),
                generation=int(result.generations[at]),
                subject=subject,
                watch=WatchReason(int(self._regimes.watch[chunk.rows[index]])),
                window=chunk.window[index].astype(np.float64),
                newest=int(chunk.newest[index]),
                span=int(seen.span[index]),
                level=float(seen.level[index]),
                slope=float(seen.slope[index]) if seen.drift[index] else 0.0,
                settling=bool(seen.settling[index]),
                drift=bool(seen.drift[index]),
                program_wide=bool(wide[index]),
                shared_device=bool(wide[index]) and subject.device in result.shared,
            )

    def _program_wide(self, result: ScreeningResult, chunks: list[Chunk]) -> list[Bools]:
        """Kernels of programs most of whose kernels changed; a step that they share begins a new regime."""
        if not chunks:
            return []
        rows = np.concatenate([chunk.rows for chunk in chunks])
        level = np.concatenate([chunk.seen.level for chunk in chunks])
        stepped = np.concatenate([chunk.seen.step_age for chunk in chunks])
        newest = np.concatenate([chunk.newest for chunk in chunks])
        judged = (self._regimes.watch[rows] == WatchReason.KERNEL) & np.isfinite(self._regimes.baseline[rows])
        changed = judged & (np.abs(level / self._regimes.baseline[rows] - 1) > _CHANGED_RATIO)
        program = self._regimes.program[rows]
        size = int(program.max(initial=0)) + 1
        kernels = np.bincount(program[judged], minlength=size)
        moved = np.bincount(program[changed], minlength=size)
        whole = (kernels >= _MANY_KERNELS) & (moved >= _WIDE_SHARE * kernels)
        wide = judged & whole[program]
        for number in np.flatnonzero(whole).tolist():
            mine = np.flatnonzero(changed & (program == number))
            with_step = mine[stepped[mine] >= 0]
            if len(with_step) >= _WIDE_SHARE * len(mine) and not self._explained(result, rows[mine]):
                every = np.flatnonzero(judged & (program == number))
                since = newest[every] - int(np.median(stepped[with_step])) + 1
                self._regimes.begin(rows[every], since)
                result.regimes_begun += len(every)
                for index in every.tolist():
                    _forget_finding(chunks, index)
        return np.split(wide, np.cumsum([len(chunk.rows) for chunk in chunks])[:-1])

    def _explained(self, result: ScreeningResult, rows: Ints) -> bool:
        """Whether a lower clock or a second program on the GPU explains it: then it is no deploy."""
        subject = result.subjects[int(np.searchsorted(result.rows, rows[0]))]
        with self._lock:
            return subject.device in result.shared or self._judge.clock_fell_on(subject.device)


def _forget_finding(chunks: list[Chunk], index: int) -> None:
    """Clear the drift and level of a row whose new regime has just begun; both were computed from the old regime."""
    for chunk in chunks:
        if index < len(chunk.rows):
            chunk.seen.drift[index] = False
            chunk.seen.level[index] = np.nan
            return
        index -= len(chunk.rows)
