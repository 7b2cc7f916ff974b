"""Describes frames on the probe's socket and CloudEvents on Kafka, from the bytes that this revision writes.

Frames and events are written from the fields of dataclasses, and readers skip names that they do not know: a renamed
field would be lost in silence. The examples are those of `tests.compatibility.storage`, with every field set.
"""

import json
from typing import Any

from tests.compatibility import storage
from tests.support.wire.findings import FINDING, MARK

from kernelcast.wire import baselines, cloudevents, events, frames


def wire() -> dict[str, Any]:
    """Names and types of everything in a frame or an event; packed frames as they are."""
    return {
        "header": {
            "bytes": frames.HEADER.size,
            "format": frames.HEADER.format,
            "magic": frames.MAGIC.decode(),
            "version": frames.PROTOCOL_VERSION,
            "most bytes of a frame": frames.MAX_FRAME_BYTES,
        },
        "frames": dict(_frame(name, frame) for name, frame in storage.probe_frames().items()),
        "events": {name: _typed(json.loads(cloudevents.encode_event(one))) for name, one in _events().items()},
        "event types": [
            events.HINT_TYPE,
            events.OUTCOME_TYPE,
            events.ALERT_TYPE,
            events.FINDING_TYPE,
            events.MARK_TYPE,
            baselines.BASELINE_TYPE,
        ],
        "event content type": cloudevents.CONTENT_TYPE,
        "event bytes, at most": cloudevents.MAX_EVENT_BYTES,
        "hint modes": [mode.value for mode in events.HintMode],
        "outcome states": [state.value for state in events.OutcomeState],
    }


def _events() -> dict[str, dict[str, Any]]:
    """A CloudEvent of each type."""
    finding = events.to_event(FINDING, source="/kernelcast/test", time_ns=1, event_id="finding")
    mark = events.to_event(MARK, source="/kernelcast/test", time_ns=1, event_id="mark")
    node = baselines.NodeBaseline("node1", 1e-3, 0.02, 400, "v3", 7)
    shared = baselines.KernelBaseline("gemm", "128x128", "NVIDIA H100", (node,))
    baseline = baselines.baseline_event(shared, source="/kernelcast/test", time_ns=1, event_id="baseline")
    return {**storage.stored_events(), "finding": finding, "mark": mark, "baseline": baseline}


def _frame(name: str, frame: frames.Frame) -> tuple[str, dict[str, Any]]:
    (packet,) = frames.encode(frame)
    body = packet[frames.HEADER.size :]
    described = {"json": _typed(json.loads(body))} if body.startswith(b"{") else {"packed": body.hex(" ")}
    return f"{packet[frames.HEADER.size - 1]} {name}", described


def _typed(value: Any) -> Any:
    """JSON with the type of each value in place of the value; of a list, that of its first."""
    if isinstance(value, dict):
        return {name: _typed(one) for name, one in value.items()}
    if isinstance(value, list):
        return {"list of": _typed(value[0]) if not _mixed(value) else ", ".join(_typed(one) for one in value)}
    return {str: "text", bool: "boolean", int: "integer", float: "number"}.get(type(value), "null")


def _mixed(values: list[Any]) -> bool:
    """Whether a list is a row of different things, such as a name and its count."""
    return len({type(one) for one in values}) > 1
