import base64
import json
import random
from typing import Any, cast

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.columnar.otlp_messages import request
from tests.support.columnar.otlp_oracle import decoded_truth, truth
from tests.support.examples import parser_examples

from kernelcast.bridge.inputs.json.otlp import OtlpJson
from kernelcast.bridge.inputs.json.wire import JsonEncoder

ENCODER = JsonEncoder(ExportMetricsServiceRequest.DESCRIPTOR)


def in_otlps_json(value: Any) -> Any:
    """Protobuf's own JSON, with the ids in hexadecimal as OTLP has them."""
    if isinstance(value, list):
        return [in_otlps_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "trace_id", "span_id")
    return {key: base64.b64decode(item).hex() if key in ids else in_otlps_json(item) for key, item in value.items()}


def export(point: dict[str, Any], kind: str = "gauge", **more: Any) -> bytes:
    metric = {"name": "m", kind: {"dataPoints": [{"timeUnixNano": "1700000000000000000", **point}], **more}}
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()


@parser_examples(300)
@given(seed=st.integers(0, 2**63), snake_case=st.booleans())
def test_a_request_in_json_is_the_same_request_in_protobuf(seed: int, snake_case: bool) -> None:  # noqa: FBT001
    made = request(random.Random(seed))
    shaped = in_otlps_json(json_format.MessageToDict(made, preserving_proto_field_name=snake_case))
    rewritten = ExportMetricsServiceRequest.FromString(ENCODER.encode(shaped))
    assert rewritten.SerializeToString(deterministic=True) == made.SerializeToString(deterministic=True)
    source = OtlpJson()
    decoded = source.decode([json.dumps(shaped).encode()])
    expected = truth(made.SerializeToString())
    assert (expected is None) == bool(decoded.failures)
    if expected is not None:
        assert decoded_truth(cast("Any", source), decoded, 0) == expected


def test_integers_come_as_text_or_numbers_and_special_doubles_by_name() -> None:
    source = OtlpJson()
    bodies = [export({"asInt": "9007199254740993"}), export({"asInt": 7}), export({"asDouble": "Infinity"})]
    numbers = source.decode(bodies).numbers
    assert (numbers.integer.tolist(), numbers.value[2]) == ([9007199254740993, 7, 0], float("inf"))


@pytest.mark.parametrize("temporality", [2, "AGGREGATION_TEMPORALITY_CUMULATIVE"])
def test_enumerations_come_as_numbers_or_names(temporality: object) -> None:
    source = OtlpJson()
    source.decode([export({"asInt": 1}, "sum", aggregationTemporality=temporality, isMonotonic=True)])
    assert (source.identity(0).temporality, source.identity(0).monotonic) == (2, True)


def test_unknown_names_and_nulls_are_skipped() -> None:
    decoded = OtlpJson().decode([export({"asInt": 1, "invented": {"a": [1]}, "startTimeUnixNano": None})])
    assert (decoded.failures, decoded.numbers.integer.tolist()) == ((), [1])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"{", "no JSON"),
        (b"[]", "the message is a list"),
        (b"[" * 3000, "no JSON"),
        (b'{"resourceMetrics":{}}', "resourceMetrics is a dict"),
        (export({"asInt": "x"}), "dataPoints[0].asInt is 'x'; a whole number"),
        (export({"asInt": 2**63}), "asInt is 9223372036854775808; it must lie in"),
        (export({"asInt": 1, "asDouble": 2}), "more than one of asDouble, asInt"),
        (export({"timeUnixNano": -1}), "timeUnixNano is -1; it must lie in 0..18446744073709551615"),
        (export({"timeUnixNano": 1, "time_unix_nano": 2}), "twice, in two spellings"),
        (export({"asDouble": True}), "a number,"),
        (export({"exemplars": [{"traceId": "zz"}]}), "hexadecimal"),
        (export({"attributes": [{"key": 1}]}), "attributes[0].key is 1; text"),
    ],
)
def test_a_wrong_message_is_refused_whole_with_the_place_of_the_fault(body: bytes, where: str) -> None:
    decoded = OtlpJson().decode([export({"asInt": 1}), body, export({"asInt": 3})])
    [(index, error)] = decoded.failures
    assert index == 1
    assert where in str(error)
    assert (decoded.numbers.integer.tolist(), decoded.numbers.message.tolist()) == ([1, 3], [0, 2])


def test_values_nested_too_deeply_are_refused() -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(120):
        value = {"arrayValue": {"values": [value]}}
    [(_, error)] = OtlpJson().decode([export({"attributes": [{"key": "a", "value": value}]})]).failures
    assert "messages deep" in str(error)
