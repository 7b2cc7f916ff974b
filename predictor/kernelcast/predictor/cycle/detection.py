"""Evaluates all series that have a limit: at the end of each block the detector, in between whether a limit is passed.

`Cycle.run` runs it; results are in `DetectorState`, from which `Publication`, `Claims` and `explain` read them. Time
is event time: each row is evaluated at the ends of its own blocks, in order, whenever they arrive. The detector counts
seconds of which its block has 300; `seconds_scale` converts to event time where blocks are shorter.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.cycle import programs
from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.panels import LEAST_BLOCKS, PanelSource
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.detector import Evaluation
from kernelcast.predictor.passage.run import MIN_BLOCKS, DetectorOptions, limit_passed, run
from kernelcast.predictor.passage.series import BLOCK_SECONDS, SeriesBlocks, Traits, history_length
from kernelcast.predictor.robust import row_medians
from kernelcast.predictor.series.windows import EMPTY
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND

CHUNK_ROWS: Final = 2048
"""Rows evaluated together, which bounds the memory of their two days of blocks."""
CATCH_UP_BLOCKS: Final = 12
"""Blocks evaluated after a gap or a restart: enough for the alert rule to fire."""
DATED_BLOCKS: Final = 72
"""Blocks in which the begin of an alert is looked for that the first evaluation of a series finds: six hours."""
DAY_SECONDS: Final = 86_400.0
"""Farthest horizon of a breach probability in seconds of the detector: 288 blocks."""


class Detection:
    """The detector over all rows. Only the thread that runs cycles uses it.

    Attributes:
        state: Result of the last evaluation of each row.
        regimes_begun: Rows for which a whole program began a new regime, so far.
    """

    def __init__(self, source: PanelSource) -> None:
        self._source = source
        self._scale = source.histories.block_ns / NANOSECONDS_PER_SECOND / BLOCK_SECONDS
        self.horizons_seconds = source.attributes.all_horizons_seconds
        self.state = DetectorState(len(self.horizons_seconds))
        self.regimes_begun = 0
        self._options = self._run_options()
        self._shared: Bools = np.zeros(1, np.bool_)

    @property
    def day_hours(self) -> int:
        """Hours of 12 blocks in a day, as `DetectorOptions.day_hours`."""
        return self._options.day_hours

    def change(self) -> None:
        """Apply changed horizons."""
        horizons = self._source.attributes.all_horizons_seconds
        if horizons != self.horizons_seconds:
            self.horizons_seconds = horizons
            self.state.set_horizons(len(horizons))
        self._options = self._run_options()

    def run(self, rows: Ints, newest: Ints, known_versions: Bools) -> Ints:
        """Evaluate the rows whose newest block is new, then look for passed limits in all.

        Args:
            rows: Shape (n,), rows with a limit.
            newest: Shape (n,), newest interval of each.
            known_versions: Shape (n,), rows whose program reports its code version.

        Returns:
            The rows that were evaluated.
        """
        state = self.state
        self._shared = programs.shared_devices(self._source.attributes, rows)
        ended = newest // self._source.histories.block_intervals - 1
        steps = np.clip(ended - state.evaluated[rows], 0, CATCH_UP_BLOCKS)
        first = state.evaluated[rows] == EMPTY
        for chosen, block, count in _groups(ended, steps):
            for begin in range(0, len(chosen), CHUNK_ROWS):
                part = chosen[begin : begin + CHUNK_ROWS]
                self._evaluate(rows[part], block, count, known_versions[part])
            fires = state.firing[rows[chosen]] | state.beyond[rows[chosen]]
            self._date(rows[chosen[first[chosen] & fires]], block)
        self._watch_limits(rows, newest)
        evaluated: Ints = rows[steps > 0]
        return evaluated

    def _evaluate(self, rows: Ints, block: int, count: int, known_versions: Bools) -> None:
        source, state = self._source, self.state
        traits = self._traits(rows)
        blocks = source.blocks(rows, block, known_versions=known_versions)
        if self._begin_regimes(rows, blocks, block):
            blocks = source.blocks(rows, block, known_versions=known_versions)
        known = np.isfinite(blocks.mean)
        length = known.shape[1]
        own = source.attributes.kernel[rows] & np.isnan(traits.limit)
        held = np.where(state.firing[rows] & own, state.baseline[rows], np.nan)
        ends = range(max(length - count + 1, 1), length + 1)
        options = replace(self._options, asked=source.attributes.asked(rows, self.horizons_seconds))
        moments = run(blocks, traits, options, ends=ends, alarms=state.alarms(rows), held=held)
        for moment in moments:
            state.keep(rows, block - (length - moment.end), moment)
        state.probability[np.ix_(rows, self._too_far)] = np.nan
        state.value[rows] = np.where(known[:, -1], blocks.mean[:, -1], state.value[rows])
        state.reach[rows] = history_length(known)
        state.known_blocks[rows] = known.sum(axis=1)
        state.process[rows] = blocks.process[:, -1]
        state.baseline[rows] = np.where(own, moment.found.limit / traits.baseline_ratio, np.nan)
        self._abstain(rows, moment.found)

    def _date(self, rows: Ints, block: int) -> None:
        """Find the begin of alerts in a history that was there before this process, such as one from Prometheus."""
        if not len(rows):
            return
        source, state = self._source, self.state
        blocks = source.blocks(rows, block, known_versions=np.zeros(len(rows), np.bool_))
        length = blocks.mean.shape[1]
        options = replace(self._options, asked=source.attributes.asked(rows, self.horizons_seconds))
        ends = range(max(length - DATED_BLOCKS, LEAST_BLOCKS // 2) + 1, length + 1)
        begun, passed = np.zeros((2, len(rows)), np.int64)
        for moment in run(blocks, self._traits(rows), options, ends=ends, alarms=AlarmState.quiet(len(rows))):
            for dates, holds in ((begun, moment.alarms.firing | moment.found.beyond), (passed, moment.found.beyond)):
                dates[:] = np.where(holds, np.where(dates == 0, moment.end, dates), 0)
        for dates, times_ns in ((begun, state.since_ns), (passed, state.crossed_ns)):
            found_ns = (block - length + dates + 1) * source.histories.block_ns
            earlier = (dates > 0) & ((times_ns[rows] == 0) | (found_ns < times_ns[rows]))
            times_ns[rows[earlier]] = found_ns[earlier]

    def _abstain(self, rows: Ints, evaluation: Evaluation) -> None:
        """Withdraw probabilities of series that are too short, or too noisy to have a usual value."""
        state, kernel = self.state, self._source.attributes.kernel[rows]
        limits = self._source.settings.judge
        state.wide[rows] = kernel & ((evaluation.trend.noise > limits.wide_baseline_ratio) | evaluation.erratic)
        state.silence(rows[state.wide[rows]])
        short = rows[(state.known_blocks[rows] < MIN_BLOCKS) & ~state.beyond[rows]]
        state.probability[short], state.seconds[short] = np.nan, np.inf
        state.high[short] = 0
        state.firing[short] = False

    def _begin_regimes(self, rows: Ints, blocks: SeriesBlocks, block: int) -> bool:
        """Begin a regime for programs most of whose kernels moved at once without another explanation."""
        source, state = self._source, self.state
        baseline = np.where(source.attributes.kernel[rows], state.baseline[rows], np.nan)
        if np.isfinite(baseline).sum() < programs.MANY_KERNELS:
            return False
        number = source.attributes.program[rows]
        moved = programs.moved(row_medians(blocks.median[:, -programs.RECENT_BLOCKS :]), baseline)
        whole = programs.moved_as_a_whole(number, moved, np.isfinite(baseline))
        newest = np.full(len(rows), (block + 1) * source.histories.block_intervals - 1)
        unexplained = whole & ~self.shared(rows) & ~self.clock_fell(rows, newest, whole)
        stepped = programs.stepped(blocks.median, baseline) & unexplained
        begun_regimes = 0
        for program in np.unique(number[stepped]).tolist():
            mine = (number == program) & np.isfinite(baseline)
            sudden = stepped & mine
            if sudden.sum() < programs.WIDE_SHARE * (moved & mine).sum():
                continue
            age = int(np.median(programs.run_length(blocks.median[sudden], baseline[sudden])))
            self.begin_regime(rows[mine], block - age)
            begun_regimes += int(mine.sum())
        self.regimes_begun += begun_regimes
        return begun_regimes > 0

    def begin_regime(self, rows: Ints, block: int) -> None:
        """Begin a new regime of rows at a block: their baselines are learnt again."""
        self._source.regimes.grow(int(rows.max(initial=-1)) + 1)
        regime = self._source.regimes.latest(rows) + 1
        self._source.regimes.put(rows, np.full(len(rows), block), regime)
        self.state.baseline[rows] = np.nan
        self.state.silence(rows)

    def shared(self, rows: Ints) -> Bools:
        """Whether several programs have kernels on the GPU of each row, shape (n,)."""
        shared: Bools = self._shared[self._source.attributes.device[rows]]
        return shared

    def clock_fell(self, rows: Ints, newest: Ints, which: Bools) -> Bools:
        """Whether the clock of each row's GPU is or was lower than usual during its newest block of intervals.

        Args:
            rows: Shape (n,), with the same newest block.
            newest: Shape (n,), newest interval of each.
            which: Shape (n,); False for the others.
        """
        fell = np.zeros(len(rows), dtype=np.bool_)
        mine = np.flatnonzero(which)
        if len(mine):
            source, block = self._source, int(newest[mine].max()) // self._source.histories.block_intervals - 1
            clock = source.companion_blocks(programs.CLOCK, rows[mine], block)
            recent = source.companion_mean(programs.CLOCK, rows[mine], newest[mine])
            fell[mine] = programs.clock_fell(clock, np.fmin(source.latest(programs.CLOCK, rows[mine]), recent))
        return fell

    def has_clock(self, row: int) -> bool:
        """Whether the clock of a row's GPU is known."""
        return bool(np.isfinite(self._source.latest(programs.CLOCK, np.array([row])))[0])

    def _watch_limits(self, rows: Ints, newest: Ints) -> None:
        """Set `passed`: the limit of the last evaluation, or an absolute one, is passed by the newest intervals."""
        source, state = self._source, self.state
        for begin in range(0, len(rows), CHUNK_ROWS):
            part = rows[begin : begin + CHUNK_ROWS]
            traits = self._traits(part)
            mean = source.recent_mean(part, newest[begin : begin + CHUNK_ROWS])
            replaced = (source.present_process(part) != state.process[part])[:, None]
            limit = np.where(np.isfinite(traits.limit), traits.limit, state.limit[part])
            # What a program reserves at its start is known with the first evaluation.
            silent = state.silent[part] | (traits.reserves & (state.known_blocks[part] < MIN_BLOCKS))
            passed = limit_passed(mean[:, None], replaced, limit, silent, traits)[:, 0]
            state.limit[part] = limit
            time_ns = newest[begin : begin + CHUNK_ROWS] * source.windows.interval_ns
            passed &= ~(source.trials.within(part, time_ns) | source.attributes.excused_now(part, time_ns))
            state.passed[part] = passed & ~state.wide[part]
            state.value[part] = np.where(np.isfinite(mean), mean, state.value[part])

    def _traits(self, rows: Ints) -> Traits:
        traits = self._source.traits(rows)
        # A companion without a value leaves the last limit in force.
        absolute = ~self._source.attributes.kernel[rows]
        known = np.where(absolute & np.isnan(traits.limit), self.state.limit[rows], traits.limit)
        return replace(traits, limit=known)

    @property
    def _too_far(self) -> Ints:
        """Places of the horizons beyond the day of the detector, whose probability is not known."""
        return np.flatnonzero(np.array(self.horizons_seconds) > DAY_SECONDS * self._scale * (1 + 1e-9))

    def _run_options(self) -> DetectorOptions:
        def scaled(horizons: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(min(horizon / self._scale, DAY_SECONDS) for horizon in horizons)

        return DetectorOptions(
            horizons_seconds=scaled(self.horizons_seconds),
            alarm_horizons_seconds=scaled(self.horizons_seconds),
            calibration=shipped(),
            scale=self._scale,
            local_time=self._source.settings.local_time,
        )

    @property
    def seconds_scale(self) -> float:
        """Seconds of event time in a second of the detector, whose blocks have 300 s."""
        return self._scale


def _groups(ended: Ints, steps: Ints) -> Iterator[tuple[Ints, int, int]]:
    """Places of the rows with the same newest block and the same number of new ones, with both."""
    due = np.flatnonzero(steps > 0)
    pairs, place = np.unique(np.stack([ended[due], steps[due]], axis=1), axis=0, return_inverse=True)
    for number, (block, count) in enumerate(pairs.tolist()):
        yield due[place.ravel() == number], int(block), int(count)
