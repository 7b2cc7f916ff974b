"""The fuzzed inputs: each with its seeds and its oracle."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.fuzz import readings, shapes
from tests.support.columnar.otlp_oracle import decoded_truth, truth

from kernelcast.bridge.inputs.influx import InfluxLines
from kernelcast.bridge.inputs.json.mapping import JsonMapped
from kernelcast.bridge.inputs.json.otlp import OtlpJson
from kernelcast.bridge.inputs.json.wire import JsonEncoder, WrongJsonError
from kernelcast.bridge.inputs.prometheus.text import PrometheusText
from kernelcast.bridge.inputs.remote_write.requests import RemoteWrite, is_uncompressed
from kernelcast.columnar import Decoded, Decoder, PointType, exemplars_of

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""prometheus_client takes a colon, too, which OpenMetrics does not allow there."""
_QUOTED_NAME = re.compile(rb'[{,][ \t]*"')

Comparison = Callable[[Any, bytes, Decoded, int], str]
"""Returns the fault in the answer to a message, by an independent reading of it; empty if there is none."""


@dataclass(frozen=True)
class Target:
    """An input under test.

    Attributes:
        name: The format's.
        make: Makes the input.
        shape: Makes a message as producers write it.
        compare: Judges an answer.
        one_in: One message in this number is compared, because some readings are slow.
        share: Of the inputs that an even division gives it, this part.
        wrap: A transformation that some mutated messages get before they are decoded.
    """

    name: str
    make: Callable[[], Any]
    shape: Callable[[random.Random], bytes]
    compare: Comparison
    one_in: int = 4
    share: float = 1.0
    wrap: Callable[[bytes], bytes] | None = None


def points_of(source: Any, decoded: Decoded, message: int) -> Iterator[readings.Point]:
    """The number points of a message, as a reading gives them."""
    columns = decoded.numbers
    for i in np.flatnonzero(columns.message == message).tolist():
        named = source.interner.identity(int(columns.series[i]))
        labels = {key: _plain(value) for key, value in _LABEL.findall(named.labels.decode())}
        yield readings.point(named.family.name, labels, float(columns.value[i]), int(columns.time_ns[i]))


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value)


def _with_reading(read: Callable[[bytes], list[readings.Point] | None], fits: Callable[[bytes], bool]) -> Comparison:
    def compare(source: Any, message: bytes, decoded: Decoded, index: int) -> str:
        if not fits(message):
            return ""
        expected = read(message)
        refused = [error for failed, error in decoded.failures if failed == index]
        if expected is None or refused:
            return "" if expected is None and refused else f"expected {expected}, refused {refused}"
        found = list(points_of(source, decoded, index))
        return "" if found == expected else f"expected {expected}, found {found}"

    return compare


def _as_protobuf_says(source: Any, message: bytes, decoded: Decoded, index: int) -> str:
    expected = truth(message)
    refused = any(failed == index for failed, _ in decoded.failures)
    if expected is None or refused:
        return "" if expected is None and refused else f"expected {expected}, refused {refused}"
    found = decoded_truth(source, decoded, index)
    expected.unsupported = found.unsupported  # counted for the batch, not for each message
    return "" if found == expected else f"expected {expected}, found {found}"


_ENCODER = JsonEncoder(ExportMetricsServiceRequest.DESCRIPTOR)


def _as_json_format_says(_source: Any, message: bytes, _decoded: Decoded, _index: int) -> str:
    """Both readers read the same from an accepted message, except exemplars: json_format reads their ids as base64."""
    try:
        ours = _ENCODER.encode(orjson.loads(message))
        theirs = json_format.Parse(message, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except (WrongJsonError, orjson.JSONDecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError):
        return ""
    one, other = truth(ours), truth(theirs.SerializeToString())
    if one is None or other is None:
        return "" if one is other else f"json_format reads {other}, the encoder {one}"
    same = (one.numbers, one.histograms) == (other.numbers, other.histograms)
    return "" if same else f"json_format reads {other}, the encoder {one}"


def _exemplars_as_the_client_reads_them(source: Any, message: bytes, decoded: Decoded, index: int) -> str:
    """The strict parser of prometheus_client finds the same exemplars of counters on a page that it accepts."""
    if any(failed == index for failed, _ in decoded.failures):
        return ""
    try:
        families = list(text_string_to_metric_families(message.decode()))  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001  it refuses with exceptions of many kinds
        return ""
    expected = sorted(
        (sample.name, readings.bits(sample.exemplar.value))
        for family in families
        if family.type == "counter"
        for sample in family.samples
        if sample.exemplar is not None and all(map(_LABEL_NAME.fullmatch, sample.exemplar.labels))
    )
    noted, numbers = decoded.exemplars, decoded.numbers
    rows = zip(noted.row.tolist(), noted.histogram.tolist(), noted.raw, strict=True)
    found = sorted(
        (source.interner.identity(int(numbers.series[row])).family.name, readings.bits(one.value))
        for row, histogram, raw in rows
        if not histogram and numbers.message[row] == index
        for one in exemplars_of(PointType.SUM, raw)
    )
    return "" if found == expected else f"expected {expected}, found {found}"


def _not_compared(_source: Any, _message: bytes, _decoded: Decoded, _index: int) -> str:
    return ""


def _plain_page(message: bytes) -> bool:
    return b"#" not in message and not _QUOTED_NAME.search(message)


def _page_without_comments(rng: random.Random) -> bytes:
    page = shapes.prometheus(rng)
    if rng.random() < 0.5:
        page = b"\n".join(line for line in page.split(b"\n") if b"#" not in line)
    return page


def _bare(message: bytes) -> bool:
    return bool(message) and is_uncompressed(message) and not readings.has_histograms(message)


TARGETS = (
    Target("otlp_proto", Decoder, shapes.otlp_proto, _as_protobuf_says, one_in=8),
    Target("otlp_json", OtlpJson, shapes.otlp_json, _as_json_format_says, one_in=40),
    Target(
        "remote_write",
        RemoteWrite,
        shapes.remote_write,
        _with_reading(readings.remote_write, _bare),
        wrap=shapes.in_snappy,
    ),
    Target("prometheus", PrometheusText, _page_without_comments, _with_reading(readings.prometheus, _plain_page)),
    Target("openmetrics", PrometheusText, shapes.openmetrics, _exemplars_as_the_client_reads_them, one_in=16),
    Target("influx", InfluxLines, shapes.influx, _with_reading(readings.influx, lambda _: True)),
    Target("json", lambda: JsonMapped(shapes.MAPPING), shapes.mapped, _not_compared),
)
