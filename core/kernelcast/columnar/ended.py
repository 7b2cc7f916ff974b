"""Series that were there and are no more: said once, so that readers need not wait for their time-to-live."""

from collections.abc import Hashable, Iterable
from typing import Final

from kernelcast.columnar.samples import Sample
from kernelcast.columnar.series import Attributes
from kernelcast.wire.catalogue import Kind, Metric

_STATES: Final = (Kind.GAUGE, Kind.INFO)
"""What states a present fact. Counters and histograms are history, which stays true when nobody adds to it."""


class EndedSeries:
    """Compares what each group of series says with what it said before.

    ::

        samples = ended.complete("train", samples, now_ns)
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, frozenset[tuple[Metric, Attributes]]] = {}

    def complete(self, group: Hashable, samples: Iterable[Sample], time_ns: int) -> list[Sample]:
        """The samples, and one without a value for each gauge or info series that the group no longer has.

        Args:
            group: Whose series these are; all of them must be among `samples`, every time.
            samples: What the group says now.
            time_ns: When it says so, Unix nanoseconds.
        """
        said = list(samples)
        now = frozenset((one.metric, one.attributes) for one in said if one.metric.kind in _STATES)
        gone = self._last.get(group, frozenset()) - now
        if now:
            self._last[group] = now
        else:
            self._last.pop(group, None)
        said += [Sample(metric, attributes, time_ns, None) for metric, attributes in sorted(gone, key=_order)]
        return said


def _order(series: tuple[Metric, Attributes]) -> tuple[str, Attributes]:
    return series[0].prometheus_name, series[1]
