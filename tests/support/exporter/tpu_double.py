"""A TPU's runtime that answers real gRPC on a port of this machine, with bytes made by hand."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from tests.support.exporter.protobuf_bytes import number, packed, part, real
from tests.support.waiting import LONGEST_SECONDS

SERVICE = "/tpu.monitoring.runtime.RuntimeMetricService/"


def of_device(device: int) -> bytes:
    """The attribute of a point: a device by its number."""
    return part(1, part(1, "device-id") + part(2, number(3, device)))


def of(**attributes: str | int) -> bytes:
    """The attribute of a point: several, as text or numbers."""
    found = b""
    for key, value in attributes.items():
        one = part(1, value) if isinstance(value, str) else number(3, value)
        found += part(1, part(1, key.replace("_size", "-size")) + part(2, one))
    return part(1, part(1, "attributes") + part(2, part(6, found)))


def gauge(attribute: bytes, value: float) -> bytes:
    """One point of a gauge, as integer or double."""
    measure = number(2, value) if isinstance(value, int) else real(1, value)
    return part(3, attribute + part(2, number(1, 1_700_000_000)) + part(3, measure))


def distribution(
    attribute: bytes, counts: list[int], *, mean: float, deviation: float = 0.0, growth: float = 2.0, start: int = 0
) -> bytes:
    """One point of a distribution whose finite buckets begin at 1 and grow by `growth`."""
    options = part(6, part(2, number(1, len(counts) - 2) + real(2, growth) + real(3, 1.0)))
    body = number(1, sum(counts)) + real(2, mean) + real(3, 0.1) + real(5, deviation) + options + packed(7, counts)
    since = part(7, number(1, start) + number(2, 5)) if start else b""
    return part(3, attribute + part(5, body) + since)


class FakeRuntime(grpc.GenericRpcHandler):
    """A program's runtime.

    Attributes:
        metrics: Names to the points of their answers.
        failures: Names to the status that they are refused with; `""` is the list of names.
        slow: Names whose answers wait until `may_answer` is set.
        asked: Names, in order.
    """

    def __init__(self, **metrics: bytes) -> None:
        self.metrics: dict[str, bytes] = dict(metrics)
        self.failures: dict[str, grpc.StatusCode] = {}
        self.slow: set[str] = set()
        self.may_answer = threading.Event()
        self.asked: list[str] = []
        self._server: grpc.Server | None = None
        self.port = 0

    def start(self) -> "FakeRuntime":
        """Listen, on the same port as before if there was one."""
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()
        return self

    def stop(self) -> None:
        """The program ends."""
        self.may_answer.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """The methods that are asked for."""
        handlers = {f"{SERVICE}ListSupportedMetrics": self._list, f"{SERVICE}GetRuntimeMetric": self._get}
        handler = handlers.get(handler_call_details.method)
        return grpc.unary_unary_rpc_method_handler(handler) if handler else None

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request == b"", "all names are wanted"
        self._consider("", context)
        return b"".join(part(1, part(1, name)) for name in [*self.metrics, "something.new"])

    def _get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request[0] == 10, "field 1 is the name"
        name = request[2:].decode()
        self.asked.append(name)
        self._consider(name, context)
        return part(1, part(1, name) + part(2, "a description") + self.metrics[name])

    def _consider(self, name: str, context: grpc.ServicerContext) -> None:
        if name in self.slow:
            self.may_answer.wait(LONGEST_SECONDS)
        if name in self.failures:
            context.abort(self.failures[name], "set to fail")
