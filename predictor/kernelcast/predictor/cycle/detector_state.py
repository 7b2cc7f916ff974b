"""State of the detector for every row: the alert rule, the last evaluation, and baselines.

`Detection` writes it; `Publication`, `Claims` and the finders of causes read it; `engine` saves a part of it.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints, extended
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.run import BlockResult
from kernelcast.predictor.series.windows import EMPTY

Float32s: TypeAlias = NDArray[np.float32]

QUANTILES: Final = 3
"""Times to the limit that are kept: after 10, 50 and 90 per cent of the probability."""


class DetectorState:
    """Result of the last evaluation of each row. Arrays are indexed by the row in `Windows`.

    Only the thread that runs cycles changes it; `explain` reads it from another one, between cycles.

    Attributes:
        evaluated: Number of the newest block that was evaluated; EMPTY before.
        generation: Count of series that the row had when it was synced.
        firing, high, low: State of the alert rule, as `AlarmState`.
        baseline: Usual value; does not change while an alert fires. NaN until it is learnt.
        limit: Limit of the last evaluation.
        opening: Whether the process was in its first minutes.
        silent: Whether the limit counts as passed at the ends of blocks only, not between them.
        beyond: Whether the newest block was at or beyond the limit.
        passed: Whether the limit is passed now.
        crossed_ns: When the limit was passed for the first time since the alert began; 0 while it was not.
        wide: Whether the series is too noisy to be judged.
        reach: Blocks of history.
        known_blocks: Those of them with a value.
        value: Mean of the newest block.
        process: Number of the process at the end of the newest block.
        since_ns: Since when the alert fires; 0 while it does not.
        probable: Whether the row is published because a breach is probable; with hysteresis.
        probability: Shape (rows, h), of a breach within each horizon.
        answered: Shape (rows, h), whether the history suffices for the horizon.
        seconds: Shape (rows, 3), time to the limit, by quantile.
    """

    def __init__(self, horizons: int) -> None:
        self.generation: Ints = np.zeros(0, np.int64)
        self.evaluated: Ints = np.zeros(0, np.int64)
        self.firing: Bools = np.zeros(0, np.bool_)
        self.high: Ints = np.zeros(0, np.int64)
        self.low: Ints = np.zeros(0, np.int64)
        self.baseline: Floats = np.zeros(0)
        self.limit: Floats = np.zeros(0)
        self.opening: Bools = np.zeros(0, np.bool_)
        self.silent: Bools = np.zeros(0, np.bool_)
        self.beyond: Bools = np.zeros(0, np.bool_)
        self.passed: Bools = np.zeros(0, np.bool_)
        self.crossed_ns: Ints = np.zeros(0, np.int64)
        self.wide: Bools = np.zeros(0, np.bool_)
        self.reach: Ints = np.zeros(0, np.int64)
        self.known_blocks: Ints = np.zeros(0, np.int64)
        self.value: Floats = np.zeros(0)
        self.process: Ints = np.zeros(0, np.int64)
        self.since_ns: Ints = np.zeros(0, np.int64)
        self.probable: Bools = np.zeros(0, np.bool_)
        self.probability: Float32s = np.zeros((0, horizons), np.float32)
        self.answered: Bools = np.ones((0, horizons), np.bool_)
        self.seconds: Float32s = np.zeros((0, QUANTILES), np.float32)

    def sync(self, rows: Ints, generations: Ints) -> Ints:
        """Reset rows that another series has got since the last call; returns them."""
        for name, fill in _COLUMNS.items():
            setattr(self, name, extended(getattr(self, name), int(rows.max(initial=-1)) + 1, fill))
        changed: Ints = rows[self.generation[rows] != generations]
        self.reset(changed)
        self.generation[rows] = generations
        return changed

    def holds(self, rows: Ints, generations: Ints) -> Bools:
        """Whether there is state of the series that have these rows now, shape (n,)."""
        held = np.zeros(len(rows), dtype=np.bool_)
        inside = rows < len(self.generation)
        held[inside] = self.generation[rows[inside]] == generations[inside]
        return held

    def reset(self, rows: Ints) -> None:
        """Forget everything about rows; those that are not synced yet have nothing."""
        rows = rows[rows < len(self.generation)]
        for name, fill in _COLUMNS.items():
            getattr(self, name)[rows] = fill

    def set_horizons(self, horizons: int) -> None:
        """Change the number of horizons; probabilities are computed again at the next block."""
        self.probability = np.full((len(self.generation), horizons), np.nan, np.float32)
        self.answered = np.ones(self.probability.shape, np.bool_)
        self.evaluated[:] = EMPTY

    def evaluate_again(self, rows: Ints) -> None:
        """Forget which blocks of rows were evaluated; rows that are not synced yet have no such block."""
        self.evaluated[rows[rows < len(self.evaluated)]] = EMPTY

    def has_passed(self, row: int) -> bool:
        """Whether the limit of a row is passed now."""
        return bool(self.passed[row] or self.beyond[row])

    def alarms(self, rows: Ints) -> AlarmState:
        """State of the alert rule of rows."""
        return AlarmState(self.firing[rows], self.high[rows], self.low[rows])

    def keep(self, rows: Ints, block: int, moment: BlockResult) -> None:
        """Keep the result of an evaluation at the end of a block."""
        evaluation, alarms = moment.found, moment.alarms
        self.evaluated[rows] = block
        self.high[rows], self.low[rows] = alarms.high, alarms.low
        self.firing[rows] = alarms.firing
        self.limit[rows], self.opening[rows], self.beyond[rows] = (
            evaluation.limit,
            evaluation.opening,
            evaluation.beyond,
        )
        self.silent[rows] = evaluation.silent
        self.probability[rows], self.seconds[rows] = evaluation.passage.probability, evaluation.passage.seconds
        self.answered[rows] = moment.answered

    def saved_alarms(self, rows: Ints, generations: Ints) -> Ints:
        """State of alerts, shape (n, 2).

        First -1 for a breach that is probable without an alert, 0 for nothing, 1 for an alert, or when its limit was
        passed; then since when the alert fires.
        """
        saved = np.zeros((len(rows), 2), np.int64)
        known = self.holds(rows, generations)
        alert = np.maximum(self.crossed_ns[rows[known]], 1)
        state = np.where(self.firing[rows[known]], alert, -self.probable[rows[known]].astype(np.int64))
        saved[known] = np.stack([state, self.since_ns[rows[known]]], axis=1)
        return saved

    def restore_alarms(self, rows: Ints, saved: Ints) -> None:
        """Restore what `saved_alarms` returned, of rows that are synced already."""
        self.firing[rows] = saved[:, 0] > 0
        self.crossed_ns[rows] = np.where(saved[:, 0] > 1, saved[:, 0], 0)
        self.since_ns[rows] = saved[:, 1]
        self.probable[rows] = saved[:, 0] != 0

    def silence(self, rows: Ints) -> None:
        """Take back the alert and the probabilities of rows that are not to be judged."""
        self.firing[rows] = self.beyond[rows] = self.passed[rows] = False
        self.probable[rows] = False
        self.high[rows] = 0
        self.probability[rows], self.seconds[rows] = np.nan, np.inf


_COLUMNS: Final[dict[str, float]] = {
    "generation": 0,
    "evaluated": EMPTY,
    "firing": False,
    "high": 0,
    "low": 0,
    "baseline": np.nan,
    "limit": np.nan,
    "opening": False,
    "silent": False,
    "beyond": False,
    "passed": False,
    "crossed_ns": 0,
    "wide": False,
    "reach": 0,
    "known_blocks": 0,
    "value": np.nan,
    "process": 0,
    "since_ns": 0,
    "probable": False,
    "probability": np.nan,
    "answered": True,
    "seconds": np.inf,
}
