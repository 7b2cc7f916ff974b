"""Exemplars of OpenMetrics' lines, for `text`, as the bytes that the store keeps: exemplar fields of an OTLP point.

Source: prometheus/OpenMetrics, specification/OpenMetrics.md (1.0), section "Exemplars".
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, HistogramDataPoint, NumberDataPoint

from kernelcast.runtime import prometheus_text
from kernelcast.wire.errors import DecodeError

_IDS: Final = {"trace_id": re.compile("[0-9a-f]{32}"), "span_id": re.compile("[0-9a-f]{16}")}


def exemplar_of(rest: str) -> Any | None:
    """The exemplar behind a sample's value; None without one, or if it breaks the grammar: the sample counts anyway.

    Args:
        rest: The line behind the series: value, timestamp, and perhaps ` # {labels} value timestamp`.
    """
    _, mark, text = rest.partition(" # ")
    text = text.lstrip(" ")
    if not mark or not text.startswith("{"):
        return None
    try:
        labels, stop = prometheus_text.labels(text, 1)
        words = text[stop:].split()
        if not 1 <= len(words) <= 2 or any(label is None for _, label in labels):
            return None
        value = prometheus_text.number(words[0])
        time_ns = prometheus_text.time_ns(words[1], seconds=True) if len(words) > 1 else 0
    except DecodeError:
        return None
    made = Exemplar(as_double=value, time_unix_nano=time_ns)
    for name, label in labels:
        if name in _IDS and _IDS[name].fullmatch(label or ""):
            setattr(made, name, bytes.fromhex(label or ""))
        else:
            made.filtered_attributes.add(key=name).value.string_value = label or ""
    return made


def number_fields(exemplar: Any) -> bytes:
    """The exemplar field of a number point."""
    return bytes(NumberDataPoint(exemplars=[exemplar]).SerializeToString())


def histogram_fields(exemplars: Iterable[Any]) -> bytes:
    """The exemplar fields of a histogram point."""
    return bytes(HistogramDataPoint(exemplars=exemplars).SerializeToString())
