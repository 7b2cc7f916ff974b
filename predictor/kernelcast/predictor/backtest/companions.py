"""Companions of recorded series: other metrics of the same GPU, from CSV with the columns `timestamp,metric,value`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import Batch, GriddedSeries
from kernelcast.predictor.backtest.table import Table, read
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.errors import ConfigurationError

METRIC: Final = "metric"
KEPT_SECONDS: Final = 900.0
"""A companion's value holds until its next one, at most this long."""


@dataclass(frozen=True, slots=True)
class Companion:
    """One companion series.

    Attributes:
        metric: Prometheus name.
        labels: Its other labels.
        seconds: float64, shape (k,), Unix times, ascending.
        values: float64, shape (k,).
    """

    metric: str
    labels: Mapping[str, str]
    seconds: Floats
    values: Floats

    def belongs_to(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels that both have are equal."""
        return all(labels.get(name, value) == value for name, value in self.labels.items())

    def at(self, seconds: Floats) -> Floats:
        """Values at some times, each the newest one so far; NaN where that is too old."""
        place = np.searchsorted(self.seconds, seconds, side="right") - 1
        found = self.values[np.maximum(place, 0)]
        fresh = (place >= 0) & (seconds - self.seconds[np.maximum(place, 0)] <= KEPT_SECONDS)
        return np.where(fresh, found, np.nan)


class Companions:
    """All companions of a table."""

    def __init__(self, table: Table | None = None, found: Sequence[Companion] = ()) -> None:
        """Keep companions.

        Args:
            table: The series that they accompany.
            found: The companions.
        """
        self._table, self._found = table or Table(), found

    @classmethod
    def of_file(cls, table: Table, path: Path | None) -> "Companions":
        """Read a file; None for no companions.

        Raises:
            ConfigurationError: It cannot be read, or has no column `metric`.
        """
        if path is None:
            return cls()
        own = read([path])
        if METRIC not in own.labels:
            raise ConfigurationError(f"--companions {path} needs the columns timestamp,{METRIC},value")
        return cls(table, [_companion(own, key[1], numbers) for key, numbers in own.series().items()])

    def values(self, batch: Batch, metric: Metric | None) -> Floats | None:
        """A companion's values at each interval of a batch, shape (n, t); None where no series has it."""
        rows = [self._values(one, metric.prometheus_name) for one in batch.series] if metric is not None else []
        if all(row is None for row in rows):
            return None
        nothing = np.full(batch.panel.length, np.nan)
        return np.stack([nothing if row is None else row for row in rows])

    def _values(self, one: GriddedSeries, metric: str) -> Floats | None:
        if not self._found:
            return None
        labels = dict(zip(self._table.labels, self._table.label_values(one.key), strict=True))
        ends = one.start_seconds + np.arange(len(one.values), dtype=np.float64) * one.interval_seconds
        for each in self._found:
            if each.metric == metric and each.belongs_to(labels):
                return each.at(np.asarray(ends, np.float64))
        return None


def _companion(table: Table, labels: Sequence[str], numbers: Sequence[int]) -> Companion:
    named = dict(zip(table.columns[0], labels, strict=True))
    rows = sorted((table.rows[number] for number in numbers), key=lambda row: row.seconds)
    seconds, values = np.array([row.seconds for row in rows]), np.array([row.value for row in rows])
    return Companion(named.pop(METRIC), named, seconds, values)
