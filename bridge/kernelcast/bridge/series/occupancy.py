"""How near the store's limits are, and what they keep out: read at each scrape of the bridge's own metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Collected
from prometheus_client.registry import Collector

from kernelcast.bridge.tables.producers import LIMITS, NOBODY, ProducerIndex, Producers
from kernelcast.bridge.tables.slots import Slots
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import bridge as rows

MAX_PRODUCERS_LISTED: Final = 20
"""Producers of which it is said how many of their series are refused: those with the most."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The state of a store's limits.

    Attributes:
        used: By limit, its used share where it is used most.
        refused: Series refused for want of room, by cause.
        refused_of: The same of some producers, by job, instance and cause; those with the most.
        type_conflicts: Series refused because a metric of another kind has their name, by metric.
        help_conflicts: Series that came with another help than their metric's.
        unlisted: Series of producers for which there was no row.
        producers: How many have one.
        dropped_exemplars: Points whose exemplars were not kept for want of room.
    """

    used: Mapping[str, float]
    refused: Mapping[str, int]
    refused_of: Mapping[tuple[str, str, str], int]
    type_conflicts: Mapping[str, int]
    help_conflicts: int
    unlisted: int
    producers: int
    dropped_exemplars: int

    @classmethod
    def of(cls, slots: Slots, producers: Producers, survey: ProducerIndex, dropped_exemplars: int) -> Self:
        """Look at a store that is locked meanwhile."""
        limits, families = slots.limits, slots.families
        largest = max((family.lines for family in families.by_number if family is not None), default=0)
        lines = slots.producer_lines.copy()
        lines[NOBODY] = 0
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
    """Makes the metrics of an occupancy, in prometheus_client's registry."""

    def __init__(self, ask: Callable[[], Occupancy]) -> None:
        """Ask at every scrape."""
        self._ask = ask

    def collect(self) -> Iterable[Collected]:
        """The families; counters start at 0."""
        now = self._ask()
        yield _gauge(rows.LIMIT_USED, {(limit,): ratio for limit, ratio in now.used.items()})
        yield _gauge(rows.REFUSED_SERIES, {(cause,): count for cause, count in now.refused.items()})
        yield _gauge(rows.PRODUCER_REFUSED, now.refused_of)
        yield _gauge(rows.PRODUCERS, {(): now.producers})
        conflicts = now.type_conflicts or {"other": 0}
        yield _counter(rows.TYPE_CONFLICTS, {(metric,): count for metric, count in conflicts.items()})
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
