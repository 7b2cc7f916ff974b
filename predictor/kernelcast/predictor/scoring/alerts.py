"""Scores of alerts: lead before the limit, precision, and false alarms per GPU-day."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.cells import ratio
from kernelcast.predictor.scoring.classes import CLASSES

LEAD_EDGES_SECONDS: Final = np.array(
    [0, 1, 300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400], dtype=np.float64
)
"""Edges of the histogram of leads; a lead of 0 is a limit that was passed without warning."""
MAX_OPEN: Final = 100_000
"""Alerts that may wait for their outcome; further ones are counted and not scored."""
NEVER: Final = -1
"""Block in which an alert's limit was passed, where it was not."""
TOTALS: Final = "alerts"
"""Name of the totals in a state."""
DAY_SECONDS: Final = 86_400.0


class AlertScores:
    """Alerts that are open, and counts of those whose outcome is known. One thread uses it at a time.

    An alert is right if the limit is passed within a day of its begin. One that clears and fires again within that day
    is the same one. Whether an alert was right is not known if its series has no values at the end of that day.

    Attributes:
        right: Shape (classes,).
        wrong: Shape (classes,).
        leads: Shape (classes, edges), histogram of the right ones' leads; the last column is for a day and more.
        gpu_days: Time observed, over all GPUs.
        dropped: Alerts that are not scored because `MAX_OPEN` were open.
    """

    def __init__(self, block_seconds: float) -> None:
        self._block_seconds = block_seconds
        self._day_blocks = max(round(DAY_SECONDS / block_seconds), 1)
        self._hour_blocks = max(self._day_blocks // 24, 1)
        columns = ("series", "class", "began", "passed", "seen", "counted", "firing")
        self.open: dict[str, Ints] = dict.fromkeys(columns, np.zeros(0, np.int64))
        self.right = np.zeros(len(CLASSES))
        self.wrong = np.zeros(len(CLASSES))
        self.leads = np.zeros((len(CLASSES), len(LEAD_EDGES_SECONDS)))
        self.gpu_days = 0.0
        self.dropped = 0

    def give_up(self, series: Ints) -> None:
        """Forget the open alerts of series; they have no outcome."""
        gone = np.isin(self.open["series"], series)
        self.open = {name: column[~gone] for name, column in self.open.items()}

    def settle(self, block: int, series: Ints, classes: Ints, beyond: Bools, firing: Bools, gpus: float) -> None:
        """Note the alerts of a block.

        Args:
            block: Its number.
            series: Shape (n,), without repetitions.
            classes: Shape (n,).
            beyond: Shape (n,), whether each is at or beyond its limit.
            firing: Shape (n,), whether its alert fires; it does while beyond.
            gpus: GPUs that reported in the block.
        """
        self.gpu_days += gpus * self._block_seconds / DAY_SECONDS
        order = np.argsort(series)
        place = np.searchsorted(series, self.open["series"], sorter=order)
        place = order[np.minimum(place, len(series) - 1)] if len(series) else np.zeros(len(place), np.int64)
        is_open = series[place] == self.open["series"] if len(series) else np.zeros(len(place), np.bool_)
        self._follow(block, is_open, place, beyond, firing)
        self._begin(block, series, classes, beyond, firing)

    def _follow(self, block: int, is_open: Bools, place: Ints, beyond: Bools, firing: Bools) -> None:
        table = self.open
        age, silent = block - table["began"], block - table["seen"]
        if is_open.any():
            table["seen"] = np.where(is_open, block, table["seen"])
            table["firing"] = np.where(is_open, firing[place] | beyond[place], table["firing"])
            passed = is_open & beyond[place] & (table["passed"] == NEVER)
            # An alert that was counted as wrong stays so.
            passed &= (table["counted"] == 0) & (age <= self._day_blocks)
            table["passed"] = np.where(passed, block, table["passed"])
            self._count_right(passed)
            table["counted"] = np.where(passed, 1, table["counted"])
        # Not in the day's last block: the series' own value of that block may come with a later call.
        late = (age > self._day_blocks) & (table["counted"] == 0)
        lost = (late & (silent >= self._hour_blocks)) | (~is_open & (silent >= self._day_blocks))
        np.add.at(self.wrong, table["class"][late & ~lost], 1.0)
        table["counted"] = np.where(late, 1, table["counted"])
        over = (table["counted"] == 1) & (table["firing"] == 0) & (age >= self._day_blocks)
        self.open = {name: column[~(over | lost)] for name, column in table.items()}

    def _count_right(self, passed: Bools) -> None:
        classes: Ints = self.open["class"][passed]
        lead_seconds = np.maximum(self.open["passed"] - self.open["began"], 0)[passed] * self._block_seconds
        place: Ints = np.searchsorted(LEAD_EDGES_SECONDS, lead_seconds, side="right") - 1
        np.add.at(self.right, classes, 1.0)
        np.add.at(self.leads, (classes, place), 1.0)

    def _begin(self, block: int, series: Ints, classes: Ints, beyond: Bools, firing: Bools) -> None:
        new = (firing | beyond) & ~np.isin(series, self.open["series"])
        chosen = np.flatnonzero(new)[: max(MAX_OPEN - len(self.open["series"]), 0)]
        self.dropped += int(new.sum()) - len(chosen)
        count, passed = len(chosen), beyond[chosen]
        rows = {
            "series": series[chosen],
            "class": classes[chosen],
            "began": np.full(count, block),
            "passed": np.where(passed, block, NEVER),
            "seen": np.full(count, block),
            "counted": passed.astype(np.int64),
            "firing": np.ones(count, np.int64),
        }
        np.add.at(self.right, rows["class"][passed], 1.0)
        self.leads[:, 0] += np.bincount(rows["class"][passed], minlength=len(CLASSES))
        self.open = {name: np.concatenate([column, rows[name]]) for name, column in self.open.items()}

    def precision(self) -> Floats:
        """Share of alerts that were right, shape (classes,); NaN without alerts."""
        return ratio(self.right, self.right + self.wrong)

    def announced(self) -> Floats:
        """Share of passed limits that an alert announced before, shape (classes,)."""
        return ratio(self.right - self.leads[:, 0], self.right)

    def median_lead_seconds(self) -> Floats:
        """Median lead, linear within the bin, shape (classes,); NaN without a right alert."""
        medians = np.full(len(CLASSES), np.nan)
        upper = np.r_[LEAD_EDGES_SECONDS[1:], LEAD_EDGES_SECONDS[-1]]
        for number, counts in enumerate(self.leads):
            if not counts.sum():
                continue
            total, half = np.cumsum(counts), counts.sum() / 2
            place = int(np.argmax(total >= half))
            share = 1.0 - (total[place] - half) / counts[place]
            low = LEAD_EDGES_SECONDS[place]
            medians[number] = 0.0 if place == 0 else low + share * (upper[place] - low)
        return medians

    def false_alarms_per_gpu_day(self) -> Floats:
        """Wrong alerts for each day of each GPU, shape (classes,); NaN before a GPU was observed."""
        return self.wrong / self.gpu_days if self.gpu_days else np.full(len(CLASSES), np.nan)

    def totals(self) -> dict[str, Floats]:
        """Counts that are kept over restarts."""
        return {f"{TOTALS}/right": self.right, f"{TOTALS}/wrong": self.wrong, f"{TOTALS}/leads": self.leads}

    def restore(self, totals: Mapping[str, Floats], gpu_days: float) -> None:
        """Restore counts of `totals`, by name."""
        self.right, self.wrong, self.leads = totals["right"], totals["wrong"], totals["leads"]
        self.gpu_days = gpu_days
