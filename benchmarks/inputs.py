"""Formats of messages: points a second of each parser on one core, beside the usual parser in Python, in one run.

    python benchmarks/inputs.py [--json FILE]

Messages of 240 points with 6 labels, every series known, as after the first interval. Where the format has a parser
in Python (json_format for OTLP's JSON, prometheus_client's for text, protobuf's objects walked for remote write), it
runs on the same bytes.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.inputs.influx import InfluxLines
from kernelcast.bridge.inputs.json.mapping import JsonMapped
from kernelcast.bridge.inputs.json.otlp import OtlpJson
from kernelcast.bridge.inputs.prometheus.text import PrometheusText
from kernelcast.bridge.inputs.remote_write.requests import RemoteWrite
from kernelcast.bridge.inputs.remote_write.schema import LABEL, REQUEST, WRITE_REQUEST

POINTS = 240
MESSAGES = 50
REPEATS = 5
KEYS = ("gpu", "UUID", "device", "Hostname", "job", "instance")
NOW_MS = 1_700_000_000_000
MAPPING = {"points": "$.points[*]", "name": "@.name", "value": "@.value", "time": "$.at", "labels_from": ["@.labels"]}

rng = random.Random(1)
ROWS = [
    (f"metric_{i % 10}", {key: f"{key}-{i // 10 if key == 'gpu' else rng.randrange(9)}" for key in KEYS}, rng.random())
    for i in range(POINTS)
]


def otlp_json() -> bytes:
    """OTLP in JSON."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name, labels, value in ROWS:
        point = scope.metrics.add(name=name).gauge.data_points.add(time_unix_nano=NOW_MS * 10**6, as_double=value)
        for key, text in labels.items():
            point.attributes.add(key=key).value.string_value = text
    return json_format.MessageToJson(request, indent=None).encode()


def remote_write_1() -> bytes:
    """Remote write 1.0, in snappy."""
    request = WRITE_REQUEST()
    for name, labels, value in ROWS:
        series = request.timeseries.add()
        for key, text in {"__name__": name, **labels}.items():
            series.labels.append(LABEL(name=key, value=text).SerializeToString())
        series.samples.add(value=value, timestamp=NOW_MS)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def remote_write_2() -> bytes:
    """Remote write 2.0, in snappy."""
    symbols: dict[str, int] = {"": 0}
    request = REQUEST()
    for name, labels, value in ROWS:
        texts = [text for pair in {"__name__": name, **labels}.items() for text in pair]
        series = request.timeseries.add(labels_refs=[symbols.setdefault(text, len(symbols)) for text in texts])
        series.samples.add(value=value, timestamp=NOW_MS)
    request.symbols.extend(symbols)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def text() -> bytes:
    """A page of text 0.0.4."""
    inside = [",".join(f'{key}="{text}"' for key, text in labels.items()) for _, labels, _ in ROWS]
    rows = sorted(zip(ROWS, inside, strict=True), key=lambda row: row[0][0])
    lines = [f"{name}{{{labels}}} {value}" for (name, _, value), labels in rows]
    return "\n".join(["# TYPE metric_0 gauge", *lines, ""]).encode()


def influx() -> bytes:
    """Influx lines, a field each."""
    heads = [",".join([name, *(f"{key}={text}" for key, text in labels.items())]) for name, labels, _ in ROWS]
    return "\n".join(f"{head} value={ROWS[i][2]} {NOW_MS * 10**6}" for i, head in enumerate(heads)).encode()


def mapped() -> bytes:
    """JSON without a standard format."""
    points = [{"name": name, "labels": labels, "value": value} for name, labels, value in ROWS]
    return json.dumps({"at": NOW_MS / 1000, "points": points}).encode()


def protobufs_objects(message: bytes) -> int:
    """Read remote write 1.0 with labels and samples as objects: the peer."""
    points = 0
    for series in WRITE_REQUEST.FromString(bytes(cramjam.snappy.decompress_raw(message))).timeseries:
        key = tuple((label.name, label.value) for label in map(LABEL.FromString, series.labels))
        points += sum(bool(key) and sample.timestamp > 0 for sample in series.samples)
    return points


def points_per_second(work: Callable[[], Any], messages: int) -> float:
    """The best of some repeats, by processor time: other work on the machine counts as little as possible."""
    work()
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return messages * POINTS / best


FORMATS: dict[str, tuple[Any, Callable[[], bytes], Callable[[bytes], Any] | None]] = {
    "otlp_json": (
        OtlpJson(),
        otlp_json,
        lambda message: json_format.Parse(message, ExportMetricsServiceRequest()),
    ),
    "remote_write 1.0": (RemoteWrite(), remote_write_1, protobufs_objects),
    "remote_write 2.0": (RemoteWrite(), remote_write_2, None),
    "prometheus text": (
        PrometheusText(),
        text,
        lambda message: list(text_string_to_metric_families(message.decode())),
    ),
    "influx": (InfluxLines(), influx, None),
    "json mapping": (JsonMapped(TopicFormat.model_validate(MAPPING)), mapped, None),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Formats in, beside their peers.")
    parser.add_argument("--json", type=Path)
    found: dict[str, dict[str, float]] = {}
    arguments = parser.parse_args()
    for name, (source, make, peer) in FORMATS.items():
        message = make()
        decoded = source.decode([message])
        assert len(decoded.numbers.series) == POINTS, name
        batch = [message] * MESSAGES
        ours = points_per_second(lambda source=source, batch=batch: source.decode(batch), MESSAGES)  # type: ignore[misc]
        found[name] = {"bytes_per_point": len(message) / POINTS, "points_per_second": ours}
        line = f"{name}: {ours / 1e3:,.0f} thousand points/s, {len(message) / POINTS:.0f} bytes a point"
        if peer is not None:
            theirs = points_per_second(lambda peer=peer, message=message: peer(message), 1)  # type: ignore[misc]
            found[name]["peer_points_per_second"] = theirs
            line += f"; peer {theirs / 1e3:,.0f} thousand, x{ours / theirs:.1f}"
        print(line)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
