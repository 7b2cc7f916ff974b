"""A kubelet that answers real gRPC on a Unix socket, with bytes made by hand."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from tests.support.exporter.protobuf_bytes import number, packed, part
from tests.support.waiting import LONGEST_SECONDS

LIST = "/v1.PodResourcesLister/List"


def container(name: str, *devices: tuple[str, str], claims: bytes = b"") -> bytes:
    """A container with (resource, device id) pairs, and what newer kubelets tell besides."""
    given = b"".join(
        part(2, part(1, resource) + part(2, one) + part(3, part(1, number(1, 0)))) for resource, one in devices
    )
    return part(3, part(1, name) + given + packed(3, [0, 1]) + claims)


def claim(name: str, device: str, driver: str = "gpu.nvidia.com") -> bytes:
    """A container's device by dynamic resource allocation."""
    one = part(1, part(1, f"k8s.{driver}/claim={device}")) + part(2, driver) + part(3, "node-pool") + part(4, device)
    return part(5, part(2, name) + part(3, "claims") + part(4, one))


def pod(name: str, namespace: str, *containers: bytes) -> bytes:
    """A pod of the answer."""
    return part(1, part(1, name) + part(2, namespace) + b"".join(containers))


class FakeKubelet(grpc.GenericRpcHandler):
    """A kubelet; start and stop it as often as wanted.

    Attributes:
        answer: The bytes of the next answers.
        status: The status of its refusals; None answers.
        calls: How often it was asked.
        may_answer: Cleared, it is slow.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.answer = b""
        self.status: grpc.StatusCode | None = None
        self.calls = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server: grpc.Server | None = None

    def start(self) -> "FakeKubelet":
        """Listen."""
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop listening, and remove the socket, as a kubelet that ends does."""
        self.may_answer.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """The one method."""
        if handler_call_details.method != LIST:
            return None
        return grpc.unary_unary_rpc_method_handler(self._list)

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request == b"", "List takes no argument"
        self.calls += 1
        self.may_answer.wait(LONGEST_SECONDS)
        if self.status is not None:
            context.abort(self.status, "set to refuse")
        return self.answer
