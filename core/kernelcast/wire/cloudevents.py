"""The envelope of CloudEvents 1.0 in structured JSON: made, written, read and checked. Pure functions.

`wire.events`, `wire.baselines` and `wire.tuning` define the data that it carries; the services write it to Kafka, and
exporter and probe exchange it in frames.

Source: cloudevents/spec, formats/json-format.md and bindings/kafka-protocol-binding.md (structured content mode).
"""

import json
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from kernelcast.wire.errors import EventError

SPEC_VERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
MAX_EVENT_BYTES: Final = 48 * 1024
"""A hint must fit into one frame on the probe's socket (64 KiB), with its header."""

NANOSECONDS: Final = 1_000_000_000
"""In a second."""


def envelope(
    data: dict[str, Any] | None, *, kind: str, subject: str, source: str, time_ns: int, event_id: str = ""
) -> dict[str, Any]:
    """Return a CloudEvent as a JSON object.

    Args:
        data: Its data; None for an event that says everything by its type and subject.
        kind: Its `type`.
        subject: Thing that it concerns, unique within its type.
        source: URI reference of its source, such as `/kernelcast/predictor/host`.
        time_ns: Its time, Unix nanoseconds.
        event_id: Unique per source; generated if empty.
    """
    event = {
        "specversion": SPEC_VERSION,
        "id": event_id or str(uuid.uuid4()),
        "source": source,
        "type": kind,
        "subject": subject,
        "time": rfc3339(time_ns),
    }
    return event if data is None else {**event, "datacontenttype": "application/json", "data": data}


def encode_event(event: dict[str, Any]) -> bytes:
    """The event as bytes for a record value.

    Raises:
        EventError: Longer than `MAX_EVENT_BYTES`, or a value in it, such as NaN, is no JSON.
    """
    try:
        body = json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise EventError(f"event cannot be written as JSON: {error}; it is dropped") from error
    if len(body) > MAX_EVENT_BYTES:
        raise EventError(f"event is {len(body)} bytes; the limit is {MAX_EVENT_BYTES}; shorten its evidence or labels")
    return body


def decode_event(body: bytes) -> dict[str, Any]:
    """A CloudEvent from a record value, its envelope checked.

    Raises:
        EventError: Not JSON in UTF-8, or not a CloudEvent of version 1.0.
    """
    if len(body) > MAX_EVENT_BYTES:
        raise EventError(f"event is {len(body)} bytes; the limit is {MAX_EVENT_BYTES}; it is refused")
    try:
        event = json.loads(body.decode("utf-8-sig"))
        # JSON can spell half a surrogate pair, which no record key or header can hold.
        json.dumps(event, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise EventError(f"event is not JSON in UTF-8: {error}; it is refused") from error
    return check_envelope(event)


def check_envelope(event: Any) -> dict[str, Any]:
    """The event, if it has what CloudEvents 1.0 requires.

    Raises:
        EventError: It has not.
    """
    if not isinstance(event, dict):
        raise EventError(f"event is a JSON {type(event).__name__}, not an object; it is refused")
    if event.get("specversion") != SPEC_VERSION:
        raise EventError(f"specversion is {event.get('specversion')!r}; it must be {SPEC_VERSION!r}; it is refused")
    for name in ("id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            raise EventError(f"event has {name} {event.get(name)!r}; a text is required; it is refused")
    return event


def data_of(event: Any, kind: str) -> dict[str, Any]:
    """Return the data of an event of one type.

    Raises:
        EventError: It is no CloudEvent, has another type, or no data object.
    """
    check_envelope(event)
    if event["type"] != kind:
        raise EventError(f"event type is {event['type']!r}; expected {kind!r}; it is refused")
    data = event.get("data")
    if not isinstance(data, dict):
        raise EventError(f"event {event['id']} has no data object; it is refused")
    return data


def joined_key(*parts: str) -> str:
    """Return a record key from its parts. A `|` in a part is escaped, so that different parts never have one key."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in parts)


def rfc3339(time_ns: int) -> str:
    """A Unix time in nanoseconds as RFC 3339, UTC, with microseconds."""
    seconds, rest_ns = divmod(time_ns, NANOSECONDS)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)
    return moment.isoformat().replace("+00:00", "Z")
