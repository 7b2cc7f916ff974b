"""Checks and rewrites messages that the walk does not read; protobuf's parser decides whether they are valid.

The `Decoder` alone calls it: `check` for a message with bytes that the walk cannot verify, `canonical` for one that it
cannot read.
"""

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.wire.errors import DecodeError


def check(message: bytes, where: int) -> None:
    """Raise unless protobuf accepts the message.

    Args:
        message: An export request.
        where: The byte that the walk reached, for the error.

    Raises:
        DecodeError: It is truncated, malformed, or has text that is not UTF-8.
    """
    _parse(message, where)


def canonical(message: bytes, where: int) -> bytes:
    """The same export request as protobuf understands it and writes it.

    Equal fields are merged, or the last one counts; arrays are packed; attributes lie together; groups and other
    unknown fields are left out.

    Args:
        message: An export request.
        where: The byte that the walk reached, for the error.

    Raises:
        DecodeError: It is truncated, malformed, or has text that is not UTF-8.
    """
    request = _parse(message, where)
    request.DiscardUnknownFields()
    return request.SerializeToString()


def _parse(message: bytes, where: int) -> ExportMetricsServiceRequest:
    try:
        return ExportMetricsServiceRequest.FromString(message)
    except ProtobufError as error:
        raise DecodeError(
            f"message of {len(message)} bytes is no OTLP export request: protobuf says {str(error).strip()!r}, in or "
            f"after the field at byte {where}; look at the producer, or at what lies between it and the topic"
        ) from error
