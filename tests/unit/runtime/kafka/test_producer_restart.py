"""The producer after a fatal error of librdkafka: it replaces its client, once."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry

from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import runtime


def refusal() -> KafkaException:
    """The exception of `produce` after a fatal error: confluent_kafka does not mark it as fatal."""
    return KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message: fenced"))


class FakeClient:
    """librdkafka's producer; `refuse` is called for each message, and may raise.

    The first call that serves its events after a fatal error raises that error, in place of calling `error_cb`.
    """

    def __init__(self, refuse: Callable[[], None], *, fatal: KafkaException | None = None) -> None:
        self._refuse, self._fatal = refuse, fatal
        self.values: list[bytes] = []
        self.is_purged = self.is_served = False

    def produce(self, _topic: str, *, value: bytes, **_rest: Any) -> None:
        self._refuse()
        self.values.append(value)

    def poll(self, _timeout_seconds: float) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal

    def purge(self) -> None:
        self.is_purged = True

    def flush(self, timeout_seconds: float) -> int:
        self.poll(timeout_seconds)
        self.is_served = True
        return 0

    def __len__(self) -> int:
        return len(self.values)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fatal_error_replaces_the_client_once_however_many_threads_meet_it(threads: int) -> None:
    clients: list[FakeClient] = []
    left = threads

    def refuse() -> None:
        nonlocal left
        left -= 1
        if left > 0:  # another thread sends before this one has seen the error
            producer.send("topic", key=None, value=b"second")
        raise refusal()

    def make(_config: Any, **_rest: Any) -> FakeClient:
        clients.append(FakeClient((lambda: None) if clients else refuse))
        return clients[-1]

    producer = Producer(KafkaSettings(), client_id="test", client=make)
    producer.send("topic", key=None, value=b"first")
    assert len(clients) == 2
    assert len(clients[1].values) == threads
    assert clients[0].is_purged
    assert not clients[1].is_purged


@pytest.mark.parametrize("fatal", [(True, True), (False, True), (True, False), (False, False)])
def test_a_dropped_message_has_the_reason_of_its_last_error(fatal: tuple[bool, bool]) -> None:
    errors: list[BaseException] = [refusal() if each else BufferError() for each in fatal]

    def refuse() -> None:
        raise errors.pop(0)

    reasons: list[str] = []
    registry = CollectorRegistry()
    producer = Producer(
        KafkaSettings(), client_id="test", registry=registry, client=lambda _config, **_rest: FakeClient(refuse)
    )
    producer.send("topic", key=None, value=b"first", on_delivery=lambda reason: reasons.append(str(reason)))
    assert [("fenced" in reason, "queue" in reason) for reason in reasons] == [(fatal[-1], not fatal[-1])]
    dropped = {
        cause: registry.get_sample_value(
            f"{runtime.PRODUCER_DROPPED.prometheus_name}", {"topic": "topic", "cause": cause}
        )
        for cause in ("queue_full", "refused")
    }
    assert dropped == {"queue_full": not fatal[-1], "refused": fatal[-1]}


@pytest.mark.parametrize("call", ["send", "poll", "flush", "close"])
def test_a_fatal_error_while_events_are_served_replaces_the_client_and_is_not_raised(call: str) -> None:
    fatal = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True))
    clients: list[FakeClient] = []

    def make(_config: Any, **_rest: Any) -> FakeClient:
        clients.append(FakeClient(lambda: None, fatal=None if clients else fatal))
        return clients[-1]

    producer = Producer(KafkaSettings(), client_id="test", client=make)
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: producer.send("topic", key=None, value=b"first"),
        "poll": producer.poll,
        "flush": lambda: producer.flush(1.0),
        "close": lambda: producer.close(1.0),
    }
    calls[call]()
    producer.send("topic", key=None, value=b"next")

    assert len(clients) == 2
    assert clients[1].values == [b"next"]
    assert (clients[0].is_purged, clients[0].is_served) == (True, True), "its messages are reported as lost"


def test_the_messages_of_a_replaced_client_are_reported_although_serving_them_raises_once_more() -> None:
    fatal = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True))
    clients: list[FakeClient] = []

    def refuse() -> None:
        raise refusal()

    def make(_config: Any, **_rest: Any) -> FakeClient:
        clients.append(FakeClient((lambda: None) if clients else refuse, fatal=None if clients else fatal))
        return clients[-1]

    Producer(KafkaSettings(), client_id="test", client=make).send("topic", key=None, value=b"first")
    assert (clients[0].is_purged, clients[0].is_served) == (True, True)
    assert clients[1].values == [b"first"]
