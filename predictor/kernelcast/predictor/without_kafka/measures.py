"""The metrics of reading Prometheus; every known label set starts at 0."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.predictor.prometheus import PrometheusClient, RangeSeries, TimeRange
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import predictor as rows
from kernelcast.wire.errors import PrometheusError

THROTTLED: Final = 429
OUTCOMES: Final = ("answered", "throttled", "refused", "unreachable")
PARTS: Final = ("days", "weeks")


class PrometheusMeasures:
    """Counters and gauges of one source."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._queries = counter(rows.QUERIES, registry)
        self._seconds = counter(rows.QUERY_SECONDS, registry)
        self._points = counter(rows.PROMETHEUS_POINTS, registry)
        self._missed = counter(rows.MISSED, registry)
        self._foreign = gauge(rows.FOREIGN, registry)
        self._refilled = gauge(rows.REFILLED, registry)
        self._without_limit = gauge(rows.WITHOUT_LIMIT, registry)
        self._read_registered = False
        for outcome in OUTCOMES:
            self._queries.labels(outcome)
        for reason in ("no_sample", "outage"):
            self._missed.labels(reason)
        for part in PARTS:
            self._refilled.labels(part)

    def queried(self, outcome: str, seconds: float) -> None:
        """Count a query."""
        self._queries.labels(outcome).inc()
        self._seconds.inc(seconds)

    def points(self, count: int) -> None:
        """Count points of an answer."""
        self._points.inc(count)

    def missed(self, count: int) -> None:
        """Count intervals of single series without a sample."""
        self._missed.labels("no_sample").inc(count)

    def skipped(self, count: int) -> None:
        """Count intervals of single series that were not asked for."""
        self._missed.labels("outage").inc(count)

    def read(self, *, until: float, foreign: int, unknown: Mapping[str, int]) -> None:
        """Note what a poll has found.

        Args:
            until: End of the newest interval, Unix time.
            foreign: Series that name neither a GPU nor a program.
            unknown: Number of GPUs without a limit, by model.
        """
        if not self._read_registered:
            self._read_time = gauge(rows.READ_TIME, self._registry)
            self._read_registered = True
        self._read_time.set(until)
        self._foreign.set(foreign)
        self._without_limit.clear()
        for model, count in unknown.items():
            self._without_limit.labels(model).set(count)

    def refilled(self, part: str, share: float) -> None:
        """Note how far the past has been read."""
        self._refilled.labels(part).set(share)


class MeasuredClient:
    """A client of Prometheus that counts its queries. It sends one at a time."""

    def __init__(self, client: PrometheusClient, measures: PrometheusMeasures) -> None:
        self._client, self._measures = client, measures

    def pages(self, query: str, time_range: TimeRange) -> Iterator[Sequence[RangeSeries]]:
        """Yield the range in parts, the oldest first."""
        pages = self._client.pages(query, time_range)
        while True:
            began = time.monotonic()
            try:
                page = next(pages, None)
            except PrometheusError as error:
                self._measures.queried(_outcome(error), time.monotonic() - began)
                raise
            if page is None:
                return
            self._measures.queried("answered", time.monotonic() - began)
            yield page

    def query(self, query: str, *, at_seconds: float) -> list[RangeSeries]:
        """Evaluate an expression at one moment."""
        began = time.monotonic()
        try:
            series = self._client.query(query, at_seconds=at_seconds)
        except PrometheusError as error:
            self._measures.queried(_outcome(error), time.monotonic() - began)
            raise
        self._measures.queried("answered", time.monotonic() - began)
        return series


def _outcome(error: PrometheusError) -> str:
    if error.status == THROTTLED:
        return "throttled"
    return "refused" if error.status else "unreachable"
