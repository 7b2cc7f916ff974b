"""Companions of recorded series: other metrics of the same GPU, from CSV with the columns `timestamp,metric,value`.

`backtest.command` reads them (`--companions`); they give limits and load to `breaches`, and evidence to `causes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.backtest.grid import GriddedSeries, SeriesBatch
from kernelcast.predictor.backtest.table import CsvTable, read
from kernelcast.wire.catalogue import kernel, own_name
from kernelcast.wire.catalogue.devices import gpu, nvlink
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import VERSION_LABELS

METRIC: Final = "metric"
PROCESS_START: Final = "process_start_time_seconds"
"""Another value is another process."""
CODE_VERSION: Final = "code_version"
"""Another value is another version of the program: any number that changes at a deploy."""
SURROUNDINGS: Final = tuple(name for name in VERSION_LABELS if name != CODE_VERSION)
"""Likewise another version of the image, the CUDA runtime or the driver, which comes with another process."""
KEPT_SECONDS: Final = 900.0
"""A companion's value holds until its next one, at most this long."""
PROGRAM: Final = "program"
_COUNTED: Final = {
    kernel.DURATION.prometheus_name: PROGRAM,
    gpu.PROCESS_MEMORY.prometheus_name: "pid",
    gpu.PROCESS_SM.prometheus_name: "pid",
}
"""Metrics of programs on a GPU, each with the label whose values are counted."""
_OF_PROGRAMS: Final = frozenset(_COUNTED)
_OF_GPU: Final = frozenset({"Hostname", "host", "UUID", "gpu", "GPU_I_ID", "pci_bus_id", "device"})
"""Labels that name a GPU or its host."""
_SUMMED: Final = frozenset({nvlink.UP.prometheus_name, nvlink.ERRORS.prometheus_name, gpu.XID_ERRORS.prometheus_name})


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

    def values_at(self, seconds: Floats) -> Floats:
        """Values at some times, each the newest one so far; NaN where that is too old."""
        place = np.searchsorted(self.seconds, seconds, side="right") - 1
        values = self.values[np.maximum(place, 0)]
        fresh = (place >= 0) & (seconds - self.seconds[np.maximum(place, 0)] <= KEPT_SECONDS)
        return np.where(fresh, values, np.nan)

    def changes(self, seconds: Floats) -> Ints:
        """Number of changes of the value up to some times; -1 before the first value."""
        known = np.isfinite(self.values)
        times, values = self.seconds[known], self.values[known]
        if not len(values):
            return np.full(len(seconds), -1, dtype=np.int64)
        number = np.r_[0, np.cumsum(values[1:] != values[:-1])]
        place = np.searchsorted(times, seconds, side="right") - 1
        counted: Ints = np.where(place >= 0, number[np.maximum(place, 0)], -1).astype(np.int64)
        return counted


_Texts: TypeAlias = tuple[str, ...]
_Numbered: TypeAlias = tuple[int, Companion]


class _OfMetric:
    """Companions of one metric. One belongs to a series if the labels that both have are equal."""

    def __init__(self) -> None:
        self._count = 0
        self._by_names: dict[_Texts, list[_Numbered]] = {}
        self._indices: dict[tuple[_Texts, _Texts], dict[_Texts, list[_Numbered]]] = {}

    def add(self, one: Companion) -> None:
        """Add a companion, after all before it."""
        self._by_names.setdefault(tuple(one.labels), []).append((self._count, one))
        self._count += 1

    def of(self, labels: Mapping[str, str]) -> list[Companion]:
        """The companions of a series, in their order; they are looked up by the values of the shared labels."""
        numbered: list[_Numbered] = []
        for names in self._by_names:
            shared = tuple(name for name in names if name in labels)
            numbered += self._index(names, shared).get(tuple(labels[name] for name in shared), [])
        return [one for _, one in sorted(numbered, key=itemgetter(0))]

    def _index(self, names: _Texts, shared: _Texts) -> dict[_Texts, list[_Numbered]]:
        """The companions with labels of these names, by the values of the shared ones."""
        if (names, shared) not in self._indices:
            index: dict[_Texts, list[_Numbered]] = {}
            self._indices[names, shared] = index
            for numbered in self._by_names[names]:
                index.setdefault(tuple(numbered[1].labels[name] for name in shared), []).append(numbered)
        return self._indices[names, shared]


class Companions:
    """All companions of a table."""

    def __init__(self, table: CsvTable | None = None, companions: Sequence[Companion] = ()) -> None:
        """Keep companions.

        Args:
            table: The series that they accompany.
            companions: The companions.
        """
        self._table, self._companions = table or CsvTable(), companions
        self._by_metric: dict[str, _OfMetric] = {}
        for each in companions:
            self._by_metric.setdefault(each.metric, _OfMetric()).add(each)

    @classmethod
    def of_file(cls, table: CsvTable, path: Path | None) -> "Companions":
        """Read a file; None for no companions.

        Raises:
            ConfigurationError: It cannot be read, has no column `metric`, or a row has none.
        """
        if path is None:
            return cls()
        own = read([path])
        if METRIC not in own.labels:
            raise ConfigurationError(f"--companions {path} needs the columns timestamp,{METRIC},value")
        if not all(own.label_values(key)[own.labels.index(METRIC)] for key in own.series()):
            raise ConfigurationError(f"--companions {path} has rows with an empty {METRIC}; fill it in, or remove them")
        return cls(table, [_companion(own, key[1], numbers) for key, numbers in own.series().items()])

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._companions)

    def values(self, batch: SeriesBatch, metric: Metric | None) -> Floats | None:
        """A companion's values at each interval of a batch, shape (n, t); None where no series has it.

        Of several companions of one metric the first counts; of a metric that a GPU has for each link, their sum.
        """
        return None if metric is None else self._named(batch, metric.prometheus_name)

    def metrics(self, batch: SeriesBatch) -> dict[str, Floats]:
        """All companions of a batch that are metrics of its GPUs, by Prometheus name, each of shape (n, t)."""
        names = sorted(self._by_metric.keys() - _OF_PROGRAMS)
        named = {name: self._named(batch, name) for name in names}
        return {name: values for name, values in named.items() if values is not None}

    def siblings(self, batch: SeriesBatch, metric: str) -> Floats | None:
        """Durations of other kernels on the same GPU, shape (n, k, t); None where no series has them."""
        if metric != kernel.DURATION.prometheus_name:
            return None
        rows = [
            [
                each.values_at(_ends(one))
                for each in self._companions
                if each.metric == metric and self._is_sibling(each, one)
            ]
            for one in batch.series
        ]
        longest = max((len(row) for row in rows), default=0)
        if not longest:
            return None
        missing = np.full(batch.panel.length, np.nan)
        return np.stack([np.stack([*row, *[missing] * (longest - len(row))]) for row in rows])

    def programs(self, batch: SeriesBatch) -> Floats | None:
        """Number of programs on the GPU, shape (n, t); None where the companions do not show it.

        Counted are the programs of kernel durations, the series' own included, and processes, whichever are more.
        """
        rows = [self._programs(one) for one in batch.series]
        if all(row is None for row in rows):
            return None
        missing = np.full(batch.panel.length, np.nan)
        return np.stack([missing if row is None else row for row in rows])

    def _named(self, batch: SeriesBatch, metric: str) -> Floats | None:
        rows = [self._values(one, metric) for one in batch.series]
        if all(row is None for row in rows):
            return None
        missing = np.full(batch.panel.length, np.nan)
        return np.stack([missing if row is None else row for row in rows])

    def numbers(self, batch: SeriesBatch, metric: str) -> Ints:
        """Number of changes of a companion's value at each interval of a batch, shape (n, t); -1 before its first.

        Unlike a measurement, a value holds until the next one, however late that comes.
        """
        missing = np.full(batch.panel.length, -1, dtype=np.int64)
        companions = [(one, self._of_metric(one, metric)) for one in batch.series]
        return np.stack([mine[0].changes(_ends(one)) if mine else missing for one, mine in companions])

    def runs(self, batch: SeriesBatch) -> tuple[Ints, Ints]:
        """Numbers of the processes and of the versions at each interval of a batch, each of shape (n, t).

        A version is -1 where that of the code is not known.
        """
        process, version = (self.numbers(batch, name) for name in (PROCESS_START, CODE_VERSION))
        around = np.sum([np.maximum(self.numbers(batch, name), 0) for name in SURROUNDINGS], axis=0)
        return np.maximum(process, 0) + around, np.where(version < 0, version, version + around)

    def _values(self, one: GriddedSeries, metric: str) -> Floats | None:
        mine = self._of_metric(one, metric)
        if not mine:
            return None
        if metric not in _SUMMED:
            return mine[0].values_at(_ends(one))
        values = np.stack([each.values_at(_ends(one)) for each in mine])
        return np.where(np.isfinite(values).any(axis=0), np.nansum(values, axis=0), np.nan)

    def _of_metric(self, one: GriddedSeries, metric: str) -> list[Companion]:
        own = self._by_metric.get(metric)
        return [] if own is None else own.of(self._labels(one))

    def _labels(self, one: GriddedSeries) -> dict[str, str]:
        named = zip(self._table.labels, self._table.label_values(one.key), strict=True)
        return {name: label for name, label in named if label}

    def _is_sibling(self, each: Companion, one: GriddedSeries) -> bool:
        labels = self._labels(one)
        is_own = all(labels.get(name) == value for name, value in each.labels.items())
        return not is_own and _shares_gpu(labels, each)

    def _programs(self, one: GriddedSeries) -> Floats | None:
        labels = self._labels(one)
        groups: dict[tuple[str, str], list[Companion]] = {}
        for each in self._companions:
            label = _COUNTED.get(each.metric, "")
            if label in each.labels and _shares_gpu(labels, each):
                groups.setdefault((label, each.labels[label]), []).append(each)
        if not groups:
            return None
        counts = {label: np.zeros(len(one.values)) for label, _ in groups}
        own_program = labels.get(PROGRAM)
        if PROGRAM in counts and (PROGRAM, own_program) not in groups:
            counts[PROGRAM] += 1
        for (label, name), members in groups.items():
            there = np.stack([np.isfinite(each.values_at(_ends(one))) for each in members]).any(axis=0)
            counts[label] += there | (label == PROGRAM and name == own_program)
        most: Floats = np.maximum.reduce(list(counts.values()))
        return most


def _ends(one: GriddedSeries) -> Floats:
    return one.start_seconds + np.arange(len(one.values), dtype=np.float64) * one.interval_seconds


def _shares_gpu(labels: Mapping[str, str], each: Companion) -> bool:
    """Whether a companion is of the same GPU: the labels of GPUs that both have are equal."""
    return all(labels.get(name, value) == value for name, value in each.labels.items() if name in _OF_GPU)


def _companion(table: CsvTable, labels: Sequence[str], numbers: Sequence[int]) -> Companion:
    # An empty label is none, as in Prometheus: a GPU's metrics have no program. `Companions._labels` does the same.
    named = {name: label for name, label in zip(table.columns[0], labels, strict=True) if label}
    rows = sorted((table.rows[number] for number in numbers), key=lambda row: row.seconds)
    seconds, values = np.array([row.seconds for row in rows]), np.array([row.value for row in rows])
    return Companion(own_name(named.pop(METRIC)), named, seconds, values)
