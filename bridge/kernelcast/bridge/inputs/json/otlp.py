"""OTLP in JSON: rewritten in protobuf by `wire`, and decoded like every other export request.

So a series that comes in both encodings is one, of one writer, and both give the same errors. `Selection` makes one
`OtlpJson`; see `protocol.Input`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.json.text import loads
from kernelcast.bridge.inputs.json.wire import JsonEncoder, WrongJsonError
from kernelcast.bridge.inputs.parsing import too_long
from kernelcast.bridge.tables.columns import Int32Array
from kernelcast.columnar import Decoded, Decoder, DecoderLimits, SeriesIdentity, SharedIdentities
from kernelcast.wire.errors import DecodeError

DEFAULT_LIMITS: Final = DecoderLimits()


class OtlpJson:
    """Reads export requests in JSON; not thread-safe.

    Args:
        _settings: The topic's settings; nothing of them is used.
        limits: Limits of one message.
        options: Other keyword arguments of `Decoder`.
    """

    format = "otlp_json"

    def __init__(
        self, _settings: TopicFormat | None = None, *, limits: DecoderLimits = DEFAULT_LIMITS, **options: Any
    ) -> None:
        self._limits = limits
        self._decoder = Decoder(limits=limits, **options)
        self._encoder = JsonEncoder(ExportMetricsServiceRequest.DESCRIPTOR)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decode a batch; each message counts whole or not at all."""
        bodies: list[bytes] = []
        kept: list[int] = []
        failures: list[tuple[int, DecodeError]] = []
        for index, message in enumerate(messages):
            try:
                bodies.append(self._rewritten(message))
            except DecodeError as error:
                failures.append((index, error))
            else:
                kept.append(index)
        decoded = self._decoder.decode(bodies)
        if not failures:
            return decoded
        failures += [(kept[index], error) for index, error in decoded.failures]
        messages_of = np.array(kept, np.int32)
        return replace(
            decoded,
            numbers=replace(decoded.numbers, message=messages_of[decoded.numbers.message]),
            histograms=replace(decoded.histograms, message=messages_of[decoded.histograms.message]),
            failures=tuple(sorted(failures, key=lambda failure: failure[0])),
        )

    def identity(self, number: int) -> SeriesIdentity:
        """Identity of a series number.

        Raises:
            KeyError: The number is not in use.
        """
        return self._decoder.identity(number)

    def identities(self, numbers: Int32Array) -> SharedIdentities:
        """Identities of many series numbers; see `Decoder.identities`."""
        return self._decoder.identities(numbers)

    def forget(self, numbers: Int32Array) -> None:
        """Give numbers back; they may come again for other series."""
        self._decoder.forget(numbers)

    def _rewritten(self, message: bytes) -> bytes:
        if len(message) > self._limits.message_bytes:
            raise too_long(len(message), self._limits)
        try:
            return self._encoder.encode(loads(message))
        except WrongJsonError as error:
            where = ".".join(error.path).replace(".[", "[") or "the message"
            raise DecodeError(
                f"message is no OTLP in JSON: {where} {error}; look at the producer, or at the topic's entry in "
                "bridge.formats"
            ) from None
