"""Remote write's messages as protobuf's own classes, the oracle of what we encode by hand.

Source: prompb/types.proto, prompb/remote.proto and prompb/io/prometheus/write/v2/types.proto of Prometheus 3.15.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

KINDS = descriptor_pb2.FieldDescriptorProto
NUMBERS = {
    "double": KINDS.TYPE_DOUBLE,
    "int64": KINDS.TYPE_INT64,
    "uint64": KINDS.TYPE_UINT64,
    "sint64": KINDS.TYPE_SINT64,
    "sint32": KINDS.TYPE_SINT32,
    "uint32": KINDS.TYPE_UINT32,
    "int32": KINDS.TYPE_INT32,
    "string": KINDS.TYPE_STRING,
}
HISTOGRAM = """count_int:uint64=1 count_float:double=2 sum:double=3 schema:sint32=4 zero_threshold:double=5
zero_count_int:uint64=6 zero_count_float:double=7 negative_spans:BucketSpan*=8 negative_deltas:sint64*=9
negative_counts:double*=10 positive_spans:BucketSpan*=11 positive_deltas:sint64*=12 positive_counts:double*=13
reset_hint:int32=14 timestamp:int64=15 custom_values:double*=16"""
SPAN = "offset:sint32=1 length:uint32=2"
V1 = {
    "BucketSpan": SPAN,
    "Histogram": HISTOGRAM,
    "Label": "name:string=1 value:string=2",
    "Sample": "value:double=1 timestamp:int64=2",
    "Exemplar": "labels:Label*=1 value:double=2 timestamp:int64=3",
    "TimeSeries": "labels:Label*=1 samples:Sample*=2 exemplars:Exemplar*=3 histograms:Histogram*=4",
    "MetricMetadata": "type:int32=1 metric_family_name:string=2 help:string=4 unit:string=5",
    "WriteRequest": "timeseries:TimeSeries*=1 metadata:MetricMetadata*=3",
}
V2 = {
    "BucketSpan": SPAN,
    "Histogram": f"{HISTOGRAM} start_timestamp:int64=17",
    "Sample": "value:double=1 timestamp:int64=2 start_timestamp:int64=3",
    "Exemplar": "labels_refs:uint32*=1 value:double=2 timestamp:int64=3",
    "Metadata": "type:int32=1 help_ref:uint32=3 unit_ref:uint32=4",
    "TimeSeries": """labels_refs:uint32*=1 samples:Sample*=2 histograms:Histogram*=3 exemplars:Exemplar*=4
    metadata:Metadata=5""",
    "Request": "symbols:string*=4 timeseries:TimeSeries*=5",
}


def classes(package: str, messages: dict[str, str]) -> dict[str, Any]:
    """The classes of some messages, written as `name:type=number`, a star for repeated ones."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, text in messages.items():
        message = file.message_type.add(name=name)
        for field in text.split():
            head, number = field.split("=")
            label, kind = head.split(":")
            repeated = kind.endswith("*")
            kind = kind.rstrip("*")
            added = message.field.add(name=label, number=int(number))
            added.label = KINDS.LABEL_REPEATED if repeated else KINDS.LABEL_OPTIONAL
            added.type = NUMBERS.get(kind, KINDS.TYPE_MESSAGE)
            if kind not in NUMBERS:
                added.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


WriteRequest: Any = classes("kernelcast.test.v1", V1)["WriteRequest"]
Request: Any = classes("kernelcast.test.v2", V2)["Request"]
