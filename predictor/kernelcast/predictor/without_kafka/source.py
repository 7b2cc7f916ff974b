"""Reads the newest intervals of all admitted series from Prometheus, and writes them into the windows.

One query gives all gauges and counters: `last_over_time` keeps names, and leaves an interval without a sample empty,
where a plain selector would repeat a value for five minutes. Each histogram needs a query of its own. Nothing is lost
while Prometheus is slow, restarts or throttles: the next query asks from the last interval on. Only an outage that is
longer than a window leaves intervals out, which are counted, and which `PastReader` asks for as blocks.

One thread uses it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.prometheus import RangeSeries, TimeRange
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.series.windows import EMPTY, NOT_ADMITTED, WindowArray
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.state.past import RangeReader, insert, range_query
from kernelcast.predictor.without_kafka.admission import OWNER, Admission
from kernelcast.predictor.without_kafka.limits import slowdown_temperature
from kernelcast.predictor.without_kafka.measures import PrometheusMeasures
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.catalogue.devices.device import GPU_TEMP, SLOWDOWN_TEMP

LATE_INTERVALS: Final = 3
"""Intervals that are asked for once more, as samples of some targets may come late."""
POINTS_AT_ONCE: Final = 1_000_000
"""Points of all series in one answer."""

_log = get_logger(__name__)

Device = tuple[str, str]
"""UUID and instance of a GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Values of some rows in consecutive intervals.

    Attributes:
        rows: Shape (n,), each at most once.
        last: Number of the last interval.
        values: Shape (n, k), oldest first; NaN without a sample.
    """

    rows: Ints
    last: int
    values: Floats


class Source:
    """Keeps the windows of an engine up to date.

    Attributes:
        admission: The rows of the series.
        read_until: Number of the newest interval that was read; None before the first poll.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        engine: Engine,
        open_reader: Callable[[int], RangeReader],
        *,
        measures: PrometheusMeasures,
        clock_seconds: Callable[[], float],
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            settings: Of the predictor; `interval_seconds` is the grid.
            engine: Has the windows.
            open_reader: Makes a reader of Prometheus whose parts have at most this number of points per series.
            measures: Counts what is missing.
            clock_seconds: The time of this machine, Unix.
        """
        self._settings, self._engine, self._open_reader = settings, engine, open_reader
        self._measures, self._clock_seconds = measures, clock_seconds
        self.admission = Admission(settings, engine)
        self.read_until: int | None = None
        self._unknown: set[tuple[str, str, str]] = set()

    @property
    def due_seconds(self) -> float:
        """Time until a poll would find another interval."""
        if self.read_until is None:
            return 0.0
        interval = self._settings.interval_seconds
        ready = (self.read_until + 2) * interval + self._settings.prometheus.delay_seconds
        return max(ready - self._clock_seconds(), 0.0)

    def poll(self) -> bool:
        """Read the intervals that have ended since the last poll; returns whether some were left out.

        Raises:
            PrometheusError: Prometheus did not answer; the next poll asks for the same intervals.
        """
        now_seconds = self._clock_seconds()
        interval, windows = self._settings.interval_seconds, self._engine.windows
        until = int((now_seconds - self._settings.prometheus.delay_seconds) // interval) - 1
        if self.read_until is not None and until <= self.read_until:
            return False
        block = self._engine.cycle.histories.block_intervals
        before = self.read_until if self.read_until is not None else until - block
        first = max(before + 1, until - windows.points + 1)
        if first > before + 1:
            self._measures.skipped((first - before - 1) * max(len(windows), 1))
            _log.warning("intervals left out", intervals=first - before - 1, reason="no answer for long")
        time = self._range(max(first - LATE_INTERVALS, until - windows.points + 1), until)
        reader = self._open_reader(max(POINTS_AT_ONCE // max(len(windows), 1), 1))
        for page in reader.pages(self._live_query(), time):
            self._take(page, now_seconds)
        for name in self.admission.names(Kind.HISTOGRAM):
            query = range_query(name, Form.MEAN, interval, self._settings.prometheus.matchers)
            for page in reader.pages(query, time):
                self._take(page, now_seconds, metric=name)
        self.read_until = until
        foreign, unknown = self.admission.foreign, self._unknown_models()
        self._measures.read(until=(until + 1) * interval, foreign=foreign, unknown=unknown)
        return first > before + 1

    def expire(self) -> None:
        """Forget series that are silent."""
        windows = self._engine.windows
        if self._engine.expire():
            with self._engine.lock:
                self.admission.forget(set(range(len(windows.owner))) - set(windows.rows().tolist()))

    def _live_query(self) -> str:
        names = "|".join(self.admission.names(Kind.GAUGE, Kind.COUNTER))
        matchers = self._settings.prometheus.matchers
        chosen = f'__name__=~"{names}"' + (f",{matchers}" if matchers else "")
        return f"last_over_time({{{chosen}}}[{self._settings.interval_seconds * 1000:.0f}ms])"

    def _range(self, first: int, last: int) -> TimeRange:
        """The ends of intervals."""
        interval = self._settings.interval_seconds
        return TimeRange((first + 1) * interval, (last + 1) * interval, interval)

    def _take(self, page: Sequence[RangeSeries], now_seconds: float, *, metric: str = "") -> None:
        page = [series for series in page if len(series.seconds)]
        if not page:
            return
        with self._engine.lock:
            rows = np.array([self.admission.row(series.labels, metric) for series in page], np.int64)
            self._measures.points(sum(len(series.seconds) for series in page))
            counters, levels = self._split(rows, page)
            self._write_levels(levels, now_seconds)
            self._write_totals(counters, now_seconds)
            self._write_limits(levels, now_seconds)

    def _split(self, rows: Ints, page: Sequence[RangeSeries]) -> tuple[Part | None, Part | None]:
        """The values of counters, and those of all others."""
        forms = np.array([self._form(row) for row in rows.tolist()])
        return self._part(rows, page, forms == Form.RATE), self._part(
            rows, page, (rows != NOT_ADMITTED) & (forms != Form.RATE)
        )

    def _form(self, row: int) -> int:
        subject = self._engine.windows.subject(row) if row != NOT_ADMITTED else None
        return -1 if subject is None else int(subject.form)

    def _part(self, rows: Ints, page: Sequence[RangeSeries], chosen: Bools) -> Part | None:
        """Join series of one row: at another job one of Prometheus' series ends, and another begins.

        Where both have a sample, that of the later beginner counts.
        """
        interval = self._settings.interval_seconds
        mine = [(int(rows[place]), page[place]) for place in np.flatnonzero(chosen).tolist()]
        if not mine:
            return None
        numbers = [np.round(series.seconds / interval).astype(np.int64) - 1 for _, series in mine]
        last = max(int(intervals[-1]) for intervals in numbers)
        count = last - min(int(intervals[0]) for intervals in numbers) + 1
        places = {row: place for place, row in enumerate(dict.fromkeys(row for row, _ in mine))}
        values = np.full((len(places), count), np.nan)
        for place in sorted(range(len(mine)), key=lambda place: int(numbers[place][0])):
            row, series = mine[place]
            values[places[row], numbers[place] - last + count - 1] = series.values
        return Part(np.array(list(places), np.int64), last, values)

    def _write_levels(self, part: Part | None, now_seconds: float) -> None:
        if part is None:
            return
        windows = self._engine.windows
        known = np.isfinite(part.values)
        ends = part.values.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
        newest = part.last - (part.values.shape[1] - 1) + ends
        with_value = known.any(axis=1)
        for end in np.unique(ends[with_value]).tolist():
            mine = with_value & (ends == end)
            rows, values = part.rows[mine], part.values[mine, : end + 1].astype(np.float32)
            before = windows.newest[rows]
            old = before != EMPTY
            insert(windows, rows[old], int(newest[mine][0]), values[old])
            self._count_missed(before, int(newest[mine][0]), values)
            windows.extend(rows, newest[mine], values)
            later = newest[mine] > before
            windows.touched[rows[later]] = now_seconds
            windows.last_ns[rows[later]] = ((newest[mine] + 1) * windows.interval_ns - 1)[later]

    def _count_missed(self, before: Ints, newest: int, values: WindowArray) -> None:
        """Count intervals between the newest one before and the newest one now that have no value."""
        numbers = newest - np.arange(values.shape[1] - 1, -1, -1)
        fresh = (before != EMPTY) & (before < newest)
        sampled = (np.isfinite(values) & (numbers > before[:, None])).sum(axis=1)
        self._measures.missed(int((newest - before - sampled)[fresh].sum()))

    def _write_totals(self, part: Part | None, now_seconds: float) -> None:
        if part is None:
            return
        windows = self._engine.windows
        start = np.zeros(len(part.rows), np.int64)
        for column in range(part.values.shape[1]):
            values = part.values[:, column]
            known = np.flatnonzero(np.isfinite(values))
            end_ns = (part.last - part.values.shape[1] + column + 2) * windows.interval_ns - 1
            times = np.full(len(known), end_ns)
            totals = (values[known], None)
            windows.put_totals(part.rows[known], times, start[known], totals, now_seconds=now_seconds)

    def _write_limits(self, part: Part | None, now_seconds: float) -> None:
        """Write the slowdown temperature of the GPUs whose exporter has none."""
        if part is None:
            return
        windows, origins = self._engine.windows, self._engine.cycle.limit_origins
        rows, celsius = [], []
        for row in part.rows.tolist():
            subject = windows.subject(row)
            if subject is None or subject.metric != GPU_TEMP.prometheus_name:
                continue
            device = subject.label("UUID"), subject.label("GPU_I_ID")
            if self.admission.has(SLOWDOWN_TEMP.prometheus_name, device):
                self._unknown = {gpu for gpu in self._unknown if gpu[1:] != device}
                origins.pop(device, None)
                continue
            limit = self._limit(subject.label("modelName"), device)
            if limit is not None:
                own = Subject(SLOWDOWN_TEMP.prometheus_name, Form.LEVEL, subject.labels)
                rows.append(windows.admit(own, owner=OWNER))
                celsius.append(limit[0])
                origins[device] = limit[1]
        admitted = np.array(rows, np.int64)
        kept = admitted != NOT_ADMITTED
        if kept.any():
            time_ns = np.full(int(kept.sum()), (part.last + 1) * windows.interval_ns - 1)
            windows.put_levels(admitted[kept], time_ns, np.array(celsius)[kept], now_seconds=now_seconds)

    def _limit(self, model: str, device: Device) -> tuple[float, str] | None:
        limit = slowdown_temperature(model, self._settings.prometheus.slowdown_temperatures)
        if limit is None and (model, *device) not in self._unknown:
            if not any(gpu[0] == model for gpu in self._unknown):
                _log.warning(
                    "no slowdown temperature is known for a GPU model",
                    model=model,
                    consequence="its temperature has no limit",
                    remedy="set predictor.prometheus.slowdown_temperatures, or let the exporter write "
                    f"{SLOWDOWN_TEMP.prometheus_name}",
                )
            self._unknown.add((model, *device))
        return limit

    def _unknown_models(self) -> dict[str, int]:
        models = [model for model, _, _ in self._unknown]
        return {model: models.count(model) for model in set(models)}
