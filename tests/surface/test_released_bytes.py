"""The frames and events that a release wrote are read, every field of them.

Readers skip names that they do not know, so the bytes of the release are read and written again: a field that the code
calls something else is missing then, or has its default in place of its value.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from tests.compatibility import storage

from kernelcast.wire import cloudevents, events, frames

COMPATIBILITY: Final = Path(storage.__file__).parent
FRAMES: Final = sorted(COMPATIBILITY.glob("*/frames/*"))
EVENTS: Final = sorted(COMPATIBILITY.glob("*/events/*"))


def named(path: Path) -> str:
    return f"{path.parts[-3]}-{path.name}"


def lost(before: Any, after: Any, place: str) -> Iterator[str]:
    """A sentence for each value that was there before and is missing or changed."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name in after:
                yield from lost(value, after[name], f"{place}.{name}")
            else:
                yield f"{place}.{name} is not read: it was {value!r} and is dropped in silence"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{place}[{number}]")
    elif before != after:
        yield f"{place} was {before!r} and is read as {after!r}"


def values(thing: Any) -> Iterator[tuple[str, bool]]:
    """Each field of the dataclasses in it, at any depth, and whether it has another value than its default."""
    if is_dataclass(thing):
        for field in fields(thing):
            value = getattr(thing, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            yield f"{type(thing).__name__}.{field.name}", default is MISSING or value != default
            yield from values(value)
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from values(one)


@pytest.mark.parametrize("path", FRAMES, ids=named)
def test_every_field_of_a_released_frame_is_read(path: Path) -> None:
    packet = path.read_bytes()
    (again,) = frames.encode(frames.decode(packet))
    size = frames.HEADER.size
    assert again[:size] == packet[:size]
    if not packet[size:].startswith(b"{"):
        assert again == packet
        return
    missing = list(lost(json.loads(packet[size:]), json.loads(again[size:]), path.name))
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("path", EVENTS, ids=named)
def test_every_field_of_a_released_event_is_read(path: Path) -> None:
    before = cloudevents.decode_event(path.read_bytes())
    data = storage.EVENT_READERS[before["type"]](before)
    again = events.to_event(data, source=before["source"], time_ns=storage.SECOND_NS, event_id=before["id"])
    missing = list(lost(before, json.loads(cloudevents.encode_event(again)), path.name))
    assert not missing, "\n".join(missing)


def test_every_type_of_frame_and_event_has_an_example_with_every_field_set() -> None:
    frame_examples, event_examples = storage.probe_frames(), storage.stored_events()
    assert {type(one) for one in frame_examples.values()} == set(get_args(frames.Frame))
    assert {one["type"] for one in event_examples.values()} == set(storage.EVENT_READERS)
    assert {path.name.partition(".")[0] for path in FRAMES} == set(frame_examples)
    assert {path.name for path in EVENTS} == set(event_examples)
    read = [storage.EVENT_READERS[one["type"]](one) for one in event_examples.values()]
    found = list(values([*frame_examples.values(), *read]))
    unset = {name for name, _ in found} - {name for name, is_set in found if is_set}
    assert not unset, f"have an example in tests/compatibility/storage.py give a value to {', '.join(sorted(unset))}"


def test_a_dropped_field_is_noticed() -> None:
    before = {"pid": 42, "devices": [{"uuid": "GPU-1", "gpu": "3"}]}
    after = {"process_id": 0, "devices": [{"uuid": "GPU-1", "gpu": "0"}]}
    assert list(lost(before, after, "hello")) == [
        "hello.pid is not read: it was 42 and is dropped in silence",
        "hello.devices[0].gpu was '3' and is read as '0'",
    ]
