"""Series that were there and are no more: said once, so that readers need not wait for their time-to-live."""

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from kernelcast.columnar.samples import Sample
from kernelcast.columnar.series import Attributes
from kernelcast.wire.catalogue import Kind, Metric

_STATES: Final = (Kind.GAUGE, Kind.INFO)
"""What states a present fact. Counters and histograms are history, which stays true when nobody adds to it."""

_Series = tuple[Metric, Attributes]
Group = TypeVar("Group", bound=Hashable)


class EndedSeries(Generic[Group]):
    """Compares what each group of series says with what it said before.

    ::

        samples = ended.complete("train", samples, now_ns)

    Args:
        patience: How many times in a row a series may be missing before it has ended, at least 1.
    """

    def __init__(self, *, patience: int = 1) -> None:
        self._patience = patience
        self._said: dict[Group, set[_Series]] = {}
        self._missed: dict[Group, dict[_Series, int]] = {}

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups with a series that has not ended."""
        return tuple(self._said)

    def complete(self, group: Group, samples: Iterable[Sample], time_ns: int) -> list[Sample]:
        """The samples, and one without a value for each gauge or info series that the group no longer has.

        Args:
            group: Whose series these are; all of them must be among `samples`, every time.
            samples: What the group says now.
            time_ns: When it says so, Unix nanoseconds.
        """
        said = list(samples)
        now = {(one.metric, one.attributes) for one in said if one.metric.kind in _STATES}
        missed = self._missed.get(group, {})
        absent = (self._said.get(group, set()) - now) | (missed.keys() - now)
        misses = {series: missed.get(series, 0) + 1 for series in absent}
        gone = [series for series, count in misses.items() if count >= self._patience]
        self._keep(group, now, {series: count for series, count in misses.items() if count < self._patience})
        said += [Sample(metric, attributes, time_ns, None) for metric, attributes in sorted(gone, key=_order)]
        return said

    def _keep(self, group: Group, now: set[_Series], missed: dict[_Series, int]) -> None:
        self._said[group], self._missed[group] = now, missed
        if not now and not missed:
            del self._said[group], self._missed[group]


def _order(series: _Series) -> tuple[str, Attributes]:
    return series[0].prometheus_name, series[1]
