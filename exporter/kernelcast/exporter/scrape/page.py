"""Turns the page of an inference engine, or of another vendor's exporter, into values under neutral names.

Lines of other metrics are not parsed.

Series of one model and engine are added up over their other labels, such as SGLang's `is_streaming`; of a ratio the
highest is taken.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from kernelcast.exporter.scrape import devices
from kernelcast.runtime.prometheus_text import LINE_FEED, TextSample, samples
from kernelcast.wire.catalogue import Kind, Metric, inference
from kernelcast.wire.catalogue.devices.vendors import VENDORS
from kernelcast.wire.catalogue.inference import ENGINES, EngineSeries
from kernelcast.wire.errors import DecodeError, PageError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND, DurationTotals, bucket_index

MAX_LINES: Final = 5_000
"""Of a page's lines that are parsed: 8 models with all buckets have 1,000."""
MAX_LABEL_CHARACTERS: Final = 128
MAX_VALUE: Final = 2.0**53
START_TIME: Final = "process_start_time_seconds"

Key = tuple[Metric, tuple[tuple[str, str], ...]]
"""A row and the labels of its part."""


@dataclass(slots=True)
class _Histogram:
    total_seconds: float = 0.0
    count: float = 0.0
    cumulative: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True, slots=True)
class EnginePage:
    """The values of a page.

    Attributes:
        values: Value by row and labels; `DurationTotals` of a histogram.
        started_ns: When the engine's process started, Unix nanoseconds; 0 if the page does not say.
    """

    values: dict[Key, float | DurationTotals]
    started_ns: int = 0


def _names() -> dict[str, list[tuple[str, EngineSeries, str]]]:
    """By an engine's name of a series: server, what it is, and the suffix it has under the neutral name."""
    found: defaultdict[str, list[tuple[str, EngineSeries, str]]] = defaultdict(list)
    for server, engine in ENGINES.items():
        for one in engine:
            for suffix, own in inference.series_of(one).items():
                for name in one.names:
                    found[own.replace(one.names[0], name)].append((server, one, suffix))
    return dict(found)


_NAMES: Final = _names()
_READ: Final = frozenset({*_NAMES, *devices.NAMES, START_TIME})
_PREFIXES: Final = tuple({re.split("[:_]", name, maxsplit=1)[0] for name in _READ})


def read_page(text: str) -> EnginePage:
    """Read a page.

    Raises:
        PageError: A line breaks the grammar, there are too many of them, or none is known.
    """
    lines = [line for line in text.split(LINE_FEED) if line.startswith(_PREFIXES)]
    lines = [line for line in lines if line.partition("{")[0].split(" ", 1)[0] in _READ]
    if len(lines) > MAX_LINES:
        raise PageError(f"the page has {len(lines)} lines that are read; the limit is {MAX_LINES}")
    numbers: dict[Key, float] = {}
    histograms: defaultdict[Key, _Histogram] = defaultdict(_Histogram)
    accelerators = devices.DeviceValues()
    started_ns = 0
    try:
        for sample in samples(lines):
            if not 0 <= sample.value <= MAX_VALUE:
                continue  # NaN and infinities, too
            accelerators.add(sample)
            if sample.name == START_TIME:
                started_ns = round(sample.value * NANOSECONDS_PER_SECOND)
            for server, one, suffix in _NAMES.get(sample.name, ()):
                key = (one.row, _labels(server, one, sample))
                if one.row.kind is Kind.HISTOGRAM:
                    _add(histograms[key], sample, suffix, one.divisor)
                elif one.row is inference.KV_CACHE:
                    numbers[key] = max(numbers.get(key, 0.0), sample.value)
                else:
                    numbers[key] = numbers.get(key, 0.0) + sample.value / one.divisor
    except DecodeError as error:
        raise PageError(str(error)) from None
    values: dict[Key, float | DurationTotals] = {**numbers, **accelerators.values}
    values |= {key: totals(found.total_seconds, found.count, found.cumulative) for key, found in histograms.items()}
    if not values:
        raise PageError(f"the page has no metrics of {', '.join((*ENGINES, *VENDORS))}")
    return EnginePage(values, started_ns)


def _labels(server: str, one: EngineSeries, sample: TextSample) -> tuple[tuple[str, str], ...]:
    model = sample.labels.get(inference.MODEL) or sample.labels.get(inference.TRITON_MODEL, "")
    labels = {inference.SERVER: server, inference.MODEL: model, inference.ENGINE: sample.labels.get("engine", "")}
    labels |= one.labels
    return tuple(sorted((name, value[:MAX_LABEL_CHARACTERS]) for name, value in labels.items() if value))


def _add(histogram: _Histogram, sample: TextSample, suffix: str, divisor: float) -> None:
    if suffix == "_sum":
        histogram.total_seconds += sample.value / divisor
    elif suffix == "_count":
        histogram.count += sample.value
    else:
        try:
            bound = float(sample.labels.get("le", "nan"))
        except ValueError:
            return
        if bound >= 0:
            histogram.cumulative[bound] += sample.value


def totals(sum_seconds: float, count: float, cumulative: dict[float, float]) -> DurationTotals:
    """A classic histogram in our buckets: each bucket's count goes to the bucket of its upper bound.

    So a quantile is never too low, and at most one bucket of the engine's too high. What lies above the last finite
    bound goes one bucket beyond it. Without consistent buckets there are count and sum alone.

    Args:
        sum_seconds: Sum of the durations.
        count: Their number.
        cumulative: Number of durations by upper bound in seconds.
    """
    result = DurationTotals(round(count), round(sum_seconds * NANOSECONDS_PER_SECOND))
    bounds = sorted(cumulative)
    counts = [round(cumulative[bound]) for bound in bounds]
    if not bounds or counts != sorted(counts) or counts[-1] != result.count or not math.isinf(bounds[-1]):
        return result
    before, last = 0, 0
    for bound, running in zip(bounds, counts, strict=True):
        times, before = running - before, running
        last = last + 1 if math.isinf(bound) else bucket_index(max(round(bound * NANOSECONDS_PER_SECOND), 1))
        if times:
            result.buckets[last] = result.buckets.get(last, 0) + times
    return result
