"""Series that exist no longer: each is sent once without a value, so that readers need not wait for their time-to-live.

The exporter and the predictor pass all samples of a group through `EndedSeries.complete` before they encode them.
"""

from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from kernelcast.columnar.encoding.samples import Sample
from kernelcast.columnar.series import Attributes
from kernelcast.wire.catalogue import Kind, Metric

_STATES: Final = (Kind.GAUGE, Kind.INFO)
"""Kinds that state a present fact. Counters and histograms are history, which stays true without further samples."""

_Series = tuple[str, Attributes]
"""A metric's name on `/metrics`, which is unique, and the labels."""
_Known = Mapping[_Series, Metric]
Group = TypeVar("Group", bound=Hashable)


class EndedSeries(Generic[Group]):
    """Compares each group's samples with its previous ones, and ends the series that are missing. For one thread.

    ::

        samples = ended.complete("train", samples, now_ns)

    Args:
        patience: Calls of `complete` in a row without a series after which it has ended, at least 1.
        exclusive: Labels that have one value at a time: a missing series ends at once where its group has one that
            differs only in these labels.
    """

    def __init__(self, *, patience: int = 1, exclusive: Container[str] = ()) -> None:
        self._patience = patience
        self._exclusive = exclusive
        self._previous: dict[Group, _Known] = {}
        self._missed: dict[Group, dict[_Series, tuple[Metric, int]]] = {}
        self._shapes: dict[Group, list[tuple[Metric, Attributes]]] = {}

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups with a series that has not ended."""
        return tuple(self._previous)

    def complete(self, group: Group, samples: Iterable[Sample], time_ns: int) -> list[Sample]:
        """The samples, and one without a value for each gauge or info series that the group no longer has.

        Args:
            group: The group of series; `samples` must contain all of its samples each time.
            samples: The group's present samples.
            time_ns: Time of the samples, Unix nanoseconds.
        """
        completed = list(samples)
        # Most groups have the same series each time; comparing labels costs less than hashing them.
        shape = [(one.metric, one.attributes) for one in completed]
        if shape == self._shapes.get(group) and not self._missed.get(group):
            return completed
        now = {
            (one.metric.prometheus_name, one.attributes): one.metric for one in completed if one.metric.kind in _STATES
        }
        before, missed = self._previous.get(group, {}), self._missed.get(group, {})
        misses = {series: (before[series], 1) for series in before.keys() - now.keys()}
        misses |= {series: (missed[series][0], missed[series][1] + 1) for series in missed.keys() - now.keys()}
        present = {self._without_exclusive(series) for series in now} if misses else set[_Series]()
        ended = {
            series: metric
            for series, (metric, count) in misses.items()
            if count >= self._patience or self._without_exclusive(series) in present
        }
        self._keep(group, now, {series: known for series, known in misses.items() if series not in ended})
        if group in self._previous:
            self._shapes[group] = shape
        else:
            self._shapes.pop(group, None)
        completed += [Sample(metric, series[1], time_ns, None) for series, metric in sorted(ended.items(), key=_order)]
        return completed

    def _without_exclusive(self, series: _Series) -> _Series:
        name, attributes = series
        return name, tuple(pair for pair in attributes if pair[0] not in self._exclusive)

    def _keep(self, group: Group, now: _Known, missed: dict[_Series, tuple[Metric, int]]) -> None:
        self._previous[group], self._missed[group] = now, missed
        if not now and not missed:
            del self._previous[group], self._missed[group]


def _order(ended: tuple[_Series, Metric]) -> _Series:
    return ended[0]
