"""JSON read quickly, and refused in our words."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from kernelcast.wire.errors import DecodeError


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the cyclic collector still: what JSON becomes has no cycles.

    Each of its thousands of objects would bring a look through the whole heap nearer: four fifths of the time it takes
    to read a message, measured in a process with numba loaded.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def loads(message: bytes) -> Any:
    """A JSON text as Python's values; at most 1024 levels deep, no NaN, no number beyond a double's range.

    Raises:
        DecodeError: It is no JSON.
    """
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise DecodeError(
            f"message of {len(message)} bytes is no JSON: {error}; look at the producer, or at the topic's entry in "
            "bridge.formats"
        ) from None
