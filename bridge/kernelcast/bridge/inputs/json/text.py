"""JSON parsed by orjson; its errors become `DecodeError`s with the remedy."""

from codecs import BOM_UTF8
from typing import Any

import orjson

from kernelcast.wire.errors import DecodeError


def loads(message: bytes) -> Any:
    """A JSON text as Python's values; at most 1024 levels deep, no NaN, no number beyond a double's range.

    A byte order mark is skipped: libraries for .NET write one (RFC 8259, section 8.1, lets a parser ignore it).

    Raises:
        DecodeError: It is no JSON.
    """
    try:
        return orjson.loads(message.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise DecodeError(
            f"message of {len(message)} bytes is no JSON: {error}; look at the producer, or at the topic's entry in "
            "bridge.formats"
        ) from None
