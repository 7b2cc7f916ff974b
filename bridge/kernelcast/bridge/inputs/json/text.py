"""JSON parsed by orjson; its errors become `DecodeError`s with the remedy."""

from typing import Any

import orjson

from kernelcast.wire.errors import DecodeError


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
