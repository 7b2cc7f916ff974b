"""Alertmanager's and Grafana's webhook: one event per alert on `kernelcast.alerts`, answered once Kafka has all."""

import json
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.firing import FiringAlerts
from kernelcast.bridge.instruments import Instruments
from kernelcast.runtime.kafka.producer import DeliveryListener, Headers
from kernelcast.runtime.web.bodies import RefusedBodyError, read_body
from kernelcast.wire.cloudevents import CONTENT_TYPE, encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Alert, to_event
from kernelcast.wire.topics import ALERTS

PAYLOAD_VERSIONS: Final = ("4", "1")
"""Versions of the payloads that Alertmanager and Grafana send, which have the same fields; others may have other ones.

Source: Grafana's documentation, "Configure the webhook notifier for Alerting".
"""
LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024
"""`MAX_ALERTS` with long annotations; a larger body gets 413."""
MAX_ALERTS: Final = 1000
"""Alerts of one notification; the receiver's `max_alerts` in Alertmanager limits them."""
DEFAULT_ACKNOWLEDGEMENT_SECONDS: Final = 8.0
"""Less than Alertmanager's own time-out (`group_interval`, at least 10 s), so that it receives our reason."""
MAX_AT_ONCE: Final = 8
"""Largest number of notifications that wait for Kafka; each occupies a thread."""
LONGEST_REASON: Final = 300
"""Characters of a reason, which may quote the body: it goes into the answer and the log."""
JSON: Final = "application/json"
TRUNCATED: Final = {"kernelcast_truncated": "the annotations were too long for an event"}
"""Annotations in place of an alert's own, where those make its event larger than `wire.cloudevents` allows."""
_HEADERS: Final[Headers] = (("content-type", CONTENT_TYPE.encode()),)


class AlertProducer(Protocol):
    """The part of a producer that is needed here."""

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        on_delivery: DeliveryListener | None = None,
    ) -> None:
        """Queue a message."""

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Serve acknowledgements."""


class RejectedNotification(Exception):  # noqa: N818  an answer, not an error of ours
    """A request that is not a notification.

    Attributes:
        status: HTTP status of the answer.
        reason: Reason for rejection, cut to LONGEST_REASON characters.
    """

    def __init__(self, status: int, reason: str) -> None:
        shown = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
        super().__init__(shown)
        self.status, self.reason = status, shown


class Webhook:
    """Handles notifications of payload version 4. Requests run on the event loop; writing to Kafka runs on threads."""

    def __init__(
        self,
        producer: AlertProducer,
        *,
        instruments: Instruments,
        clock: Clock,
        source: str,
        firing: FiringAlerts,
        timeout_seconds: float = DEFAULT_ACKNOWLEDGEMENT_SECONDS,
    ) -> None:
        """Prepare to answer.

        Args:
            producer: Writes to Kafka.
            instruments: Count alerts.
            clock: Gives the time of events.
            source: Source of the events, a URI reference.
            firing: Keeps the alerts that fire.
            timeout_seconds: Time limit of a notification, from its first byte on.
        """
        self._producer, self._instruments, self._clock = producer, instruments, clock
        self._source, self._firing, self._timeout_seconds = source, firing, timeout_seconds
        self._waiting = 0
        self._threads = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._log = structlog.stdlib.get_logger("bridge.webhook")

    def routes(self, path: str) -> list[Route]:
        """The routes: notifications are posted, and the alerts that fire are read."""
        return [Route(path, self.answer, methods=["POST"]), Route(f"{path}/firing", self.now)]

    async def now(self, _request: Request) -> Response:
        """Alerts that fire now, as Alertmanager has sent them to this bridge."""
        alerts = self._firing.now()
        firing = None if alerts.firing is None else [dict(labels) for labels in alerts.firing]
        return JSONResponse({"firing": firing, "reason": alerts.reason}, headers={"cache-control": "no-store"})

    async def answer(self, request: Request) -> Response:
        """Answer a notification: 200 when Kafka has it, 503 when Alertmanager should try again."""
        deadline = time.monotonic() + self._timeout_seconds
        try:
            _must_be_json(request.headers.get("content-type", ""))
            alerts = parse(await read_body(request, LARGEST_BODY_BYTES, "group fewer alerts"))
            events = [self._event(alert) for alert in alerts]
        except (RejectedNotification, RefusedBodyError) as refusal:
            self._instruments.alerts.labels("refused").inc()
            self._log.warning("notification refused", status=refusal.status, reason=refusal.reason)
            return JSONResponse({"error": refusal.reason}, status_code=refusal.status)
        self._firing.note(alerts)
        missing = await self._write_in_turn(events, deadline)
        self._instruments.alerts.labels("acknowledged").inc(len(events) - missing)
        self._instruments.alerts.labels("unacknowledged").inc(missing)
        if missing:
            self._log.warning("alerts not acknowledged by Kafka", alerts=missing)
            return JSONResponse({"error": f"Kafka has not acknowledged {missing} alerts; try again"}, status_code=503)
        return JSONResponse({"accepted": len(events)})

    def _event(self, alert: Alert) -> tuple[bytes, bytes]:
        """Return key and value of an alert's event; the same notification sent again gives the same event id."""
        name = f"{alert.fingerprint}|{alert.starts_at}|{alert.status}"
        try:
            name.encode()
        except UnicodeEncodeError:
            raise RejectedNotification(
                400, "a fingerprint or startsAt has half a surrogate pair; it must be Unicode"
            ) from None
        event_id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        reason = ""
        for candidate in (alert, replace(alert, annotations=TRUNCATED)):
            event = to_event(candidate, source=self._source, time_ns=self._clock.now_ns(), event_id=event_id)
            try:
                return alert.fingerprint.encode(), encode_event(event)
            except EventError as error:
                reason = str(error)
        raise RejectedNotification(400, f"alert {alert.fingerprint}: {reason}")

    async def _write_in_turn(self, events: Sequence[tuple[bytes, bytes]], deadline: float) -> int:
        """Call `_write` on a thread, unless too many wait already. On the event loop, so the count needs no lock."""
        if self._waiting >= MAX_AT_ONCE:
            return len(events)
        self._waiting += 1
        try:
            return await anyio.to_thread.run_sync(self._write, events, deadline, limiter=self._threads)
        finally:
            self._waiting -= 1

    def _write(self, events: Sequence[tuple[bytes, bytes]], deadline: float) -> int:
        """Send all events to Kafka and wait for acknowledgements; returns the number of missing ones."""
        answers = Acknowledgements(len(events))
        for key, value in events:
            self._producer.send(ALERTS.name, key=key, value=value, headers=_HEADERS, on_delivery=answers.note)
        while not answers.complete and time.monotonic() < deadline:
            self._producer.poll(0.05)
        return answers.missing


class Acknowledgements:
    """Counts Kafka's acknowledgements; any thread that polls the producer may call it."""

    def __init__(self, expected: int) -> None:
        self._lock = threading.Lock()
        self._expected = self.missing = expected
        self._answered = 0

    @property
    def complete(self) -> bool:
        """Whether all acknowledgements have come."""
        return self._answered >= self._expected

    def note(self, reason: str | None) -> None:
        """Note an acknowledgement; None means success."""
        with self._lock:
            self._answered += 1
            if reason is None:
                self.missing -= 1


def parse(body: bytes) -> list[Alert]:
    """Parse the alerts of a notification.

    Raises:
        RejectedNotification: The body is not a notification; the reason names the fault.
    """
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RejectedNotification(400, f"the body is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise RejectedNotification(400, f"the body is a JSON {type(payload).__name__}, not an object")
    if payload.get("version") not in PAYLOAD_VERSIONS:
        raise RejectedNotification(
            400,
            f"version is {payload.get('version')!r}; this webhook takes '4', which Alertmanager sends, and '1', which "
            "Grafana's alerting sends",
        )
    alerts = payload.get("alerts")
    if not isinstance(alerts, list):
        raise RejectedNotification(400, "alerts is not a list")
    if len(alerts) > MAX_ALERTS:
        raise RejectedNotification(
            413, f"the notification has {len(alerts)} alerts; the limit is {MAX_ALERTS}; set max_alerts"
        )
    return [_alert(payload, item, index) for index, item in enumerate(alerts)]


_FIELDS: Final = {
    "fingerprint": "fingerprint",
    "status": "status",
    "starts_at": "startsAt",
    "ends_at": "endsAt",
    "labels": "labels",
    "annotations": "annotations",
    "generator_url": "generatorURL",
}
NO_TIME: Final = "0001-01-01T00:00:00Z"
"""The end of an alert that fires: Go's time 0. Source: prometheus/alertmanager 3341 and 3351."""
_SHARED: Final = {"receiver": "receiver", "group_key": "groupKey", "external_url": "externalURL"}


def _alert(payload: dict[str, Any], item: Any, index: int) -> Alert:
    if not isinstance(item, dict):
        raise RejectedNotification(400, f"alerts[{index}] is a JSON {type(item).__name__}, not an object")
    values = {name: item[wire] for name, wire in _FIELDS.items() if item.get(wire) is not None}
    values |= {name: payload[wire] for name, wire in _SHARED.items() if payload.get(wire) is not None}
    for name in ("fingerprint", "starts_at"):
        if not isinstance(values.get(name), str) or not values[name]:
            raise RejectedNotification(
                400, f"alerts[{index}].{_FIELDS[name]} is {values.get(name)!r}; a text is required"
            )
    if values.get("status") not in ("firing", "resolved"):
        raise RejectedNotification(
            400, f"alerts[{index}].status is {values.get('status')!r}; it must be firing or resolved"
        )
    for name in ("labels", "annotations"):
        if not _is_texts(values.setdefault(name, {})):
            raise RejectedNotification(400, f"alerts[{index}].{name} is not an object of texts")
    for name, value in values.items():
        if name not in ("labels", "annotations") and not isinstance(value, str):
            raise RejectedNotification(400, f"alerts[{index}]: {name} is {value!r}, not a text")
    if values.get("ends_at") == NO_TIME:
        del values["ends_at"]
    return Alert(**values)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _must_be_json(content_type: str) -> None:
    """Reject content types that a browser sends across sites without a preflight request: text, forms, no type at all.

    Raises:
        RejectedNotification: The body is not declared as JSON.
    """
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise RejectedNotification(
            415, f"Content-Type is {content_type[:100]!r}; it must be {JSON}, as Alertmanager sends it"
        )
