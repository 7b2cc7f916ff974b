"""Copies of rows' blocks, limits and companions for a cycle, made under a short lock.

All stages of a cycle read the windows through `PanelSource`. A *companion* is another metric of the same GPU, such as
the power beside a temperature.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.cycle.program_changes import TrialBlocks
from kernelcast.predictor.passage.node import node_medians
from kernelcast.predictor.passage.series import SeriesBlocks, Traits
from kernelcast.predictor.series.attributes import NONE, SeriesAttributes
from kernelcast.predictor.series.changes import ChangePoints
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings
from kernelcast.wire.catalogue.devices import device

LEAST_BLOCKS: Final = 48
"""Least blocks in a panel: the detector needs an hour before each moment, also before the first of several."""
_CURRENT_INTERVALS: Final = 30
"""Intervals behind the median within which a series is current; others have ended, and nothing waits for them."""
_BEHIND_SHARE: Final = 0.1
"""Share of the current series that may be behind the common interval, such as those of a slow exporter."""
_MEMORY: Final = (device.FB_FREE.prometheus_name, device.FB_RESERVED.prometheus_name)
"""Parts of the frame buffer besides the used one."""
_USED: Final = device.FB_USED.prometheus_name


@dataclass(frozen=True, slots=True, eq=False)
class PanelSource:
    """The inputs of a cycle: windows, blocks and attributes of rows. Methods take the lock where they need it.

    Attributes:
        windows: The newest intervals.
        histories: Blocks.
        attributes: Of the rows.
        regimes: Number of the regime of each row, besides its process and its code version.
        lock: Protects the windows.
        trials: Blocks in which kernels ran with two values of a tunable.
    """

    windows: Windows
    histories: Histories
    attributes: SeriesAttributes
    regimes: ChangePoints
    lock: threading.RLock
    trials: TrialBlocks

    @property
    def settings(self) -> PredictorSettings:
        """Settings of the predictor as they are now."""
        return self.attributes.settings

    @property
    def block_seconds(self) -> float:
        """Length of a block."""
        return self.histories.block_ns / NANOSECONDS_PER_SECOND

    def subject(self, row: int) -> Subject | None:
        """The series in a row, if there is one; takes the lock."""
        with self.lock:
            return self.windows.subject(row)

    def common_interval(self, newest: Ints) -> int:
        """The newest interval that nearly all current series have.

        Series that have ended do not change it.

        Args:
            newest: Shape (n,), at least one; newest interval of each series.
        """
        ordered: Ints = np.sort(newest)
        current: Ints = ordered[ordered >= ordered[len(ordered) // 2] - _CURRENT_INTERVALS]
        return int(current[int(_BEHIND_SHARE * (len(current) - 1))])

    def common_block(self, newest: Ints) -> int:
        """The newest block that nearly all current series have."""
        return self.common_interval(newest) // self.histories.block_intervals - 1

    def traits(self, rows: Ints) -> Traits:
        """Limits and properties of the rows' metrics as they are now."""
        known = self.attributes
        return Traits(
            limit=self._limits(rows),
            baseline_ratio=known.own_ratio(rows),
            below=known.below[rows],
            resolution=known.column("resolution", rows),
            settling_blocks=known.settling_blocks(rows),
            reserves=known.column("reserved", rows) > 0,
        )

    def blocks(self, rows: Ints, newest: int, *, known_versions: Bools) -> SeriesBlocks:
        """Blocks of rows up to a common newest one.

        Args:
            rows: Shape (n,).
            newest: Number of the last block.
            known_versions: Shape (n,), rows whose program reports its code version.
        """
        mean, median = self.histories.blocks(rows, newest)
        length = mean.shape[1]
        first = np.where(np.isfinite(mean).any(axis=1), np.argmax(np.isfinite(mean), axis=1), length - 1)
        kept = slice(min(int(first.min(initial=length)), length - LEAST_BLOCKS), length)
        started = np.arange(length)[kept] >= first[:, None]
        regime = self.regimes.expand(rows, newest, length)[:, kept]
        # A series that has just appeared is a process in its first minutes.
        process = self.histories.processes(rows, newest)[:, kept] + started + regime
        version = np.where(known_versions[:, None], regime, -1)
        mean, median = self.trials.masked(rows, newest, mean[:, kept], median[:, kept])
        hours = self.histories.hours(rows, newest)
        begun = np.flatnonzero(np.isfinite(hours).any(axis=0))
        kept_hours = slice(int(begun[0]) if len(begun) else hours.shape[1], None)
        last_hour, phase = (np.full(len(rows), one) for one in divmod(newest + 1, self.histories.hour_blocks))
        load, load_hours = self._load(rows, newest)
        by_hour = (hours[:, kept_hours], phase, load_hours[:, kept_hours], last_hour - 1)
        node = self._node(rows, newest, mean)
        return SeriesBlocks(mean, median, load[:, kept], process, version, *by_hour, node)

    def present_process(self, rows: Ints) -> Ints:
        """Number of the process of each row now, counted as in `blocks`."""
        process: Ints = self.histories.latest_processes(rows) + 1 + self.regimes.latest(rows)
        return process

    def recent_mean(self, rows: Ints, newest: Ints) -> Floats:
        """Mean of the intervals of a block up to the newest one of each row; NaN where they do not fill it."""
        width = self.histories.block_intervals
        with self.lock:
            values = self.windows.read(rows, newest, width)
        known = np.isfinite(values)
        count = known.sum(axis=1)
        started = known[:, : max(width // 3, 1)].any(axis=1)
        mean = np.where(known, values, 0.0).sum(axis=1, dtype=np.float64) / np.maximum(count, 1)
        return np.where(started, mean, np.nan)

    def latest(self, metric: str, rows: Ints) -> Floats:
        """Newest values of a companion on the same GPUs, shape (n,); NaN where there is none."""
        with self.lock:
            others = self.attributes.companion(metric, rows, self.windows)
            values = self.windows.latest(np.maximum(others, 0)) if len(others) else np.zeros(0)
        return np.where(others == NONE, np.nan, values)

    def companion_mean(self, metric: str, rows: Ints, newest: Ints) -> Floats:
        """Mean of a companion over the intervals of a block up to an interval of each row; NaN where it has none."""
        with self.lock:
            others = self.attributes.companion(metric, rows, self.windows)
            values = self.windows.read(np.maximum(others, 0), newest, self.histories.block_intervals)
        known = np.isfinite(values) & (others != NONE)[:, None]
        count = known.sum(axis=1)
        mean = np.where(known, values, 0.0).sum(axis=1, dtype=np.float64) / np.maximum(count, 1)
        return np.where(count > 0, mean, np.nan)

    def companion_blocks(self, metric: str, rows: Ints, newest: int) -> Floats:
        """Medians of a companion's blocks, shape (n, b); NaN where there is none."""
        return self._of_companion(metric, rows, lambda others: self.histories.blocks(others, newest)[1])

    def companion_hours(self, metric: str, rows: Ints, newest: int) -> Floats:
        """Hours of a companion, shape (n, h); NaN where there is none."""
        return self._of_companion(metric, rows, lambda others: self.histories.hours(others, newest))

    def _of_companion(self, metric: str, rows: Ints, read: Callable[[Ints], Floats]) -> Floats:
        with self.lock:
            others = self.attributes.companion(metric, rows, self.windows)
        wanted, place = np.unique(others, return_inverse=True)
        blocks = read(np.maximum(wanted, 0))
        blocks[wanted == NONE] = np.nan
        values: Floats = blocks[place]
        return values

    def _node(self, rows: Ints, newest: int, mean: Floats) -> Floats:
        """Medians of the rows' metrics over the GPUs of their nodes, shape (n, b).

        Args:
            rows: Shape (n,).
            newest: Number of the newest block.
            mean: Shape (n, b), means of the rows' blocks.
        """
        with self.lock:
            others = self.attributes.of_same_nodes(rows, self.windows)
            groups = self.attributes.node_metric(np.concatenate([rows, others]))
        means_of_others = self.histories.blocks(others, newest)[0][:, -mean.shape[1] :] if len(others) else mean[:0]
        return node_medians(np.concatenate([mean, means_of_others]), groups)[: len(rows)]

    def _limits(self, rows: Ints) -> Floats:
        known = self.attributes
        limit = known.threshold[rows].copy()
        for number, meaning in enumerate(known.meanings):
            mine = np.flatnonzero((known.meaning[rows] == number) & np.isnan(limit))
            if not len(mine):
                continue
            if meaning.limit is not None:
                limit[mine] = self.latest(meaning.limit.prometheus_name, rows[mine])
            elif meaning.cause == "memory_leak":
                limit[mine] = self.settings.judge.memory_full_ratio * self._capacity(rows[mine])
        return limit

    def _capacity(self, rows: Ints) -> Floats:
        """Size of the frame buffer: used, free and reserved; NaN where the free part is not known."""
        free, reserved = (self.latest(metric, rows) for metric in _MEMORY)
        return self.latest(_USED, rows) + free + np.nan_to_num(reserved)

    def _load(self, rows: Ints, newest: int) -> tuple[Floats, Floats]:
        """Blocks and hours of the rows' load; NaN where they have none."""
        blocks, hours = (
            np.full((len(rows), kept.shape[1]), np.nan)
            for kept in (self.histories.blocks(rows[:0], newest)[0], self.histories.hours(rows[:0], newest))
        )
        for number, meaning in enumerate(self.attributes.meanings):
            mine = np.flatnonzero(self.attributes.meaning[rows] == number)
            if meaning.load is not None and len(mine):
                blocks[mine] = self.companion_blocks(meaning.load.prometheus_name, rows[mine], newest)
                hours[mine] = self.companion_hours(meaning.load.prometheus_name, rows[mine], newest)
        return blocks, hours
