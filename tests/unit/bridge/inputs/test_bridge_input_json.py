import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.bridge.input_reading import Read, one, read

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.inputs.json.mapping import JsonMapped
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.columnar import DecoderLimits
from kernelcast.runtime.settings.service import load
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.errors import ConfigurationError


def mapped(**mapping: Any) -> JsonMapped:
    return JsonMapped(TopicFormat.model_validate(mapping))


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def test_a_flat_object_is_a_point() -> None:
    source = mapped(
        name="@.metric", value="@.value", time="@.ts", time_unit="ms", labels={"host": "@.host", "site": "lab"}
    )
    found = one(source, text({"metric": "temperature", "value": 21.5, "ts": 1_700_000_000_123, "host": "a"}))
    assert (found.name, found.labels, found.value) == ("temperature", 'host="a",site="lab"', 21.5)
    assert (found.kind, found.time_ns) == (Kind.UNKNOWN, 1_700_000_000_123_000_000)


def test_an_array_is_its_elements_and_lines_are_messages_of_their_own() -> None:
    source = mapped(name="m", value="@.v")
    assert [point.value for point in read(source, text([{"v": 1}, {"v": 2}]))] == [1, 2]
    lines = mapped(name="m", value="@.v", lines=True)
    assert [point.value for point in read(lines, b'{"v": 1}\n\n{"v": "2.5"}\n')] == [1, 2.5]


def test_nested_arrays_reach_what_encloses_the_point() -> None:
    source = mapped(
        points="$.hosts[*].metrics[*]",
        name="@.n",
        value="@.v[0]",
        time="$.at",
        labels={"host": "^.host", "dc": "$.dc", "core": "@.tags['cpu core']"},
        labels_from=["@.tags"],
        kind="@.kind",
        help="how busy",
    )
    message = {
        "dc": "eu",
        "at": "2023-11-14T22:13:20Z",
        "hosts": [
            {"host": "a", "metrics": [{"n": "busy", "v": [3], "kind": "counter", "tags": {"cpu core": 1, "x": True}}]},
            {"host": "b", "metrics": [{"n": "busy", "v": [4], "kind": "counter"}]},
        ],
    }
    first, second = read(source, text(message))
    assert (first.kind, first.help, first.time_ns) == (Kind.COUNTER, "how busy", 1_700_000_000 * 10**9)
    assert first.labels == 'core="1",cpu_core="1",dc="eu",host="a",x="true"'
    assert (second.labels, second.value) == ('dc="eu",host="b"', 4)


def test_every_number_of_an_object_can_be_a_series() -> None:
    source = mapped(name="sensor", values="@", labels={"id": "@.id"})
    decoded = source.decode([text({"id": "s1", "temperature": 20, "humidity": 0.5, "on": True})])
    names = [source.identity(int(number)).name for number in decoded.numbers.series]  # type: ignore[union-attr]
    assert (names, decoded.unsupported) == (["sensor_temperature", "sensor_humidity", "sensor_on"], 1)


def test_points_without_name_or_number_are_left_out_and_counted() -> None:
    source = mapped(points="$.p[*]", name="@.n", value="@.v")
    points = [{"n": "a", "v": 1}, {"v": 1}, {"n": "a"}, {"n": "a", "v": "one"}, {"n": "a", "v": [1]}, 7]
    decoded = source.decode([text({"p": points}), text({"other": 1})])
    assert (decoded.numbers.value.tolist(), decoded.unsupported, decoded.failures) == ([1.0], 5, ())


@pytest.mark.parametrize(
    ("written", "value"),
    [("+Inf", math.inf), ("-Infinity", -math.inf), ("Infinity", math.inf), ("1e3", 1000), ("inf", None)],
)
def test_numbers_as_text_are_those_of_go_java_and_protobuf(written: str, value: float | None) -> None:
    decoded = mapped(name="m", value="@.v").decode([text({"v": written})])
    assert decoded.numbers.value.tolist() == [value] * (value is not None)
    assert decoded.unsupported == (value is None)


def test_a_byte_order_mark_is_skipped() -> None:
    """influxdata/telegraf PR 4099."""
    assert one(mapped(name="m", value="@.v"), b"\xef\xbb\xbf" + text({"v": 3})).value == 3


@pytest.mark.parametrize("message", [b"", b"{", b'{"v": 1, "n": "a", "t": "soon"}', b'{"v": 1, "n": "a", "t": 1e300}'])
def test_a_message_that_is_no_json_or_has_a_wrong_time_is_refused(message: bytes) -> None:
    source = mapped(name="@.n", value="@.v", time="@.t")
    decoded = source.decode([message, b'{"v": 2, "n": "b"}'])
    assert ([index for index, _ in decoded.failures], decoded.numbers.value.tolist()) == ([0], [2.0])


@pytest.mark.parametrize(
    ("written", "time_ns"),
    [
        ("2023-11-14T22:13:20", 1_700_000_000 * 10**9),
        ("2023-11-14t22:13:20z", 1_700_000_000 * 10**9),
        ("2023-11-14 17:13:20-05:00", 1_700_000_000 * 10**9),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20.5+00:00", 1_700_000_000_500_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800 * 10**9),
        ("20231114T221320Z", 1_700_000_000 * 10**9),
        ("2023-11-14", 1_699_920_000 * 10**9),
        ("1969-12-31T23:59:59Z", 1),
    ],
)
def test_a_time_as_text_is_exact_and_is_utc_without_an_offset(
    monkeypatch: pytest.MonkeyPatch, written: str, time_ns: int
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        found = one(mapped(name="m", value="@.v", time="@.t"), text({"v": 1, "t": written}))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found.time_ns == time_ns


@pytest.mark.parametrize("written", ["2023-11-14T22:13:61Z", "2023-11-14T22:13:20+25:00", "z"])
def test_a_time_as_text_that_is_none_is_refused(written: str) -> None:
    [(_, error)] = mapped(name="m", value="@.v", time="@.t").decode([text({"v": 1, "t": written})]).failures
    assert "RFC 3339" in str(error)


def test_labels_that_many_points_share_cannot_cost_gigabytes() -> None:
    mapping = TopicFormat.model_validate({"points": "$.p[*]", "name": "m", "value": "@", "labels_from": ["$.tags"]})
    source = JsonMapped(mapping, limits=DecoderLimits(message_bytes=1024 * 1024))
    message = text({"tags": {f"k{i}": "x" * 50 for i in range(1_000)}, "p": list(range(50_000))})
    [(_, error)] = source.decode([message]).failures
    assert "bytes of labels" in str(error)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("influxx", "bridge.formats.t.format is influxx"),
        ("{name: m}", "value or values must be there"),
        ("{value: '@.v'}", "name is missing"),
        ("{name: m, value: v}", "'v' must be a path; write '@.v'"),
        ("{name: m, value: '@.v', points: '@.p'}", "it must begin with $"),
        ("{name: m, value: '@.v[*]'}", "only the path of the points may have *"),
        ("{name: m, value: '@.v]'}", "is no path from ']' on"),
        ("{name: m, value: '@.v', labels: {1x: '@.a'}}", "'1x' is no label"),
        ("{name: m, value: '@.v', kind: gouge}", "it must be one of gauge, counter"),
        ("{name: m, value: '@.v', nome: m}", "bridge.formats.t.nome is not a setting"),
        ("{format: influx, value: '@.v'}", "value can only be set for the format json"),
        ("{format: influx, points: '$.a[*]', kind: gauge, time_unit: ms}", "points, time_unit, kind can only be set"),
        ("{name: m, value: '@.v', precision: ms}", "precision can only be set for the format influx"),
        ("{precision: ns}", "precision can only be set for the format influx"),
    ],
)
def test_a_wrong_mapping_is_refused_with_its_path_and_a_remedy(entry: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text(f"bridge:\n  formats:\n    t: {entry}\n")
    with pytest.raises(ConfigurationError) as raised:
        load("bridge", BridgeSettings, path=file, flags={}, environ={})
    assert complaint in str(raised.value)


def test_a_name_alone_and_a_mapping_are_both_formats(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    entries = ("telegraf: influx", "^sensors: {name: m, value: '@.v'}", "lines: {format: influx, precision: s}")
    file.write_text("\n    ".join(("bridge:\n  formats:", *entries)))
    formats = load("bridge", BridgeSettings, path=file, flags={}, environ={}).formats
    assert [(name, entry.format) for name, entry in formats.items()] == [
        ("telegraf", "influx"),
        ("^sensors", "json"),
        ("lines", "influx"),
    ]


def points(settings: dict[str, Any], *messages: dict[str, Any]) -> list[Read]:
    source = JsonMapped(TopicFormat.model_validate(settings))
    return [point for message in messages for point in read(source, json.dumps(message).encode())]


ADAPTER = {"name": "@.name", "value": "@.value", "time": "@.timestamp", "labels_from": ["@.labels"]}


def test_the_name_among_the_labels_of_prometheus_kafka_adapter_is_no_label() -> None:
    labels = {"__name__": "p_total", "event": "delete", "instance": "p:9500", "job": "p"}
    message = {"labels": labels, "name": "p_total", "timestamp": "2022-08-02T14:12:43Z", "value": "0"}
    [point] = points(ADAPTER, message)
    assert point.labels == 'event="delete",instance="p:9500",job="p"'


@pytest.mark.parametrize(
    ("settings", "message", "name", "labels"),
    [
        # Netdata's exporting engine, format json: everything in one object.
        (
            {"name": "@.chart_id", "value": "@.value", "time": "@.timestamp", "labels_from": ["@"]},
            {
                "prefix": "netdata",
                "hostname": "h",
                "chart_id": "system.cpu",
                "id": "user",
                "value": 1.5,
                "timestamp": 9,
            },
            "system_cpu",
            'hostname="h",id="user",prefix="netdata"',
        ),
        # Zabbix' real-time export: the fraction of the time is a number like another.
        (
            {
                "name": "$.name",
                "value": "@.value",
                "time": "@.clock",
                "labels_from": ["$", "@.host"],
                "labels_without": ["ns", "type"],
            },
            {"host": {"host": "a"}, "itemid": 4, "name": "load", "clock": 9, "ns": 5, "value": 0.5, "type": 0},
            "load",
            'host="a",itemid="4"',
        ),
        # A sensor's message: numbers are series, texts are labels.
        (
            {"name": "sensor", "values": "@", "time": "@.ts", "labels_from": ["@"], "labels_without": ["unit"]},
            {"device": "d1", "unit": "C", "temperature": 21.5},
            "sensor_temperature",
            'device="d1"',
        ),
    ],
)
def test_what_is_the_name_the_value_or_the_time_of_a_point_is_no_label(
    settings: dict[str, Any], message: dict[str, Any], name: str, labels: str
) -> None:
    [point] = points(settings, message)
    assert (point.name, point.labels) == (name, labels)


VECTOR = {
    "name": "@.name",
    "value": {"counter": "@.counter.value", "gauge": "@.gauge.value"},
    "increments": {"@.kind": "incremental"},
    "time": "@.timestamp",
    "labels_from": ["@.tags"],
}


def test_vectors_gauges_and_counters_are_read_from_one_topic() -> None:
    time = "2021-05-26T13:54:55.812Z"
    gauge = {"gauge": {"value": 1.0}, "kind": "absolute", "name": "g", "tags": {"host": "a"}, "timestamp": time}
    counter = {"counter": {"value": 2.0}, "kind": "absolute", "name": "c", "tags": {}, "timestamp": time}
    found = [(point.name, point.kind, point.value, point.labels) for point in points(VECTOR, gauge, counter)]
    assert found == [("g", Kind.GAUGE, 1.0, 'host="a"'), ("c", Kind.COUNTER, 2.0, "")]


def test_vectors_incremental_counters_are_refused_with_the_name_of_the_recipe() -> None:
    source = JsonMapped(TopicFormat.model_validate(VECTOR))
    message = {"counter": {"value": 2.0}, "kind": "incremental", "name": "c"}
    [(_, error)] = source.decode([json.dumps(message).encode()]).failures
    assert "deploy/collector/delta.yaml" in str(error)


@pytest.mark.parametrize(
    ("settings", "messages", "expected"),
    [
        # Metricbeat: each metricset has its figures elsewhere.
        (
            {
                "name": "@.metricset.name",
                "values": ["@.system.load", "@.system.memory.used"],
                "time": "@['@timestamp']",
            },
            [
                {"@timestamp": "2024-01-01T00:00:00Z", "metricset": {"name": "load"}, "system": {"load": {"1": 0.5}}},
                {"metricset": {"name": "memory"}, "system": {"memory": {"used": {"bytes": 7}}}},
            ],
            {"load_1": 0.5, "memory_bytes": 7},
        ),
        # CloudWatch's metric streams have statistics; a producer of the site's own beside them one number.
        (
            {"name": ["@.metric_name", "@.metric"], "value": "@.value", "values": "@.value", "time": "@.timestamp"},
            [
                {"metric_name": "DiskWriteOps", "value": {"count": 3.0, "sum": 20.0}, "timestamp": 1},
                {"metric": "queue", "value": 4},
            ],
            {"DiskWriteOps_count": 3.0, "DiskWriteOps_sum": 20.0, "queue": 4},
        ),
    ],
)
def test_messages_of_a_topic_may_have_their_values_at_several_paths(
    settings: dict[str, Any], messages: list[dict[str, Any]], expected: dict[str, float]
) -> None:
    assert {point.name: point.value for point in points(settings, *messages)} == expected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"value": {"delta": "@.v"}}, "is no kind"),
        ({"kind": "gauge"}, "leave kind out"),
        ({"increments": {"kind": "incremental"}}, "must be a path"),
    ],
)
def test_a_value_by_kind_that_contradicts_itself_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        TopicFormat.model_validate({**VECTOR, **change})
