"""The process's own metrics, kept by prometheus_client, in a scrape's format; `Exposition` appends them to a page."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Sample

from kernelcast.bridge.expose import client_model
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.layouts.view import SeriesView
from kernelcast.columnar.encoding.fields import varint
from kernelcast.runtime.instruments import WithoutCreated

_SUFFIXES: Final = {"counter": "_total", "info": "_info"}
"""Suffix that text adds to a family's name, by prometheus_client's type."""
_SINGLE_VALUES: Final = {
    "counter": (client_model.COUNTER, "counter"),
    "gauge": (client_model.GAUGE, "gauge"),
    "info": (client_model.GAUGE, "gauge"),
    "unknown": (client_model.UNTYPED, "untyped"),
}
"""Types with one value for each series, by name: number of `MetricType`, and the field of `Metric` with the value."""


class OwnMetrics:
    """Writes the metrics of a registry; any thread may call it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Write this registry's metrics, without the `_created` series that prometheus_client adds."""
        self._registry = WithoutCreated(registry)

    def page(self, format: Format, view: SeriesView) -> bytes:  # noqa: A002  its name
        """Return the registry's metrics that belong to a view, and the end of a page in this format."""
        families = [family for family in self._families(view) if family.samples]
        if format is Format.PROTOBUF:
            return b"".join(_delimited(message) for family in families for message in _messages(family))
        if format is Format.OPENMETRICS:
            body: bytes = generate_openmetrics(_Collected(families))  # type: ignore[no-untyped-call]
            return body
        return generate_latest(_Collected(families))

    def _families(self, view: SeriesView) -> Iterable[Family]:
        if not view.includes_process_metrics:
            return []
        return [family for family in self._registry.collect() if view.shows(_text_name(family))]


class _Collected:
    """Collected families, with the method that prometheus_client's writers call on a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _text_name(family: Family) -> str:
    return family.name + _SUFFIXES.get(family.type, "")


def _delimited(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return varint(len(data)) + data


def _messages(family: Family) -> Iterator[Any]:
    """Yield a family as one message. A type without a message here becomes a message for each name of its samples."""
    if family.type == "histogram":
        yield _message(_text_name(family), family, client_model.HISTOGRAM, _histograms)
    elif family.type in _SINGLE_VALUES:
        number, field = _SINGLE_VALUES[family.type]
        yield _message(_text_name(family), family, number, _single_values(family.samples, field))
    else:
        for name in dict.fromkeys(sample.name for sample in family.samples):
            chosen = [sample for sample in family.samples if sample.name == name]
            yield _message(name, family, client_model.UNTYPED, _single_values(chosen, "untyped"))


def _message(name: str, family: Family, kind: int, fill: Callable[[Any, Family], None]) -> Any:
    """Return a `MetricFamily`, whose metrics `fill` adds."""
    message = client_model.MetricFamily(name=name, help=family.documentation, type=kind)
    if family.unit:
        message.unit = family.unit
    fill(message, family)
    return message


def _single_values(samples: Iterable[Sample], field: str) -> Callable[[Any, Family], None]:
    def fill(message: Any, _family: Family) -> None:
        for sample in samples:
            metric = _labelled(message, sample.labels)
            getattr(metric, field).value = sample.value

    return fill


def _histograms(message: Any, family: Family) -> None:
    """Add a metric for each label set, from its samples `_bucket` and `_sum`; the last bucket has the count."""
    known: dict[tuple[tuple[str, str], ...], Any] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        key = tuple(sorted(labels.items()))
        if key not in known:
            known[key] = _labelled(message, labels).histogram
        histogram = known[key]
        if sample.name.endswith("_bucket"):
            bound = float(sample.labels["le"])
            histogram.bucket.add(cumulative_count=int(sample.value), upper_bound=bound)
            if math.isinf(bound):
                histogram.sample_count = int(sample.value)
        elif sample.name.endswith("_sum"):
            histogram.sample_sum = sample.value


def _labelled(message: Any, labels: dict[str, str]) -> Any:
    """Add a metric with these labels."""
    metric = message.metric.add()
    for name, value in sorted(labels.items()):
        metric.label.add(name=name, value=value)
    return metric
