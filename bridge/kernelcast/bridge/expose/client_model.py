"""Message classes of io.prometheus.client, made at run time, without generated code; `own` fills them, tests read them.

Only the used messages are defined: counters, gauges, untyped values, summaries, and histograms, classic and native.
Source: prometheus/client_model, io/prometheus/client/metrics.proto.
"""

from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_PACKAGE: Final = "io.prometheus.client"
_TYPES: Final = ("COUNTER", "GAUGE", "SUMMARY", "UNTYPED", "HISTOGRAM", "GAUGE_HISTOGRAM")
COUNTER, GAUGE, SUMMARY, UNTYPED, HISTOGRAM, GAUGE_HISTOGRAM = range(6)
"""Numbers of `MetricType`."""

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_MESSAGES: Final[dict[str, str]] = {
    "LabelPair": "string name=1; string value=2",
    "Gauge": "double value=1",
    "Counter": "double value=1; Exemplar exemplar=2; Timestamp start_timestamp=3",
    "Quantile": "double quantile=1; double value=2",
    "Summary": "uint64 sample_count=1; double sample_sum=2; Quantile* quantile=3; Timestamp start_timestamp=4",
    "Untyped": "double value=1",
    "Histogram": "uint64 sample_count=1; double sample_sum=2; Bucket* bucket=3; sint32 schema=5; "
    "double zero_threshold=6; uint64 zero_count=7; BucketSpan* negative_span=9; sint64* negative_delta=10; "
    "BucketSpan* positive_span=12; sint64* positive_delta=13; Timestamp start_timestamp=15; Exemplar* exemplars=16",
    "Bucket": "uint64 cumulative_count=1; double upper_bound=2; Exemplar exemplar=3",
    "BucketSpan": "sint32 offset=1; uint32 length=2",
    "Exemplar": "LabelPair* label=1; double value=2; Timestamp timestamp=3",
    "Metric": "LabelPair* label=1; Gauge gauge=2; Counter counter=3; Summary summary=4; Untyped untyped=5; "
    "int64 timestamp_ms=6; Histogram histogram=7",
    "MetricFamily": "string name=1; string help=2; MetricType type=3; Metric* metric=4; string unit=5",
}
"""Fields of each message: `type name=number`, separated by `; `; `*` behind the type repeats it."""
_SCALARS: Final[dict[str, Any]] = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "sint32": FieldDescriptorProto.TYPE_SINT32,
    "sint64": FieldDescriptorProto.TYPE_SINT64,
}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="kernelcast/client_model.proto", package=_PACKAGE, syntax="proto2")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    types = file.enum_type.add(name="MetricType")
    for number, name in enumerate(_TYPES):
        types.value.add(name=name, number=number)
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for text in fields.split("; "):
            kind, _, rest = text.partition(" ")
            called, _, its_number = rest.partition("=")
            described.field.append(_field(kind, called, int(its_number)))
    return file


def _field(kind: str, name: str, number: int) -> FieldDescriptorProto:
    plain = kind.removesuffix("*")
    field = FieldDescriptorProto(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_OPTIONAL if plain == kind else FieldDescriptorProto.LABEL_REPEATED
    if plain in _SCALARS:
        field.type = _SCALARS[plain]
    elif plain == "MetricType":
        field.type = FieldDescriptorProto.TYPE_ENUM
        field.type_name = f".{_PACKAGE}.MetricType"
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_TIMESTAMP if plain == 'Timestamp' else f'{_PACKAGE}.{plain}'}"
    return field


def _metric_family() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MetricFamily"))


MetricFamily: Final = _metric_family()
"""The class of the message that a scrape is made of."""
