"""Fills windows and histories from Prometheus where there is no saved state, so that a first start has a past.

A thread of `service` calls it for some minutes after a start. Series are those that Kafka has already delivered: a
series of Prometheus belongs to one if it has the same metric and all of its labels; labels that a scrape adds do not
matter. Values that are known already are kept.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.prometheus import RangeSeries, TimeRange
from kernelcast.predictor.series.histories import CHUNK_ROWS, Histories
from kernelcast.predictor.series.rings import EMPTY
from kernelcast.predictor.series.saved.rows import SpanValues
from kernelcast.predictor.series.subjects import VARIANT, Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, Metric
from kernelcast.wire.catalogue.kernel import (
    PROBE_RUNNING,
    PROGRAM_LABELS,
    VARIANT_LAUNCHES,
    VARIANT_SECONDS,
)
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER
from kernelcast.wire.catalogue.windows import WINDOWED, measured_time
from kernelcast.wire.errors import PrometheusError

_log = get_logger(__name__)

PAST_BLOCKS: Final = 12
"""A series with this many blocks has a past."""
LEAST_RATE_SECONDS: Final = 60
POINTS_AT_ONCE: Final = 1_000_000
"""Points of all series of a metric in one answer."""
_SETTLING_SPANS: Final = 2
"""The newest spans are left to Kafka: a series may still be in them."""


class RangeReader(Protocol):
    """Reads ranges from Prometheus in parts."""

    def pages(self, query: str, time_range: TimeRange, /) -> Iterator[Sequence[RangeSeries]]:
        """Yield the range in parts, the oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class _Resolution:
    """One of the three resolutions.

    Attributes:
        spans: Where values go.
        span_ns: Length of a span.
        last: Number of the last span to fill.
    """

    spans: SpanValues
    span_ns: int
    last: int

    @property
    def seconds(self) -> float:
        return self.span_ns / NANOSECONDS_PER_SECOND


class Past:
    """Fills series without a past; one thread calls it."""

    def __init__(  # noqa: PLR0913  the series, where they go, and how they are found
        self,
        open_reader: Callable[[int], RangeReader],
        windows: Windows,
        histories: Histories,
        lock: threading.RLock,
        *,
        filled: Callable[[Ints], None],
        matched: "Matched | None" = None,
        matchers: str = "",
        hours: bool | None = None,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            open_reader: Makes a reader of this many points per series and answer.
            windows: The series.
            histories: Their blocks and hours.
            lock: Protects both.
            filled: Called with rows that have another past now.
            matched: Finds the row of a series of a metric among the rows that are asked for; None by all labels.
            matchers: Labels that series must have, as PromQL writes them.
            hours: True fills hours alone, in all rows; False blocks and windows alone; None all where blocks are few.
        """
        self._open_reader = open_reader
        self._windows = windows
        self._histories = histories
        self._lock = lock
        self._filled = filled
        self._matched = matched or _by_all_labels
        self._matchers = matchers
        self._hours = hours
        self._requested: Ints = np.zeros(0, np.int64)  # by row, the generation that was asked for
        self._wanted_generation: Ints = np.zeros(0, np.int64)  # by row, the generation that is being asked for

    def fill(self, now_seconds: float) -> int:
        """Fill the series that have no past and were not asked for yet; returns the number of series with values.

        Raises:
            PrometheusError: Prometheus is unreachable, or refused a query, which does not keep it from others; the
                next call asks again.
        """
        filled: set[int] = set()
        for _ in self.fill_by_metric(now_seconds, filled):
            pass
        if filled:
            _log.info("past read from Prometheus", series=len(filled))
        return len(filled)

    def fill_by_metric(self, now_seconds: float, filled: set[int]) -> Iterator[tuple[int, int]]:
        """Fill as `fill` does; yields the number of metrics that are done, and of all, after each.

        Args:
            now_seconds: The time of this machine.
            filled: Gets the rows with values.

        Raises:
            PrometheusError: As `fill`.
        """
        refusal, wanted = None, self._wanted()
        for number, ((metric, form), subjects) in enumerate(wanted.items(), 1):
            row_of = self._matched(metric, subjects)
            try:
                for resolution in self._resolutions(now_seconds):
                    query = range_query(metric, form, resolution.seconds, self._matchers)
                    filled |= self._fill(query, row_of, resolution, len(subjects))
            except PrometheusError as error:
                if not error.status or error.retry_after_seconds:
                    raise
                refusal = error
                continue
            requested = np.array(list(subjects.values()))
            self._requested[requested] = self._wanted_generation[requested]
            yield number, len(wanted)
        if refusal is not None:
            raise refusal

    def _wanted(self) -> dict[tuple[str, Form], dict[Subject, int]]:
        wanted: dict[tuple[str, Form], dict[Subject, int]] = defaultdict(dict)
        with self._lock:
            items = list(self._windows.items())
            rows = np.array([row for _, row in items], np.int64)
            more = max(int(rows.max(initial=-1)) + 1 - len(self._requested), 0)
            self._requested = np.concatenate([self._requested, np.zeros(more, np.int64)])
            self._wanted_generation = self._windows.generation.copy()
            requested = self._requested[rows] == self._wanted_generation[rows]
        has_past = np.zeros(len(rows), np.bool_) if self._hours else self._histories.known_blocks(rows) >= PAST_BLOCKS
        for (subject, row), without in zip(items, (~requested & ~has_past).tolist(), strict=True):
            if without:
                wanted[subject.metric, subject.form][subject] = row
        return wanted

    def _resolutions(self, now_seconds: float) -> Iterator[_Resolution]:
        now_ns = round(now_seconds * NANOSECONDS_PER_SECOND)
        histories = self._histories
        spans = histories.spans
        sizes: list[tuple[SpanValues, int]] = [
            (spans["blocks"], histories.block_ns),
            (self._windows, self._windows.interval_ns),
            (spans["hours"], histories.block_ns * histories.hour_blocks),
        ]
        if self._hours is not None:
            sizes = sizes[2:] if self._hours else sizes[:2]
        for ring, span_ns in sizes:
            yield _Resolution(ring, span_ns, now_ns // span_ns - _SETTLING_SPANS)

    def _fill(self, query: str, row_of: "RowOf", resolution: _Resolution, series: int) -> set[int]:
        count = resolution.spans.length - _SETTLING_SPANS
        # The value at a moment is that of the span which ends there.
        end = (resolution.last + 1) * resolution.seconds
        time = TimeRange(end - (count - 1) * resolution.seconds, end, resolution.seconds)
        filled: set[int] = set()
        for page in self._open_reader(max(POINTS_AT_ONCE // series, 1)).pages(query, time):
            matched = [(row, one) for one in page if (row := row_of(one)) is not None]
            for begin in range(0, len(matched), CHUNK_ROWS):
                filled |= self._insert(resolution, matched[begin : begin + CHUNK_ROWS])
        return filled

    def _insert(self, resolution: _Resolution, series: list[tuple[int, RangeSeries]]) -> set[int]:
        """Insert values; returns the rows that have not gone to another series since."""
        first = min(float(values_read.seconds[0]) for _, values_read in series)
        count = resolution.last - self._number(resolution, np.array([first]))[0] + 1
        # Several series of Prometheus belong to a row where a scrape has changed its own labels.
        places = {row: place for place, row in enumerate(dict.fromkeys(row for row, _ in series))}
        values = np.full((len(places), int(count)), np.nan, np.float32)
        for row, values_read in series:
            columns = self._number(resolution, values_read.seconds) - resolution.last + count - 1
            known = values[places[row], columns]
            values[places[row], columns] = np.where(np.isnan(known), values_read.values, known)
        rows = np.array(list(places))
        with self._lock:
            held = self._windows.generation[rows] == self._wanted_generation[rows]
            rows, values = rows[held], values[held]
            self._histories.prepare(rows)
            insert(resolution.spans, rows, resolution.last, values)
        self._filled(rows)
        return set(rows.tolist())

    def _number(self, resolution: _Resolution, seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
        """Numbers of the spans that end at these moments."""
        numbers: Ints = np.round(seconds / resolution.seconds).astype(np.int64) - 1
        return numbers


RowOf = Callable[[RangeSeries], int | None]
"""The row of a series; None if none wants it."""
Matched = Callable[[str, Mapping[Subject, int]], RowOf]
"""From a metric, and the rows that are asked for."""
RowsByLabels = dict[tuple[str, ...], dict[tuple[str, ...], int]]
"""By the names of labels, then by their values."""


def insert(spans: SpanValues, rows: Ints, last: int, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    """Add earlier values where none are known.

    Args:
        spans: The windows or a ring.
        rows: Shape (n,), each at most once.
        last: Number of the span of the last column.
        values: Shape (n, count), oldest first; NaN where nothing is known.
    """
    before = spans.newest[rows]
    newest = np.where(before == EMPTY, last, before)
    whole = spans.read(rows, newest, spans.length)
    columns = (spans.length - 1 - (newest - last))[:, None] + np.arange(1 - values.shape[1], 1)
    at, column = np.nonzero((columns >= 0) & (columns < spans.length) & np.isfinite(values))
    missing = np.isnan(whole[at, columns[at, column]])
    at, column = at[missing], column[missing]
    whole[at, columns[at, column]] = values[at, column]
    spans.fill(rows, newest, whole)


def _by_all_labels(_metric: str, subjects: Mapping[Subject, int]) -> RowOf:
    return partial(_row_of, _by_labels(subjects))


def _by_labels(subjects: Mapping[Subject, int]) -> RowsByLabels:
    rows: RowsByLabels = defaultdict(dict)
    for subject, row in subjects.items():
        names = tuple(name for name, _ in subject.labels)
        rows[names][tuple(value for _, value in subject.labels)] = row
    return rows


def _row_of(rows: RowsByLabels, series: RangeSeries) -> int | None:
    labels = dict(series.labels)
    for names in sorted(rows, key=len, reverse=True):
        row = rows[names].get(tuple(labels.get(name, "") for name in names))
        if row is not None and len(series.seconds):
            return row
    return None


def range_query(metric: str, form: Form, seconds: float, matchers: str = "") -> str:
    """The value of a span at its end.

    Args:
        metric: Its name in Prometheus.
        form: How its points become values.
        seconds: Length of the span.
        matchers: Labels that the series must have, such as `cluster="a"`.
    """
    chosen = f"{{{matchers}}}" if matchers else ""
    span = f"{chosen}[{max(round(seconds), 1)}s]"
    if form == Form.LEVEL:
        averaged = MEANINGS.get(metric, OTHER).resolution > 0
        return f"avg_over_time({metric}{span})" if averaged else f"quantile_over_time(0.5, {metric}{span})"
    rated = f"{chosen}[{max(round(seconds), LEAST_RATE_SECONDS)}s]"
    if form == Form.RATE:
        rate = f"rate({metric}{rated})"
        row = BY_PROMETHEUS_NAME.get(metric)
        return f"{rate} / {_measured_share(row, rated)}" if row in WINDOWED else rate
    if metric == VARIANT:
        total, count = VARIANT_SECONDS.prometheus_name, VARIANT_LAUNCHES.prometheus_name
        return f"rate({total}{rated}) / rate({count}{rated})"
    whole = f"rate({metric}{rated})"
    classic = f"rate({metric}_sum{rated}) / rate({metric}_count{rated})"
    return f"({classic}) or (histogram_sum({whole}) / histogram_count({whole}))"


def _measured_share(row: Metric, window: str) -> str:
    """The divisor of a rate of what was seen in the measured time; 1 for programs that do not count it."""
    measured, running = (f"rate({time.prometheus_name}{window})" for time in (measured_time(row), PROBE_RUNNING))
    program = ", ".join(PROGRAM_LABELS)
    shares = f"max by ({program}) ({measured} / ({running} > 0)) or group by ({program}) ({row.prometheus_name})"
    return f"on ({program}) group_left () (({shares}) > 0)"


def fill_or_warn(past: Past, now_seconds: float) -> int:
    """Fill; a failure is logged, and the next call asks again."""
    try:
        return past.fill(now_seconds)
    except PrometheusError as error:
        _log.warning("past not read from Prometheus", reason=str(error))
        return 0
