"""A log of findings that collects what it would send."""

from typing import Any

from prometheus_client import CollectorRegistry

from kernelcast.predictor.alarms.finding_log import FindingLog
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.events import finding_from, to_event
from kernelcast.wire.findings import Finding, Mark


class Sent:
    """Collects what would be sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes | None, bytes | None]] = []

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, headers: object = (), on_delivery: Any = None
    ) -> None:
        assert not headers
        del on_delivery
        self.messages.append((topic, key, value))

    def findings(self) -> list[Finding]:
        return [finding_from(decode_event(value or b"")) for _, _, value in self.messages]


class Message:
    def __init__(self, data: Finding | Mark) -> None:
        self._value = encode_event(to_event(data, source="/test", time_ns=1))

    def value(self) -> bytes:
        return self._value


class Nothing:
    """A reader of an empty topic."""

    def partitions(self, _topic: str) -> list[Any]:
        return []

    def close(self, _timeout_seconds: float = 0.0) -> None:
        pass


def log(sent: Sent, registry: CollectorRegistry, **settings: Any) -> FindingLog:
    reader: Any = Nothing()
    return FindingLog(AlarmSettings(**settings), sent, reader, client_id="p1", registry=registry)
