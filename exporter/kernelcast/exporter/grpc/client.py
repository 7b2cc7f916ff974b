"""gRPC to services of this node: the kubelet, a TPU's runtime. gRPC is imported when the first client is made.

Measured (benchmarks/attribution.py): with protobuf it takes 16 MiB of resident memory, 5 of them our own; so nodes
without such a service do without.
"""

import importlib
from typing import Any, Final

from kernelcast.exporter.grpc.messages import Messages, message_classes
from kernelcast.wire.errors import MissingExtraError, ServiceError

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
)
"""Nodes set proxies that must not see local calls; a service that comes back is found within seconds."""


def load_grpc() -> Any:
    """The grpc module.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module("grpc")
    except ImportError:
        raise MissingExtraError(
            "the Python package grpcio is not installed; pip install 'kernelcast[exporter,grpc]', "
            "or set exporter.kubernetes and exporter.tpu to off"
        ) from None


class UnaryClient:
    """Calls unary methods (one request, one answer) of one service. Only the thread that refreshes that source uses it.

    Args:
        target: gRPC's address: `unix:/path` or `host:port`.
        service: The service's full name.
        messages: The service's messages.
        timeout_seconds: Longest duration of each call, connecting included.

    Raises:
        MissingExtraError: grpcio is not installed.
    """

    def __init__(self, target: str, service: str, messages: Messages, *, timeout_seconds: float) -> None:
        self._grpc = load_grpc()
        self._channel = self._grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._service = service
        self._classes = message_classes(service.rpartition(".")[0], messages)
        self._timeout_seconds = timeout_seconds

    def call(self, method: str, request: str, answer: str, **fields: Any) -> Any:
        """Call a method.

        Args:
            method: Its name within the service.
            request: The name of the message to send.
            answer: The name of the message that comes back.
            fields: Fields of the request, by name.

        Raises:
            ServiceError: The service refused, did not answer in time, or is not there.
        """
        stub = self._channel.unary_unary(
            f"/{self._service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._classes[answer].FromString,
        )
        try:
            return stub(self._classes[request](**fields), timeout=self._timeout_seconds)
        except self._grpc.RpcError as error:
            reason = error.code().name.lower()
            raise ServiceError(f"{self._service}/{method}: {reason}: {error.details()}", reason=reason) from None

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()
