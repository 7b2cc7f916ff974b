"""Fills the past of the series from Prometheus: two days of blocks at once, then five weeks of hours at low priority.

It asks metric by metric, the hours besides week by week, on the thread that polls the newest intervals: a poll that is
due goes first, so that at most one query runs at a time. After each part of the hours it waits for four times as long
as Prometheus took. `Past` does the work.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.prometheus import RangeSeries, TimeRange
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.state.past import Past, RangeReader, RowOf
from kernelcast.predictor.without_kafka.admission import Admission
from kernelcast.predictor.without_kafka.measures import PrometheusMeasures
from kernelcast.runtime.logging import get_logger

WEEK_HOURS: Final = 168
REST: Final = 4.0
"""Time without a query after a part of the hours, in multiples of the time that it took."""
LONGEST_REST_SECONDS: Final = 60.0

_log = get_logger(__name__)


class PastReader:
    """Reads the past of one engine's series. One thread uses it.

    Attributes:
        days_done: Whether two days of every series that was there at the start were asked for.
    """

    def __init__(  # noqa: PLR0913  the parts of the service
        self,
        engine: Engine,
        admission: Admission,
        open_reader: Callable[[int], RangeReader],
        *,
        matchers: str,
        measures: PrometheusMeasures,
        between: Callable[[float], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            engine: Has the series.
            admission: Finds their rows.
            open_reader: Makes a reader of Prometheus whose parts have at most this number of points per series.
            matchers: Labels that series must have.
            measures: Show how far it is.
            between: Called before each query with seconds to rest; polls the source meanwhile when that is due.
            monotonic: Monotonic seconds.
        """
        self._engine, self._admission, self._measures = engine, admission, measures
        self._between, self._monotonic = between, monotonic
        self.days_done = False
        self._weeks_done = False

        def past(*, hours: bool) -> Past:
            def paced(points: int) -> RangeReader:
                kept = min(points, WEEK_HOURS) if hours else points
                return _Paced(open_reader(kept), self._rest if hours else self._no_rest)

            return Past(
                paced,
                engine.windows,
                engine.cycle.histories,
                engine.lock,
                filled=self._filled,
                matched=self._matched,
                matchers=matchers,
                hours=hours,
            )

        self._days, self._weeks = past(hours=False), past(hours=True)

    def run(self, now_seconds: float) -> None:
        """Fill what is new since the last call; the first call takes as long as Prometheus needs.

        Raises:
            PrometheusError: Prometheus did not answer; the next call goes on.
        """
        self._run("days", self._days, now_seconds)
        if not self.days_done:
            own = len(self._admission)
            limits = len(self._engine.windows) - own
            _log.info("two days read from Prometheus", series=own, limits_by_model=limits)
        self.days_done = True
        self._run("weeks", self._weeks, now_seconds)
        if not self._weeks_done:
            _log.info("five weeks read from Prometheus", series=len(self._admission))
        self._weeks_done = True

    def _run(self, part: str, past: Past, now_seconds: float) -> None:
        for number, total in past.fill_by_metric(now_seconds, set()):
            self._measures.refilled(part, number / total)
            (_log.info if part == "days" and not self.days_done else _log.debug)(
                "reading the past from Prometheus", part=part, done=f"{100 * number / total:.0f} %"
            )
        self._measures.refilled(part, 1.0)

    def _filled(self, rows: Ints) -> None:
        self._engine.cycle.evaluate_again(rows)

    def _matched(self, metric: str, subjects: Mapping[Subject, int]) -> RowOf:
        wanted = set(subjects.values())

        def row_of(series: RangeSeries) -> int | None:
            if not len(series.seconds):
                return None
            with self._engine.lock:
                row = self._admission.find(series.labels, metric)
            return row if row in wanted else None

        return row_of

    def _rest(self, took_seconds: float) -> None:
        self._between(min(REST * took_seconds, LONGEST_REST_SECONDS))

    def _no_rest(self, _took_seconds: float) -> None:
        self._between(0.0)


class _Paced:
    """Reads a range in parts, with a rest between them."""

    def __init__(self, reader: RangeReader, rest: Callable[[float], None]) -> None:
        self._reader, self._rest = reader, rest

    def pages(self, query: str, time_range: TimeRange) -> Iterator[Sequence[RangeSeries]]:
        """Yield the range in parts."""
        began = time.monotonic()
        for page in self._reader.pages(query, time_range):
            took_seconds = time.monotonic() - began
            yield page
            self._rest(took_seconds)
            began = time.monotonic()
