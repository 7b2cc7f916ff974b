"""A topic for each format, on a real Kafka: Prometheus holds exactly the produced values, also with garbage between."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.service.conftest import Broker
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.service.stack import Stack
from tests.service.topics import create_topics
from tests.support.service.programs import topics

from kernelcast.bridge.inputs.remote_write.schema import LABEL, REQUEST, WRITE_REQUEST

pytestmark = pytest.mark.service

SERIES = 50
BOUNDS = (0.1, 1.0, 10.0)
GARBAGE = (b"\x00\xff\x01garbage", b"} up 1", b'{"resourceMetrics": [', b"\x0a\x7f", b"m,a v=1", b"# TYPE x nothing\n")
FORMATS: dict[str, Any] = {
    "in-otlp-json": "otlp_json",
    "^in-remote-write.*": "remote_write",
    "in-text": "prometheus",
    "in-telegraf": {"format": "influx", "precision": "ms"},
    "^in-sensors.*": {
        "points": "$.rooms[*].sensors[*]",
        "name": "@.what",
        "value": "@.reading",
        "time": "$.at",
        "labels": {"room": "^.name", "n": "@.n", "job": "lab"},
        "kind": "gauge",
    },
}


def values(factor: int) -> dict[str, float]:
    """The values by the label `n`, which differ in each format."""
    return {str(i): factor * 1000 + i + 0.5 for i in range(SERIES)}


def otlp(points: dict[str, float]) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "lab"
    metric = resource.scope_metrics.add().metrics.add(name="from.otlp")
    for n, value in points.items():
        point = metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=value)
        point.attributes.add(key="n").value.string_value = n
    return request


def otlp_json(points: dict[str, float]) -> bytes:
    made = {"key": "service.name", "value": {"stringValue": "lab"}}
    found = [
        {
            "attributes": [{"key": "n", "value": {"stringValue": n}}],
            "timeUnixNano": str(time.time_ns()),
            "asDouble": value,
        }
        for n, value in points.items()
    ]
    scope = {"metrics": [{"name": "from.json", "gauge": {"dataPoints": found}}]}
    return json.dumps({"resourceMetrics": [{"resource": {"attributes": [made]}, "scopeMetrics": [scope]}]}).encode()


def remote_write_1(points: dict[str, float]) -> bytes:
    request = WRITE_REQUEST()
    for n, value in points.items():
        series = request.timeseries.add()
        for name, text in (("__name__", "from_remote_write_1"), ("job", "lab"), ("n", n)):
            series.labels.append(LABEL(name=name, value=text).SerializeToString())
        series.samples.add(value=value, timestamp=time.time_ns() // 10**6)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def remote_write_2(points: dict[str, float]) -> bytes:
    request = REQUEST(symbols=["", "__name__", "from_remote_write_2_total", "job", "lab", "n", *points])
    for i, value in enumerate(points.values()):
        series = request.timeseries.add(labels_refs=[1, 2, 3, 4, 5, 6 + i])
        series.metadata.type = 1
        now_ms = time.time_ns() // 10**6
        series.samples.add(value=value, timestamp=now_ms, start_timestamp=now_ms - 60_000)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def page(points: dict[str, float]) -> bytes:
    lines = ["# TYPE from_text gauge", *(f'from_text{{job="lab",n="{n}"}} {value}' for n, value in points.items())]
    lines.append("# TYPE from_text_seconds histogram")
    lines += [f'from_text_seconds_bucket{{job="lab",le="{bound}"}} {10 * (i + 1)}' for i, bound in enumerate(BOUNDS)]
    lines += ['from_text_seconds_bucket{job="lab",le="+Inf"} 40', 'from_text_seconds_sum{job="lab"} 99.5']
    return "\n".join([*lines, 'from_text_seconds_count{job="lab"} 40\n']).encode()


def influx(points: dict[str, float]) -> bytes:
    now_ms = time.time_ns() // 10**6
    return "\n".join(f'from,job=lab,n={n} influx={value},note="a, b" {now_ms}' for n, value in points.items()).encode()


def mapped(points: dict[str, float]) -> bytes:
    sensors = [{"what": "from_mapping", "n": n, "reading": value} for n, value in points.items()]
    return json.dumps({"at": time.time(), "rooms": [{"name": "r1", "sensors": sensors}]}).encode()


Write = Callable[[dict[str, float]], bytes]

TOPICS: dict[str, tuple[str, dict[str, float], Write]] = {
    "in-otlp": ("from_otlp", values(1), lambda points: otlp(points).SerializeToString()),
    "in-otlp-json": ("from_json", values(2), otlp_json),
    "in-remote-write-1": ("from_remote_write_1", values(3), remote_write_1),
    "in-remote-write-2": ("from_remote_write_2_total", values(4), remote_write_2),
    "in-text": ("from_text", values(5), page),
    "in-telegraf": ("from_influx", values(6), influx),
    "in-sensors-a": ("from_mapping", values(7), mapped),
}
"""By topic: the metric in Prometheus, its values, and how they are written."""


@pytest.fixture
def stack(kafka: Broker, tmp_path: Path) -> Iterator[Stack]:
    topics(kafka)
    made = [NewTopic(topic, 2, 1, config={"message.timestamp.type": "LogAppendTime"}) for topic in TOPICS]
    create_topics(kafka.bootstrap_servers, made)
    settings = {"bridge": {"topics": ["^in-.*"], "formats": FORMATS, "translation": {"scope_labels": False}}}
    with Stack(tmp_path, kafka.bootstrap_servers, settings) as running:
        running.service("bridge")
        yield running


def produce(bootstrap_servers: str) -> None:
    """Every format on its topic: garbage, old values, garbage, the values."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for topic, (_, points, write) in TOPICS.items():
        bodies: list[bytes] = [*GARBAGE, write(dict.fromkeys(points, 0.0)), *GARBAGE, write(points)]
        for body in bodies:
            producer.produce(topic, body, key=b"one partition")
    assert producer.flush(20) == 0


def test_every_format_arrives_in_prometheus_as_it_was_produced(stack: Stack, tmp_path: Path) -> None:
    produce(stack.bootstrap_servers)
    for metric, points, _ in TOPICS.values():
        wait_for(metric, partial(holds, stack, metric, points))
    refused = stack.own("bridge", "kernelcast_bridge_decode_failures_total")
    assert 0 < refused <= 2 * len(GARBAGE) * len(TOPICS)
    config = tmp_path / "scrape.yml"
    targets = [{"targets": [stack.addresses["bridge"]]}]
    job = {"job_name": "bridge", "honor_labels": True, "static_configs": targets}
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    server = PrometheusServer(tmp_path, config)
    with stopping(server):
        server.run()
        wait_for("a scrape", lambda: server.query("from_mapping"))
        for metric, points, _ in TOPICS.values():
            found = server.query(f'{metric}{{job="lab"}}')
            assert {labels["n"]: value for labels, value in found} == points, metric
        buckets = server.query("from_text_seconds_bucket")
        cumulative = {float(labels["le"]): value for labels, value in buckets}
        assert cumulative == {0.1: 10, 1.0: 20, 10.0: 30, float("inf"): 40}
        assert server.scalar("from_text_seconds_sum") == 99.5


def holds(stack: Stack, metric: str, points: dict[str, float]) -> bool:
    return by_n(stack.exposed(metric)) == points


def by_n(exposed: dict[tuple[tuple[str, str], ...], float]) -> dict[str, float]:
    return {dict(labels)["n"]: value for labels, value in exposed.items()}
