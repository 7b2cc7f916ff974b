import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import structlog
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from tests.support.bridge.fleet import Browser
from tests.support.bridge.list_kafka import ManualClock

from kernelcast.bridge import webhook as webhook_module
from kernelcast.bridge.firing import FiringAlerts
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.webhook import (
    DEFAULT_ACKNOWLEDGEMENT_SECONDS,
    LARGEST_BODY_BYTES,
    MAX_AT_ONCE,
    Webhook,
)
from kernelcast.runtime.kafka.producer import Headers
from kernelcast.wire.cloudevents import MAX_EVENT_BYTES, decode_event
from kernelcast.wire.events import alert_from

ALERT = {
    "status": "firing",
    "labels": {"alertname": "KernelSlow", "kernel": "gemm"},
    "annotations": {"summary": "slow"},
    "startsAt": "2026-11-20T10:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus/graph",
    "fingerprint": "8f1c0a",
}
PAYLOAD = {
    "version": "4",
    "groupKey": '{}:{alertname="KernelSlow"}',
    "status": "firing",
    "receiver": "kernelcast",
    "groupLabels": {"alertname": "KernelSlow"},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager",
    "alerts": [ALERT],
}


JSON_HEADERS = [(b"content-type", b"application/json")]


class AckingProducer:
    """A Kafka that answers when polled, for as long as it is up."""

    def __init__(self, answer: str | None = None, *, answers: bool = True) -> None:
        self.sent: list[Any] = []
        self._waiting: list[Any] = []
        self._answer, self._answers = answer, answers

    @property
    def patience_seconds(self) -> float:
        """Long where the answer comes at once, so a busy machine does not cut it off."""
        return 10.0 if self._answers else 0.05

    def send(self, topic: str, *, key: Any, value: Any, headers: Headers = (), on_delivery: Any = None) -> None:
        self.sent.append((topic, key, value, dict(headers)))
        self._waiting.append(on_delivery)

    def poll(self, _timeout_seconds: float = 0.0) -> None:
        while self._answers and self._waiting:
            self._waiting.pop()(self._answer)


def post(
    body: Any,
    producer: AckingProducer | None = None,
    registry: CollectorRegistry | None = None,
    content_type: str | None = "application/json",
) -> tuple[httpx.Response, list[Any]]:
    producer = producer or AckingProducer()
    webhook = Webhook(
        producer,
        instruments=Instruments(registry or CollectorRegistry()),
        clock=ManualClock(),
        source="/kernelcast/bridge/test",
        firing=FiringAlerts(ManualClock()),
        timeout_seconds=producer.patience_seconds,
    )
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    browser = Browser(Route("/api/v1/alerts", webhook.answer, methods=["POST"]))
    headers = {} if content_type is None else {"content-type": content_type}
    return browser.ask("POST", "/api/v1/alerts", content=content, headers=headers), producer.sent


def test_an_alert_becomes_one_event_keyed_by_its_fingerprint() -> None:
    answer, sent = post(PAYLOAD)
    assert answer.status_code == 200
    [(topic, key, value, headers)] = sent
    assert (topic, key) == ("kernelcast.alerts", b"8f1c0a")
    assert headers["content-type"].startswith(b"application/cloudevents+json")
    event = decode_event(value)
    alert = alert_from(event)
    assert (alert.status, alert.starts_at, alert.labels["kernel"]) == ("firing", "2026-11-20T10:00:00Z", "gemm")
    assert (alert.receiver, alert.external_url, event["source"]) == (
        "kernelcast",
        "http://alertmanager",
        "/kernelcast/bridge/test",
    )


def test_a_notification_of_grafana_is_taken_as_alertmanager_s() -> None:
    """Grafana's alerting sends version "1", with fields of its own beside the same ones."""
    alert: dict[str, Any] = json.loads(json.dumps(PAYLOAD))["alerts"][0]
    own = {"silenceURL": "https://grafana/silence", "dashboardURL": "", "panelURL": "", "values": {"B": 44.2}}
    more = {"version": "1", "orgId": 1, "title": "[FIRING:1]", "state": "alerting", "message": "firing"}
    assert webhook_module.parse(
        json.dumps({**PAYLOAD, **more, "alerts": [{**alert, **own}]}).encode()
    ) == webhook_module.parse(json.dumps({**PAYLOAD, "alerts": [alert]}).encode())


def test_a_null_is_a_field_that_is_absent() -> None:
    """Go writes an empty map that was never made as null."""
    body = {**PAYLOAD, "alerts": [{**ALERT, "annotations": None, "endsAt": None, "generatorURL": None}]}
    (alert,) = webhook_module.parse(json.dumps({**body, "externalURL": None}).encode())
    assert (alert.annotations, alert.ends_at, alert.generator_url, alert.external_url) == ({}, "", "", "")


def test_the_same_notification_again_gives_the_same_event_id_and_a_resolution_another() -> None:
    ids = []
    for status in ("firing", "firing", "resolved"):
        _, sent = post({**PAYLOAD, "alerts": [{**ALERT, "status": status}]})
        ids.append(decode_event(sent[0][2])["id"])
    assert ids[0] == ids[1] != ids[2]


def test_an_alert_that_fires_has_no_end() -> None:
    """prometheus/alertmanager issue 3351: its end is the year 1."""
    ended = "2026-11-20T11:00:00Z"
    _, sent = post({**PAYLOAD, "alerts": [ALERT, {**ALERT, "status": "resolved", "endsAt": ended}]})
    assert [alert_from(decode_event(value)).ends_at for _, _, value, _ in sent] == ["", ended]


@pytest.mark.parametrize("producer", [AckingProducer("broker is down"), AckingProducer(answers=False)])
def test_alertmanager_gets_503_when_kafka_has_not_acknowledged(producer: AckingProducer | None) -> None:
    registry = CollectorRegistry()
    answer, _ = post(PAYLOAD, producer, registry)
    assert answer.status_code == 503
    assert registry.get_sample_value("kernelcast_bridge_alerts_total", {"outcome": "unacknowledged"}) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([], "list"),
        ({**PAYLOAD, "version": "3"}, "version"),
        ({**PAYLOAD, "alerts": None}, "alerts"),
        ({**PAYLOAD, "alerts": ["text"]}, "alerts[0]"),
        ({**PAYLOAD, "alerts": [{**ALERT, "fingerprint": ""}]}, "fingerprint"),
        ({**PAYLOAD, "alerts": [{**ALERT, "startsAt": 5}]}, "startsAt"),
        ({**PAYLOAD, "alerts": [{**ALERT, "status": "pending"}]}, "status"),
        ({**PAYLOAD, "alerts": [{**ALERT, "labels": {"a": 1}}]}, "labels"),
        ({**PAYLOAD, "alerts": [{**ALERT, "annotations": []}]}, "annotations"),
        ({**PAYLOAD, "receiver": 7}, "receiver"),
        ({**PAYLOAD, "alerts": [{**ALERT, "labels": {"a": "x" * MAX_EVENT_BYTES}}]}, "limit"),
    ],
)  # fmt: skip
def test_an_invalid_notification_is_refused_with_the_reason(body: Any, reason: str) -> None:
    answer, sent = post(body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert sent == []


FOREIGN_TYPES = ["text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", "", None]


@pytest.mark.parametrize("content_type", FOREIGN_TYPES)
def test_a_body_that_any_web_page_could_have_sent_is_refused(content_type: str | None) -> None:
    registry = CollectorRegistry()
    answer, sent = post(PAYLOAD, registry=registry, content_type=content_type)
    assert (answer.status_code, sent) == (415, [])
    assert "must be application/json" in answer.json()["error"]
    assert registry.get_sample_value("kernelcast_bridge_alerts_total", {"outcome": "refused"}) == 1


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_may_say_more_of_itself(content_type: str) -> None:
    answer, sent = post(PAYLOAD, content_type=content_type)
    assert (answer.status_code, len(sent)) == (200, 1)


def test_alertmanager_gets_our_answer_before_it_gives_up() -> None:
    least_of_alertmanager_seconds = 10.0
    assert least_of_alertmanager_seconds - 2 >= DEFAULT_ACKNOWLEDGEMENT_SECONDS


class CountingProducer(AckingProducer):
    """A Kafka that is down; counts how often it was waited for."""

    polls = 0

    def poll(self, _timeout_seconds: float = 0.0) -> None:
        self.polls += 1


def test_a_body_that_comes_slowly_leaves_kafka_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_seconds = [100.0]
    monkeypatch.setattr(webhook_module, "time", SimpleNamespace(monotonic=lambda: now_seconds[0]))
    producer = CountingProducer(answers=False)
    webhook = made_with(producer, CollectorRegistry(), timeout_seconds=8.0)
    content = json.dumps(PAYLOAD).encode()

    async def receive() -> Any:
        now_seconds[0] += 9.0
        return {"type": "http.request", "body": content, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": JSON_HEADERS}
    answer = asyncio.run(webhook.answer(Request(scope, receive)))

    assert (answer.status_code, len(producer.sent), producer.polls) == (503, 1, 0)


def test_a_body_that_is_too_long_is_refused() -> None:
    answer, sent = post(b" " * (LARGEST_BODY_BYTES + 1))
    assert answer.status_code == 413
    assert sent == []


def test_too_many_alerts_at_once_are_refused() -> None:
    answer, _ = post({**PAYLOAD, "alerts": [ALERT] * 1001})
    assert answer.status_code == 413


def test_annotations_that_are_too_long_do_not_cost_the_alert() -> None:
    answer, sent = post({**PAYLOAD, "alerts": [{**ALERT, "annotations": {"text": "x" * MAX_EVENT_BYTES}}]})
    assert answer.status_code == 200
    assert "kernelcast_truncated" in alert_from(decode_event(sent[0][2])).annotations


def test_a_notification_without_alerts_is_fine() -> None:
    answer, sent = post({**PAYLOAD, "alerts": []})
    assert (answer.status_code, sent) == (200, [])


def made_with(producer: AckingProducer, registry: CollectorRegistry, timeout_seconds: float | None = None) -> Webhook:
    return Webhook(
        producer,
        instruments=Instruments(registry),
        clock=ManualClock(),
        source="/kernelcast/bridge/test",
        firing=FiringAlerts(ManualClock()),
        timeout_seconds=producer.patience_seconds if timeout_seconds is None else timeout_seconds,
    )


@pytest.mark.parametrize(
    "body",
    [
        {**PAYLOAD, "version": "x" * 500_000},
        {**PAYLOAD, "groupKey": ["x" * 500_000]},
        {**PAYLOAD, "alerts": [{**ALERT, "fingerprint": "x" * 500_000}]},
    ],
)
def test_a_hostile_body_does_not_come_back_in_the_answer_and_the_log(body: Any) -> None:
    with structlog.testing.capture_logs() as logged:
        answer, _ = post(body)
    assert answer.status_code == 400
    assert len(answer.content) < 1000
    assert len(str(logged)) < 1000


@pytest.mark.parametrize("field", ["fingerprint", "startsAt"])
def test_half_a_surrogate_pair_is_refused(field: str) -> None:
    answer, sent = post({**PAYLOAD, "alerts": [{**ALERT, field: "\ud800"}]})
    assert (answer.status_code, sent) == (400, [])


class BlockedProducer(AckingProducer):
    """A Kafka that holds whoever waits for it until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def poll(self, _timeout_seconds: float = 0.0) -> None:
        self.gate.wait(10)
        super().poll()


def test_notifications_that_wait_for_kafka_do_not_take_the_threads_that_scrapes_need() -> None:
    producer, registry = BlockedProducer(), CollectorRegistry()
    webhook = made_with(producer, registry, timeout_seconds=10)
    app = Starlette(routes=[Route("/", webhook.answer, methods=["POST"])])

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
            asked = [asyncio.create_task(client.post("/", json=PAYLOAD)) for _ in range(MAX_AT_ONCE + 3)]
            refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result().status_code for task in refused} == {503}
            await asyncio.sleep(0)
            producer.gate.set()
            return sorted([(await task).status_code for task in asked])

    assert asyncio.run(ask()) == [200] * MAX_AT_ONCE + [503] * 3
    assert registry.get_sample_value("kernelcast_bridge_alerts_total", {"outcome": "unacknowledged"}) == 3


def test_a_client_that_goes_away_in_the_middle_of_its_body_is_refused() -> None:
    registry = CollectorRegistry()
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": JSON_HEADERS}, receive)
    answer = asyncio.run(made_with(AckingProducer(), registry).answer(request))
    assert answer.status_code == 400
    assert registry.get_sample_value("kernelcast_bridge_alerts_total", {"outcome": "refused"}) == 1
