"""Use of the store's limits, and the series that they refuse, as metrics: `Bridge` registers the collector."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Collected
from prometheus_client.registry import Collector

from kernelcast.bridge.tables.columns import FREE, LIVE, OWN, SeriesColumns, UInt8Array
from kernelcast.bridge.tables.producers import LIMITS, UNLISTED_PRODUCER, ProducerIndex, Producers
from kernelcast.bridge.tables.slots import Slots
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import bridge as rows

MAX_PRODUCERS_LISTED: Final = 20
"""Producers that are listed by name with their refused series: those with the most."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The state of a store's limits.

    Attributes:
        used: By limit, its highest used share.
        refused: Series refused because of a limit, by cause.
        refused_of: The same by job, instance and cause, for the producers with the most.
        type_conflicts: Series refused because a metric of another kind has their name, by metric.
        name_conflicts: Series refused because another metric has their name and labels, by metric.
        help_conflicts: Series whose help text differs from their metric's.
        unlisted: Series of producers beyond the limit of producers.
        producers: Number of producers within that limit.
        dropped_exemplars: Points whose exemplars were dropped because of a limit.
    """

    used: Mapping[str, float]
    refused: Mapping[str, int]
    refused_of: Mapping[tuple[str, str, str], int]
    type_conflicts: Mapping[str, int]
    name_conflicts: Mapping[str, int]
    help_conflicts: int
    unlisted: int
    producers: int
    dropped_exemplars: int

    @classmethod
    def of(cls, slots: Slots, producers: Producers, survey: ProducerIndex, dropped_exemplars: int) -> Self:
        """Read the state of a store; the caller holds its lock."""
        limits, families = slots.limits, slots.families
        largest = max((family.lines for family in families.by_number if family is not None), default=0)
        lines = slots.producer_lines.copy()
        lines[UNLISTED_PRODUCER] = 0
        by_cause = survey.refused.sum(axis=0)
        return cls(
            {
                "series": slots.lines / limits.series,
                "series_per_metric": largest / limits.series_per_metric,
                "series_per_producer": int(lines.max()) / limits.series_per_producer,
                "producers": len(producers) / producers.most,
            },
            {cause: int(by_cause[column]) for column, cause in enumerate(LIMITS.values())},
            _worst(producers, survey),
            dict(families.type_conflicts),
            dict(slots.names.conflicts),
            families.help_conflicts,
            producers.unlisted,
            len(producers),
            dropped_exemplars,
        )


def _worst(producers: Producers, survey: ProducerIndex) -> dict[tuple[str, str, str], int]:
    totals = survey.refused.sum(axis=1)
    worst = [number for number in np.argsort(-totals, kind="stable")[:MAX_PRODUCERS_LISTED].tolist() if totals[number]]
    return {
        (*producers.name(number), cause): int(survey.refused[number, column])
        for number in worst
        for column, cause in enumerate(LIMITS.values())
        if survey.refused[number, column]
    }


class OccupancyCollector(Collector):
    """Collector of prometheus_client's registry for the metrics of an occupancy."""

    def __init__(self, ask: Callable[[], Occupancy]) -> None:
        """Call `ask` at every scrape."""
        self._ask = ask

    def collect(self) -> Iterable[Collected]:
        """Return the families; counters start at 0."""
        now = self._ask()
        yield _gauge(rows.LIMIT_USED, {(limit,): ratio for limit, ratio in now.used.items()})
        yield _gauge(rows.REFUSED_SERIES, {(cause,): count for cause, count in now.refused.items()})
        yield _gauge(rows.PRODUCER_REFUSED, now.refused_of)
        yield _gauge(rows.PRODUCERS, {(): now.producers})
        for row, conflicts in ((rows.TYPE_CONFLICTS, now.type_conflicts), (rows.NAME_CONFLICTS, now.name_conflicts)):
            yield _counter(row, {(metric,): count for metric, count in (conflicts or {"other": 0}).items()})
        yield _counter(rows.HELP_CONFLICTS, {(): now.help_conflicts})
        yield _counter(rows.UNLISTED_SERIES, {(): now.unlisted})
        yield _counter(rows.DROPPED_EXEMPLARS, {(): now.dropped_exemplars})


def _gauge(row: Metric, values: Mapping[Any, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(row.prometheus_name, row.help, labels=row.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _counter(row: Metric, values: Mapping[Any, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(row.prometheus_name, row.help, labels=row.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def states_of(series: SeriesColumns, used: int, exposed: UInt8Array) -> dict[str, int]:
    """Return the numbers of series by state, without those of the bridge itself.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        exposed: By partition number, 0 where its series are hidden.
    """
    theirs = series.writer[:used] != OWN
    live = theirs & (series.state[:used] == LIVE)
    is_exposed = exposed[series.partition[:used]] != 0
    kept = theirs & (series.state[:used] != FREE)
    held = live & is_exposed & (series.held_ms[:used] != 0)
    states = {
        "exposed": live & is_exposed & ~held,
        "catching_up": live & ~is_exposed,
        "held": held,
        "absent": kept & ~live,
    }
    return {name: int(np.count_nonzero(mask)) for name, mask in states.items()}
