"""A Prometheus in memory: answers the queries of the predictor without Kafka from samples that a test gives it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernelcast.predictor.prometheus import RangeSeries, TimeRange

if TYPE_CHECKING:
    from kernelcast.wire.errors import PrometheusError

_NAMES = re.compile(r'__name__=~"([^"]*)"')
_WINDOW = re.compile(r"\[(\d+)(ms|s|m)\]")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


class PrometheusDouble:
    """Samples by series; `pages` evaluates `last_over_time` and the averages of a refill, `query` the newest samples.

    Attributes:
        queries: Expressions that were asked, with the times of ranges.
        error: Raised by each query while it is set.
        points: Points per page.
    """

    def __init__(self, points: int = 11_000) -> None:
        self.samples: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        self.queries: list[tuple[str, TimeRange | None]] = []
        self.error: PrometheusError | None = None
        self.points = points

    def add(self, name: str, labels: Mapping[str, str], samples: Sequence[tuple[float, float]]) -> None:
        """Add samples of a series: time and value, ascending."""
        key = tuple(sorted({**labels, "__name__": name}.items()))
        self.samples.setdefault(key, []).extend(samples)

    def pages(self, query: str, time_range: TimeRange, /) -> Iterator[Sequence[RangeSeries]]:
        """Evaluate a range."""
        for page in time_range.pages(self.points):
            self._asked(query, page)
            yield self._evaluated(query, page)

    def query(self, query: str, *, at_seconds: float) -> list[RangeSeries]:
        """Evaluate a selector, of an instant or of a range in seconds."""
        self._asked(query, None)
        name, _, window = query.partition("[")
        if window:
            width = float(window.rstrip("s]"))
            return [
                RangeSeries(key, np.array([at for at, _ in inside]), np.array([value for _, value in inside]))
                for key, samples in self.samples.items()
                if dict(key)["__name__"] == name
                and (inside := [one for one in samples if at_seconds - width < one[0] <= at_seconds])
            ]
        found = []
        for key, samples in self.samples.items():
            newest = [value for at, value in samples if at_seconds - 300.0 < at <= at_seconds]
            if dict(key)["__name__"] == query and newest:
                found.append(RangeSeries(key, np.array([at_seconds]), np.array(newest[-1:])))
        return found

    def _asked(self, query: str, time_range: TimeRange | None) -> None:
        self.queries.append((query, time_range))
        if self.error is not None:
            raise self.error

    def _evaluated(self, query: str, page: TimeRange) -> list[RangeSeries]:
        chosen = _NAMES.search(query)
        names = set(chosen.group(1).split("|")) if chosen else {re.split(r"[({\[]", query)[-3 if "{" in query else -2]}
        number, unit = _WINDOW.findall(query)[0]
        width = float(number) * _UNITS[unit]
        ends = page.start_seconds + page.step_seconds * np.arange(page.points)
        is_last = query.startswith("last_over_time")
        found = []
        for key, samples in self.samples.items():
            if dict(key)["__name__"] not in names:
                continue
            seconds, values = [], []
            for end in ends.tolist():
                inside = [value for at, value in samples if end - width < at <= end]
                if inside:
                    seconds.append(end)
                    values.append(inside[-1] if is_last else float(np.median(inside)))
            labels = key if is_last else tuple(pair for pair in key if pair[0] != "__name__")
            if seconds:
                found.append(RangeSeries(labels, np.array(seconds), np.array(values)))
        return found
