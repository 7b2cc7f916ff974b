"""Exposes the last interval's samples as Prometheus text, for sites that scrape the exporter and run no Kafka.

prometheus_client is not used, because its counters all end with `_total`, and DCGM's do not. Format: text 0.0.4.
"""

import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from kernelcast.columnar import Sample
from kernelcast.exporter.delivery.publish import HOSTNAME_LABEL, named_host
from kernelcast.exporter.pipeline import Tick
from kernelcast.runtime.instruments import WithoutCreated
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS, DurationTotals, classic_counts
from kernelcast.wire.identity import Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TYPES: Final = {Kind.GAUGE: "gauge", Kind.INFO: "gauge", Kind.COUNTER: "counter", Kind.HISTOGRAM: "histogram"}
_BOUNDS: Final = tuple(repr(bound).removesuffix(".0") for bound in CLASSIC_BOUNDS_SECONDS)
"""Texts of bounds, as exporters in Go and the bridge write them in this format (`1`; OpenMetrics has `1.0`)."""


class IntervalExposition:
    """Answers `/metrics` with the samples of the last interval and the daemon's own metrics.

    The daemon's thread calls `show`, the web server's threads call `answer`.

    Args:
        registry: The daemon's own metrics.
        hostname_label: A label that has the host beside `Hostname`.
    """

    def __init__(self, registry: CollectorRegistry, *, hostname_label: str = HOSTNAME_LABEL) -> None:
        self._own = WithoutCreated(registry)
        self._hostname_label = hostname_label
        self._lock = threading.Lock()
        self._tick: Tick | None = None
        self._rendered = b""

    def show(self, tick: Tick) -> None:
        """Expose this interval from now on; the first scrape renders it."""
        with self._lock:
            self._tick = tick

    def answer(self, _request: Request) -> Response:
        """Answer one scrape."""
        return Response(self.page(), headers={"content-type": CONTENT_TYPE})

    def page(self) -> bytes:
        """The page: the samples of the last interval, and the daemon's own metrics."""
        return self._samples() + generate_latest(self._own)

    def _samples(self) -> bytes:
        with self._lock:
            if self._tick is not None:
                samples = [*self._tick.devices, *(one for group in self._tick.programs for one in group.samples)]
                self._rendered = render(named_host(sample, self._hostname_label) for sample in samples)
                self._tick = None
            return self._rendered


def render(samples: Iterable[Sample]) -> bytes:
    """Format samples as text 0.0.4, by family; rows that are only sent through Kafka are left out."""
    families: dict[Metric, list[Sample]] = {}
    for sample in samples:
        if sample.metric.exposed and sample.value is not None:
            families.setdefault(sample.metric, []).append(sample)
    lines: list[str] = []
    for metric, own in families.items():
        lines.append(f"# HELP {metric.prometheus_name} {_escape_help(metric.help)}")
        lines.append(f"# TYPE {metric.prometheus_name} {_TYPES[metric.kind]}")
        for sample in own:
            lines.extend(_lines(sample, _labels(sample.attributes)))
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


@lru_cache(maxsize=4_096)  # samples of one GPU or kernel have the same labels in many families, and in each interval
def _labels(attributes: Labels) -> str:
    return ",".join(f'{key.replace(".", "_")}="{_escape(value)}"' for key, value in attributes)


def _lines(sample: Sample, labels: str) -> Iterator[str]:
    name, value = sample.metric.prometheus_name, sample.value
    if value is None:
        return
    if not isinstance(value, DurationTotals):
        yield f"{name}{{{labels}}} {_number(value)}"
        return
    comma = "," if labels else ""
    if sample.detailed:
        for bound, count in zip(_BOUNDS, classic_counts(value.zero_count, value.buckets.items()), strict=True):
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}'
    yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {value.count}'
    yield f"{name}_sum{{{labels}}} {_number(value.sum_seconds)}"
    yield f"{name}_count{{{labels}}} {value.count}"


def _number(value: float) -> str:
    """Format a number: integers exactly, floats with the fewest digits that are read as the same value."""
    return repr(value)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
