"""Queries over the ring that the built-in screens declare: last, rates, age, top, and a join by labels.

`screens` declares them, `LocalPages` evaluates them. Each also returns the PromQL that it equals, so that the same
panel could ask a Prometheus; tests compare both. Everything here is a value without state: any thread may evaluate it.

Sources: prometheus/prometheus, promql/functions.go (`extrapolatedRate`), and docs/querying/operators.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np

from kernelcast.bridge.browser.ring import Labels, SampleRing, Window
from kernelcast.bridge.tables.columns import FloatArray
from kernelcast.wire.catalogue import kernel

Aggregation = Literal["sum", "max", "min", "count", "avg", ""]
Operation = Literal["+", "-", "*", "/"]
RATE_SECONDS: Final = 60
"""Range of `Rate`: `rate(x[60s])` in PromQL, 12 readings at the default interval of 5 s."""
_EXTRAPOLATED_INTERVALS: Final = 1.1
"""A range is extrapolated to its end if its last sample is at most this many mean intervals away from it."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Values of series at the times of the ring.

    Attributes:
        times: Shape (t,), seconds.
        series: By labels, values of shape (t,), NaN where there is none.
    """

    times: FloatArray
    series: Mapping[Labels, FloatArray]


class DeclaredQuery(Protocol):
    """A query that can be evaluated over the ring, and written as PromQL."""

    @property
    def promql(self) -> str:
        """The same query in PromQL."""

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""


@dataclass(frozen=True, slots=True)
class Last:
    """The last value of each series.

    Attributes:
        name: Sample name.
        aggregation: How series with the same labels `by` become one; empty leaves the series as they are.
        by: Labels that remain.
        equal: Label values that select series; "" selects series without the label.
        unequal: Label values that exclude series.
    """

    name: str
    aggregation: Aggregation = ""
    by: tuple[str, ...] = ()
    equal: tuple[tuple[str, str], ...] = ()
    unequal: tuple[tuple[str, str], ...] = ()

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        return _aggregated_promql(self, self.selector)

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return frozenset({self.name})

    @property
    def selector(self) -> str:
        """The series in PromQL."""
        matchers = [f'{label}="{value}"' for label, value in self.equal]
        matchers += [f'{label}!="{value}"' for label, value in self.unequal]
        return f"{self.name}{{{', '.join(matchers)}}}" if matchers else self.name

    def selected(self, ring: SampleRing) -> Window:
        """The series that it selects."""
        window = ring.window(self.name)
        kept = [place for place, labels in enumerate(window.labels) if self._selects(dict(labels))]
        return Window(window.times, tuple(window.labels[place] for place in kept), window.values[kept])

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""
        window = self.selected(ring)
        named = tuple((("__name__", self.name), *labels) for labels in window.labels)
        return _aggregate(self, Window(window.times, named if not self.aggregation else window.labels, window.values))

    def _selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(label, "") == value for label, value in self.equal) and not any(
            labels.get(label, "") == value for label, value in self.unequal
        )


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregation of another query, such as the sum over GPUs of the largest value of each GPU.

    Attributes:
        aggregation: How series with the same labels `by` become one.
        of: The other query.
        by: Labels that remain.
    """

    aggregation: Aggregation
    of: DeclaredQuery
    by: tuple[str, ...] = ()

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        return _aggregated_promql(self, self.of.promql)

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return self.of.names

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""
        vector = self.of.evaluate(ring)
        values = np.array(list(vector.series.values())).reshape(len(vector.series), len(vector.times))
        return _aggregate(self, Window(vector.times, tuple(vector.series), values))


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of each counter over the last minute, resets included.

    Attributes:
        of: The counters; their own aggregation is applied to the rates.
    """

    of: Last

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        return _aggregated_promql(self.of, f"rate({self.of.selector}[{RATE_SECONDS}s])")

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return self.of.names

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""
        window = self.of.selected(ring)
        return _aggregate(self.of, Window(window.times, window.labels, rates(window.times, window.values)))


@dataclass(frozen=True, slots=True)
class SeenRate:
    """The rate of each counter of `wire.catalogue.windows` per second of wall time, over the last minute.

    The rate of what was seen, divided by the share of time in which the program's kernels were measured; no value where
    nothing was, and a share of 1 for programs that do not count it.

    Attributes:
        of: The counters; their own aggregation is applied to the rates.
    """

    of: Last

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        program = ", ".join(_PROGRAM)
        share = f"{_MEASURED.promql} / ({_RUNNING.promql} > 0) or group by ({program}) ({self.of.selector})"
        divisor = f"on ({program}) group_left () (({share}) > 0)"
        return _aggregated_promql(self.of, f"rate({self.of.selector}[{RATE_SECONDS}s]) / {divisor}")

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return self.of.names | _MEASURED.names | _RUNNING.names

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""
        window, shares = self.of.selected(ring), _measured_shares(ring)
        # A reading may come in between, and the oldest one go.
        times, mine, theirs = np.intersect1d(window.times, shares.times, assume_unique=True, return_indices=True)
        values = rates(window.times, window.values)[:, mine]
        for place, labels in enumerate(window.labels):
            share = shares.series.get(tuple(pair for pair in labels if pair[0] in _PROGRAM and pair[1]))
            if share is not None:
                values[place] /= share[theirs]
        return _aggregate(self.of, Window(times, window.labels, values))


@dataclass(frozen=True, slots=True)
class Age:
    """Seconds since the moments that gauges in Unix time name.

    Attributes:
        of: The gauges.
    """

    of: Last

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        return f"(time() - {self.of.promql})"

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return self.of.names

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""
        vector = self.of.evaluate(ring)
        return Vector(vector.times, {labels: vector.times - values for labels, values in vector.series.items()})


@dataclass(frozen=True, slots=True)
class Top:
    """The largest values of a query.

    Attributes:
        count: How many.
        of: The query.
    """

    count: int
    of: DeclaredQuery

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        return f"topk({self.count}, {self.of.promql})"

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return self.of.names

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring; at each time its own largest values."""
        vector = self.of.evaluate(ring)
        if len(vector.series) <= self.count:
            return vector
        values = np.stack(list(vector.series.values()))
        order = np.argsort(-np.where(np.isnan(values), -np.inf, values), axis=0, kind="stable")
        kept = np.zeros(values.shape, bool)
        np.put_along_axis(kept, order[: self.count], values=True, axis=0)
        cut = np.where(kept, values, np.nan)
        series = {labels: cut[place] for place, labels in enumerate(vector.series)}
        return Vector(vector.times, _without_empty(series))


@dataclass(frozen=True, slots=True)
class Join:
    """Two queries whose series have the same labels, with an arithmetic operation between them.

    Attributes:
        left: A query that aggregates.
        operation: The operation.
        right: A query that aggregates by the same labels.
    """

    left: DeclaredQuery
    operation: Operation
    right: DeclaredQuery

    @property
    def promql(self) -> str:
        """The same query in PromQL."""
        return f"({self.left.promql} {self.operation} {self.right.promql})"

    @property
    def names(self) -> frozenset[str]:
        """Sample names that it reads."""
        return self.left.names | self.right.names

    def evaluate(self, ring: SampleRing) -> Vector:
        """Evaluate it at every time of the ring."""
        left, right = self.left.evaluate(ring), self.right.evaluate(ring)
        # A reading may come in between, and the oldest one go.
        times, of_left, of_right = np.intersect1d(left.times, right.times, assume_unique=True, return_indices=True)
        apply = _OPERATIONS[self.operation]
        with np.errstate(divide="ignore", invalid="ignore"):
            series = {
                labels: apply(values[of_left], right.series[labels][of_right])
                for labels, values in left.series.items()
                if labels in right.series
            }
        return Vector(times, _without_empty(series))


_PROGRAM: Final = ("UUID", "GPU_I_ID", "program", "rank", "source")
"""Labels of a program on a GPU; host and index of the GPU follow from its UUID."""
_MEASURED: Final = Rate(Last(kernel.PROBE_MEASURED.prometheus_name, "sum", _PROGRAM))
_RUNNING: Final = Rate(Last(kernel.PROBE_RUNNING.prometheus_name, "sum", _PROGRAM))
_OPERATIONS: Final[Mapping[str, Callable[[FloatArray, FloatArray], FloatArray]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
_REDUCTIONS: Final[Mapping[str, Callable[[FloatArray], FloatArray]]] = {
    "sum": lambda values: np.nansum(values, axis=0),
    "max": lambda values: np.fmax.reduce(values, axis=0),
    "min": lambda values: np.fmin.reduce(values, axis=0),
    "count": lambda values: np.count_nonzero(~np.isnan(values), axis=0).astype(np.float64),
    "avg": lambda values: np.nansum(values, axis=0) / np.maximum(1, np.count_nonzero(~np.isnan(values), axis=0)),
}


def _measured_shares(ring: SampleRing) -> Vector:
    """The share of measured time of each program that counts it: NaN where nothing was, 1 where no time passed."""
    measured, running = _MEASURED.evaluate(ring), _RUNNING.evaluate(ring)
    times, place, other = np.intersect1d(measured.times, running.times, assume_unique=True, return_indices=True)
    shares = {}
    for program in measured.series.keys() & running.series.keys():
        part, whole = measured.series[program][place], running.series[program][other]
        share = np.divide(part, whole, out=np.ones(len(times)), where=(whole > 0) & ~np.isnan(part))
        shares[program] = np.where(share > 0, share, np.nan)
    return Vector(times, shares)


def _aggregated_promql(of: Last | Aggregate, inner: str) -> str:
    if not of.aggregation:
        return inner
    return f"{of.aggregation} by ({', '.join(of.by)}) ({inner})" if of.by else f"{of.aggregation}({inner})"


def _aggregate(of: Last | Aggregate, window: Window) -> Vector:
    """Series with the same labels `by` as one."""
    if not of.aggregation:
        return Vector(window.times, _without_empty(dict(zip(window.labels, window.values, strict=True))))
    groups: dict[Labels, list[int]] = {}
    for place, labels in enumerate(window.labels):
        kept = tuple(pair for pair in labels if pair[0] in of.by and pair[1])
        groups.setdefault(kept, []).append(place)
    series = {}
    for labels, places in groups.items():
        values = window.values[places]
        series[labels] = np.where(np.isnan(values).all(axis=0), np.nan, _REDUCTIONS[of.aggregation](values))
    return Vector(window.times, _without_empty(series))


def _without_empty(series: Mapping[Labels, FloatArray]) -> dict[Labels, FloatArray]:
    return {labels: values for labels, values in series.items() if not np.isnan(values).all()}


def rates(times: FloatArray, values: FloatArray) -> FloatArray:
    """Prometheus' `rate` over `RATE_SECONDS` at each time, for each row.

    Args:
        times: Shape (t,), seconds, rising.
        values: Shape (n, t), counters; NaN where a series had no value.

    Returns:
        Shape (n, t); NaN where fewer than two samples are in the range.
    """
    rows, columns = values.shape
    result: FloatArray = np.full((rows, columns), np.nan)
    if not rows or not columns:
        return result
    # Example: one row with the values 1, NaN, 4, 6.
    #   last       0 0 2 3     index of the newest sample at or before each column; -1 if there is none
    #   following  0 2 2 3     index of the first sample at or after each column; `columns` if there is none
    #   before    -1 0 0 2     index of the newest sample before each column
    #   rise       . . 3 2     increase since that sample; after a reset the counter began again at 0: its whole value
    #   total      0 0 3 5     running sum of the rises, so that a range's increase is a difference of two items
    valid = ~np.isnan(values)
    place = np.arange(columns)
    last = np.maximum.accumulate(np.where(valid, place, -1), axis=1)
    following = np.minimum.accumulate(np.where(valid, place, columns)[:, ::-1], axis=1)[:, ::-1]
    before = np.concatenate([np.full((rows, 1), -1), last[:, :-1]], axis=1)
    previous = np.take_along_axis(values, np.maximum(before, 0), axis=1)
    rise = np.where(values < previous, values, values - previous)
    total = np.cumsum(np.where(valid & (before >= 0), rise, 0.0), axis=1)
    samples_before = np.cumsum(valid, axis=1)
    begins = np.searchsorted(times, times - RATE_SECONDS, side="right")
    each = np.arange(rows)
    for column in range(columns):
        begin = begins[column]
        first, end = following[:, begin], last[:, column]
        count = samples_before[:, column] - (samples_before[:, begin - 1] if begin else 0)
        usable = count >= 2
        if not usable.any():
            continue
        row, first, end = each[usable], first[usable], end[usable]
        increase = total[row, end] - total[row, first]
        span = (times[first], times[end], count[usable])
        extent = _extrapolated_seconds(times[column], span, values[row, first], increase)
        result[row, column] = increase * extent / (times[end] - times[first]) / RATE_SECONDS
    return result


def _extrapolated_seconds(
    now: float, span: tuple[FloatArray, FloatArray, FloatArray], first_value: FloatArray, increase: FloatArray
) -> FloatArray:
    """Return the seconds that the increase of a range is extrapolated to, as Prometheus does.

    To each end of the range if the nearest sample is closer to it than 1.1 mean intervals, else by half an interval; at
    the start never beyond the time at which the counter would have been 0.
    """
    first, end, count = span
    sampled = end - first
    mean = sampled / (count - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        to_zero = np.where((increase > 0) & (first_value >= 0), sampled * (first_value / increase), np.inf)
    to_start = np.minimum(first - (now - RATE_SECONDS), to_zero)
    to_end = now - end
    limit = mean * _EXTRAPOLATED_INTERVALS
    return sampled + np.where(to_start < limit, to_start, mean / 2) + np.where(to_end < limit, to_end, mean / 2)
