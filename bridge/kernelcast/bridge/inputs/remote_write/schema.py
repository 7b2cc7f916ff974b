"""The protobuf messages of Prometheus remote write, as far as `requests` reads them, made at run time.

Sources: prometheus, prompb/remote.proto and prompb/types.proto (1.0), prompb/io/prometheus/write/v2/types.proto (2.0);
start timestamps of samples and histograms as of 2.0-rc.4. A label of 1.0 is declared as bytes, which it is on the wire
as well: the bytes of a known series are looked up, never parsed.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "kernelcast.remote_write"
_TYPES: Final = {
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
    "double": _Field.TYPE_DOUBLE,
    "int64": _Field.TYPE_INT64,
    "sint64": _Field.TYPE_SINT64,
    "sint32": _Field.TYPE_SINT32,
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "int32": _Field.TYPE_INT32,
}

_SCHEMA: Final = """
Label: name=1 string, value=2 string
Sample: value=1 double, timestamp=2 int64, start_timestamp=3 int64
Span: offset=1 sint32, length=2 uint32
Histogram: count_int=1 uint64 count, count_float=2 double count, sum=3 double, schema=4 sint32, zero_threshold=5 double
Histogram: zero_count_int=6 uint64 zero_count, zero_count_float=7 double zero_count, negative_spans=8 *Span
Histogram: negative_deltas=9 *sint64, negative_counts=10 *double, positive_spans=11 *Span, positive_deltas=12 *sint64
Histogram: positive_counts=13 *double, reset_hint=14 int32, timestamp=15 int64, custom_values=16 *double
Histogram: start_timestamp=17 int64
Series1: labels=1 *bytes, samples=2 *Sample, histograms=4 *Histogram
Metadata1: type=1 int32, metric_family_name=2 string, help=4 string, unit=5 string
WriteRequest: timeseries=1 *Series1, metadata=3 *Metadata1
Metadata2: type=1 int32, help_ref=3 uint32, unit_ref=4 uint32
Series2: labels_refs=1 *uint32, samples=2 *Sample, histograms=3 *Histogram, metadata=5 Metadata2
Series2: created_timestamp=6 int64
Request: symbols=4 *string, timeseries=5 *Series2
"""
"""A message a line: name=number [*]type [oneof]; `*` repeats."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="kernelcast_remote_write.proto", package=_PACKAGE, syntax="proto3")
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    for line in _SCHEMA.strip().splitlines():
        name, _, fields = line.partition(": ")
        if name not in messages:
            messages[name] = file.message_type.add(name=name)
        for field in fields.split(", "):
            _add(messages[name], field)
    return file


def _add(message: descriptor_pb2.DescriptorProto, field: str) -> None:
    declared, type_name, *oneof = field.split()
    name, _, number = declared.partition("=")
    added = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if type_name.startswith("*"):
        added.label = _Field.LABEL_REPEATED
    type_name = type_name.removeprefix("*")
    if type_name in _TYPES:
        added.type = _TYPES[type_name]
    else:
        added.type, added.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{type_name}"
    if oneof:
        names = [known.name for known in message.oneof_decl]
        if oneof[0] not in names:
            message.oneof_decl.add(name=oneof[0])
            names.append(oneof[0])
        added.oneof_index = names.index(oneof[0])


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Label", "Histogram", "WriteRequest", "Request")
    }


CLASSES: Final = _classes()
LABEL: Final = CLASSES["Label"]
HISTOGRAM: Final = CLASSES["Histogram"]
WRITE_REQUEST: Final = CLASSES["WriteRequest"]
"""`prometheus.WriteRequest`: remote write 1.0."""
REQUEST: Final = CLASSES["Request"]
"""`io.prometheus.write.v2.Request`: remote write 2.0."""
