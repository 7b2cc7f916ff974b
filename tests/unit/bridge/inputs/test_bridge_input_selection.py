import gzip
import json
import random
import tracemalloc
from typing import Any

import cramjam
import numpy as np
import pytest
from tests.fuzz import shapes
from tests.support.bridge.fleet import Site, page, samples
from tests.support.bridge.list_kafka import ListKafka
from tests.support.columnar.otlp_messages import request
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.inputs import Selection, TopicFormat
from kernelcast.bridge.inputs.prometheus.text import PrometheusText
from kernelcast.bridge.inputs.remote_write.schema import LABEL, WRITE_REQUEST
from kernelcast.columnar import Decoder, DecoderLimits, Sample
from kernelcast.wire.catalogue import kernel

TEXT = TopicFormat(format="prometheus")


def site(**formats: str | dict[str, Any]) -> Site:
    made = Site(formats={topic: TopicFormat.model_validate(entry) for topic, entry in formats.items()})
    made.kafka.at_once = 100
    made.kafka.assign(made.intake, *((topic, 0) for topic in ("kernels", *formats)))
    return made


def write(
    kafka: ListKafka, topic: str, body: bytes, append_ms: int = 1_000_000, headers: dict[str, str] | None = None
) -> None:
    kafka.write(topic, 0, body, append_ms)
    record = kafka.logs[topic, 0][-1]
    header_items = tuple((name.replace("_", "-"), value.encode()) for name, value in (headers or {}).items())
    kafka.logs[topic, 0][-1] = Record(record.at, record.body, record.append_ms, record.kind, record.keyed, header_items)


def shown(made: Site) -> dict[str, float]:
    made.read_all()
    return {name: value for (name, _), value in samples(page(made.store)).items()}


def formats_seen(made: Site, topic: str) -> dict[str, float]:
    return {
        sample.labels["format"]: sample.value
        for family in made.registry.collect()
        for sample in family.samples
        if sample.name == "kernelcast_bridge_messages_by_format_total" and sample.labels["topic"] == topic
    }


def test_four_formats_on_one_topic_arrive_by_their_headers_and_the_others_are_put_aside() -> None:
    made = site(mixed="prometheus")
    written = WRITE_REQUEST()
    series = written.timeseries.add()
    series.labels.append(LABEL(name="__name__", value="from_remote_write").SerializeToString())
    series.samples.add(value=2, timestamp=1_000)
    point = {"asDouble": 4.0, "timeUnixNano": "1000"}
    otlp = {
        "resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "from.json", "gauge": {"dataPoints": [point]}}]}]}]
    }
    for body, encoding in (
        (b"from_text 1\n", ""),
        (b"garbage \xff", ""),
        (shapes.in_snappy(written.SerializeToString()), "remote_write"),
        (b"from influx=3", "influx"),
        (json.dumps(otlp).encode(), "otlp_json"),
    ):
        write(made.kafka, "mixed", body, headers={"encoding": encoding} if encoding else None)
    assert shown(made) == {"from_text": 1, "from_remote_write": 2, "from_influx": 3, "from_json": 4}
    [(_, error)] = made.shelf.messages
    assert "bridge.formats" in str(error)
    seen = formats_seen(made, "mixed")
    assert seen == {"prometheus": 2, "influx": 1, "remote_write": 1, "otlp_json": 1}


@pytest.mark.parametrize("body", [b"up 1\n", b"cpu idle=1", b'{"v": 1}', b'{"resourceMetrics": []}', b"hello"])
def test_text_on_a_topic_without_a_format_is_put_aside_and_the_setting_is_named(body: bytes) -> None:
    made = site()
    write(made.kafka, "kernels", body)
    assert shown(made) == {}
    [(_, error)] = made.shelf.messages
    assert "name it in bridge.formats (kernels: influx, for instance" in str(error)


def test_a_point_without_a_time_has_its_messages_append_time() -> None:
    made = site(text="prometheus")
    write(made.kafka, "text", b"up 1\n", append_ms=5_000)
    write(made.kafka, "text", b"up 2 4000\n", append_ms=6_000)  # older than the stored point
    assert shown(made) == {"up": 1}
    write(made.kafka, "text", b"up 3\n", append_ms=7_000)
    assert shown(made) == {"up": 3}


def test_a_series_that_two_formats_write_stays_with_the_first_and_the_other_is_counted() -> None:
    made = site(text="prometheus", lines="influx")
    write(made.kafka, "text", b"cpu_idle 1\n")
    made.read_all()
    write(made.kafka, "lines", b"cpu idle=2", append_ms=1_000_001)
    assert shown(made) == {"cpu_idle": 1}
    assert made.own("kernelcast_bridge_discarded_points_total", cause="second_writer") == 1


def test_names_have_priority_over_patterns_and_own_topics_keep_their_format() -> None:
    formats = {"^tele.*": "influx", "telegraf-json": "otlp_json"}
    selection = Selection(Decoder(), {name: TopicFormat.model_validate(entry) for name, entry in formats.items()})
    topics = ("telegraf", "telegraf-json", "kernelcast.kernels", "other")
    groups = list(selection.groups([Record((topic, 0, 0), b"up 1", 0) for topic in topics]))
    assert [(group.format, group.indices) for group in groups] == [
        ("influx", [0]),
        ("otlp_json", [1]),
        ("otlp_proto", [2]),
        ("unknown", [3]),
    ]


def test_a_batch_of_small_messages_that_unpack_to_long_ones_takes_little_memory() -> None:
    made = site(text="prometheus")
    small = bytes(cramjam.zstd.compress(b"# " + bytes(2**20)))
    for _ in range(90):
        write(made.kafka, "text", small, headers={"content_encoding": "zstd"})
    write(made.kafka, "text", b"up 1")
    tracemalloc.start()
    try:
        assert shown(made) == {"up": 1}
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()
    assert len(small) < 1000


def test_snappy_messages_are_read_in_parts_by_the_length_that_they_unpack_to() -> None:
    selection = Selection(Decoder(), {"rw": TopicFormat(format="remote_write")})
    bodies = [bytes(cramjam.snappy.compress_raw(bytes(2**23))), b"\x0a\x00"] * 9
    groups = list(selection.groups([Record(("rw", 0, i), body, 0) for i, body in enumerate(bodies)]))
    assert [index for group in groups for index in group.indices] == list(range(18))
    assert max(len(group.indices) for group in groups) <= 8


@pytest.mark.parametrize(
    ("headers", "body", "format_name"),
    [
        ({"encoding": "influx"}, b"up value=1", "influx"),
        ({"content_type": "text/plain; version=0.0.4; charset=utf-8"}, b"up 1", "prometheus"),
        ({"content_type": "application/openmetrics-text; version=1.0.0"}, b"up 1\n# EOF\n", "prometheus"),
        ({"content_type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}, b"\x22\x00", "remote_write"),
        ({"content_type": "application/json"}, b'{"resourceMetrics": []}', "otlp_json"),
        ({"content_encoding": "gzip"}, gzip.compress(b"up 1\n", mtime=0), "prometheus"),
        ({"content_encoding": "zstd"}, bytes(cramjam.zstd.compress(b"up 1")), "prometheus"),
        ({"content_encoding": "snappy"}, shapes.in_snappy(b"up 1"), "prometheus"),
        ({"content_type": "application/x-protobuf"}, b"up 1", "prometheus"),
        ({"content_type": "text/plain", "encoding": "unheard of"}, b"up 1", "prometheus"),
        ({}, gzip.compress(b"up 1\n", mtime=0), "prometheus"),
        ({}, bytes(cramjam.zstd.compress(b"up 1\n")), "prometheus"),
    ],
)
def test_headers_win_and_compression_is_undone(headers: dict[str, str], body: bytes, format_name: str) -> None:
    made = site(topic="prometheus")
    write(made.kafka, "topic", body, headers=headers)
    made.read_all()
    assert made.shelf.messages == []
    assert formats_seen(made, "topic") == {format_name: 1}


def bombs() -> dict[str, bytes]:
    zeros = bytes(3_000_000)
    return {
        "gzip": gzip.compress(zeros, mtime=0),
        "zstd": bytes(cramjam.zstd.compress(zeros)),
        "snappy": shapes.in_snappy(zeros),
        "brotli": b"whatever",
    }


@pytest.mark.parametrize(("encoding", "body"), bombs().items())
def test_a_bomb_is_refused_before_it_goes_off(encoding: str, body: bytes) -> None:
    selection = Selection(Decoder(), {"t": TEXT}, limits=DecoderLimits(message_bytes=1_000_000))
    [group] = selection.groups([Record(("t", 0, 0), body, 0, header_items=(("content-encoding", encoding.encode()),))])
    assert group.input is None
    assert "the limit is 1000000" in str(group.failures[0]) or "known are identity" in str(group.failures[0])


OTLP_GAUGE = b"""{"resourceMetrics": [{"scopeMetrics": [{"metrics": [
    {"name": "m", "gauge": {"dataPoints": [{"asDouble": 1, "timeUnixNano": "1"}]}}]}]}]}"""


@pytest.mark.parametrize(
    ("format_name", "body"),
    [("prometheus", b"up 1\n"), ("influx", b"cpu usage=0.5 2000000000\n"), ("otlp_json", OTLP_GAUGE)],
)
def test_every_input_keeps_to_the_given_number_of_series(format_name: str, body: bytes) -> None:
    selection = Selection(Decoder(), {"t": TopicFormat(format=format_name)}, max_identities=0)
    [group] = selection.groups([Record(("t", 0, 0), body, 0)])
    assert group.input is not None
    [(_, error)] = group.input.decode(group.bodies).failures
    assert "beyond the 0" in str(error)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "snappy"])
def test_a_body_without_the_compression_in_its_header_is_refused(encoding: str) -> None:
    selection = Selection(Decoder())
    headers = (("content-encoding", encoding.encode()),)
    [group] = selection.groups([Record(("t", 0, 0), b"\xf0up 1", 0, header_items=headers)])
    assert f"is no {encoding}" in str(group.failures[0])


def test_kernelcasts_own_topics_decode_beside_other_formats_in_one_batch() -> None:
    made = site(text="prometheus")
    made.export(0, Sample(kernel.LAUNCHES, (("kernel", "gemm"),), 1_000_000, 7, 1))
    write(made.kafka, "text", b"up 1\n")
    found = shown(made)
    assert (found["up"], found["cuda_kernel_launches_total"]) == (1, 7)


def test_numbers_of_removed_series_are_returned_to_their_input() -> None:
    made = site(text="prometheus")
    for turn in range(5):
        write(made.kafka, "text", f'up{{turn="{turn}"}} 1\n'.encode())
        made.read_all()
        made.kafka.revoke(made.intake, ("text", 0))
        made.kafka.assign(made.intake, ("text", 0))
    [text] = [source for (name, _), source in made.selection._inputs.items() if name == "prometheus"]
    assert isinstance(text, PrometheusText)
    assert len(text.interner) <= 1
    assert np.max(text.decode([b"a 1\nb 2\n"]).numbers.series) < 5  # as many as there ever were at once


def test_a_summary_stands_on_the_page_as_it_stood_in_its_message() -> None:
    made = site(text="prometheus")
    lines = [b"# TYPE s summary", b's{quantile="0.5",zone="a"} 2', b's_sum{zone="a"} 10', b's_count{zone="a"} 4', b""]
    write(made.kafka, "text", b"\n".join(lines))
    made.read_all()
    shown_page = page(made.store)
    assert "# TYPE s summary" in shown_page
    assert "# TYPE s_sum" not in shown_page
    assert shown(made) == {"s": 2, "s_sum": 10, "s_count": 4}


@pytest.mark.parametrize("entry", ["otlp_proto", "otlp_json", "prometheus", "influx", "remote_write"])
@pytest.mark.parametrize("framed", [request(random.Random(1)).SerializeToString(), b'{"value": 1}', b"up 1\n"])
def test_a_message_framed_for_a_schema_registry_is_named_as_such(entry: str, framed: bytes) -> None:
    body = b"\0" + (100_042).to_bytes(4, "big") + framed
    selection = Selection(Decoder(), {"t": TopicFormat.model_validate(entry)})
    (group,) = selection.groups([Record(("t", 0, 0), body)])
    (failure,) = group.failures
    assert "is framed for a Schema Registry: a byte 0, then the id of schema 100042" in str(failure)
    assert "let the producer serialise them without the registry" in str(failure)
