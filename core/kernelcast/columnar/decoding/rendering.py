"""Converts attribute values to text, as OpenTelemetry's Prometheus translation writes them; `identities` calls it.

Source: opentelemetry-collector, pdata/pcommon/value.go, `Value.AsString`.
"""

import base64
import json
import math
from decimal import Decimal
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

PLAIN_FROM: Final = 1e-6
PLAIN_BELOW: Final = 1e21
"""Doubles of a size outside these are written with an exponent, as JSON in Go does."""
_HTML: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def as_text(value: AnyValue) -> str:
    """An attribute value as the text of a label; a value that is not set is empty."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind in ("array_value", "kvlist_value"):
        return json_text(value)
    if kind in ("bool_value", "int_value", "double_value"):
        return json_text(value).strip('"')
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return ""


def json_text(value: AnyValue) -> str:  # noqa: PLR0911  one switch over kinds of value
    """A value as JSON without spaces; maps sorted by key, with the last value of an equal key; bytes in base64."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return "[" + ",".join(json_text(item) for item in value.array_value.values) + "]"
    if kind == "kvlist_value":
        items = {item.key: json_text(item.value) for item in value.kvlist_value.values}
        return "{" + ",".join(f"{json_string(key)}:{text}" for key, text in sorted(items.items())) + "}"
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "int_value":
        return str(value.int_value)
    if kind == "double_value":
        return number_text(value.double_value)
    if kind == "bytes_value":
        return json_string(base64.b64encode(value.bytes_value).decode())
    return json_string(value.string_value) if kind == "string_value" else "null"


def json_string(text: str) -> str:
    """Format a text as a JSON string as Go does: characters beyond ASCII are not escaped, those of HTML are."""
    return json.dumps(text, ensure_ascii=False).translate(_HTML)


def number_text(value: float) -> str:
    """The shortest digits that give the double back: 1 for 1.0, 1e-7 for 1e-07; NaN and infinities as JSON strings."""
    if not math.isfinite(value):
        return f'"{"NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"}"'
    if value != 0 and not PLAIN_FROM <= abs(value) < PLAIN_BELOW:
        return repr(value).replace("e-0", "e-").removesuffix(".0")
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")
