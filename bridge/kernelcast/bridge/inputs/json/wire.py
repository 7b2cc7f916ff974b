"""Converts protobuf's JSON to protobuf's bytes, by the messages' descriptors; `OtlpJson` uses it.

OTLP's JSON is protobuf's, with two exceptions: trace and span ids are hexadecimal, and enumerations are numbers (names
are accepted, too). Names may be camelCase or snake_case, 64-bit integers text or numbers; unknown names are ignored.

For each field, a function of a JSON value is made once (an *encoder*); encoding a message looks its fields' functions
up by name.

Sources: protobuf.dev, ProtoJSON format; opentelemetry-proto, docs/specification.md, section "JSON Protobuf Encoding".
"""

import base64
import binascii
import contextlib
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_DEPTH: Final = 100
"""Levels of messages, as many as protobuf's own parser allows."""
MAX_REMEMBERED: Final = 50_000
"""Attributes whose bytes are remembered; a fleet's are few and come again in every message."""
MAX_REMEMBERED_CHARACTERS: Final = 200
"""Of key and text; longer attributes are encoded each time."""
_HEXADECIMAL: Final = ("trace_id", "span_id")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_DOUBLE: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_NAMED_DOUBLES: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SIGNED: Final = struct.Struct("<q")
_UNSIGNED: Final = struct.Struct("<Q")
_REAL: Final = struct.Struct("<d")

Encoder = Callable[[Any, int], bytes]
"""Returns a field's bytes with its tag, from a JSON value and the depth of its message."""
Scalar = Callable[[Any], bytes]


class WrongJsonError(ValueError):
    """A value that its field cannot hold; `path` is where."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []

    def within(self, part: str) -> "WrongJsonError":
        """The same error, one level further out."""
        self.path.insert(0, part)
        return self


class JsonEncoder:
    """Encodes JSON objects as one kind of message; for one thread.

    Args:
        descriptor: The kind of message.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._tables: dict[str, _FieldTable] = {}
        self._remembered: dict[tuple[str, str], bytes] = {}
        self._descriptor = descriptor

    def encode(self, value: object) -> bytes:
        """The message's bytes.

        Raises:
            WrongJsonError: A value does not fit its field.
        """
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        return self._message(self._table(self._descriptor), value, 1)

    def _table(self, descriptor: Descriptor) -> "_FieldTable":
        table = self._tables.get(descriptor.full_name)
        if table is None:
            table = self._tables[descriptor.full_name] = _FieldTable(descriptor)
            for field in descriptor.fields:
                encoder = self._field_encoder(field)
                table.fields[field.name] = table.fields[field.json_name] = field.number, encoder
        return table

    def _message(self, table: "_FieldTable", value: object, depth: int) -> bytes:
        if not isinstance(value, dict):
            raise WrongJsonError(f"is {_shown(value)}; an object belongs there")
        if depth > MAX_DEPTH:
            raise WrongJsonError(f"lies more than {MAX_DEPTH} messages deep, the limit")
        parts: dict[int, bytes] = {}
        fields = table.fields
        for key, item in value.items():
            found = fields.get(key)
            if found is None or item is None:
                continue
            number, encoder = found
            if number in parts:
                raise WrongJsonError(f"has {key} twice, in two spellings")
            try:
                parts[number] = encoder(item, depth)
            except WrongJsonError as error:
                raise error.within(key) from None
        for group in table.oneofs:
            if sum(number in parts for number in group) > 1:
                raise WrongJsonError(f"has more than one of {', '.join(table.names(group))}")
        return b"".join([parts[number] for number in sorted(parts)])

    def _field_encoder(self, field: FieldDescriptor) -> Encoder:
        if field.message_type is not None:
            return self._message_encoder(field)
        scalar = _scalar_encoder(field)
        if not field.is_repeated:
            tag = _tag(field.number, _wire_type(field))
            return lambda value, _depth: tag + scalar(value)
        if field.type == FieldDescriptor.TYPE_STRING:
            tag = _tag(field.number, _LENGTH)
            return lambda value, _depth: b"".join([tag + scalar(item) for item in _as_list(value)])
        packed = _tag(field.number, _LENGTH)
        return lambda value, _depth: packed + _prefixed(b"".join([scalar(item) for item in _as_list(value)]))

    def _message_encoder(self, field: FieldDescriptor) -> Encoder:
        descriptor: Any = field.message_type
        tag = _tag(field.number, _LENGTH)
        if not field.is_repeated:
            return lambda value, depth: tag + _prefixed(self._message(self._table(descriptor), value, depth + 1))

        def encode_each(value: Any, depth: int) -> bytes:
            table, parts = self._table(descriptor), []
            for index, item in enumerate(_as_list(value)):
                try:
                    parts.append(tag + _prefixed(self._message(table, item, depth + 1)))
                except WrongJsonError as error:
                    raise error.within(f"[{index}]") from None
            return b"".join(parts)

        return self._attributes_encoder(tag, encode_each) if descriptor.name == "KeyValue" else encode_each

    def _attributes_encoder(self, tag: bytes, encode_each: Encoder) -> Encoder:
        """Return an encoder that keeps the bytes of text attributes: producers send the same ones every time."""
        remembered = self._remembered

        def encode_attributes(value: Any, depth: int) -> bytes:
            try:
                return b"".join([tag + remembered[_plain(item)] for item in value])
            except (KeyError, TypeError):
                part = encode_each(value, depth)
            for item in value:
                with contextlib.suppress(KeyError, TypeError):
                    key, text = _plain(item)
                    if len(key) + len(text) < MAX_REMEMBERED_CHARACTERS:
                        remembered[key, text] = encode_each([item], depth).removeprefix(tag)
            return part

        return encode_attributes


class _FieldTable:
    """The fields of a kind of message, by both their names; and which of them exclude each other."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.fields: dict[str, tuple[int, Encoder]] = {}
        self.oneofs = [{field.number for field in oneof.fields} for oneof in descriptor.oneofs if len(oneof.fields) > 1]
        self._names = {field.number: field.json_name for field in descriptor.fields}

    def names(self, numbers: set[int]) -> list[str]:
        return [self._names[number] for number in sorted(numbers)]


def _plain(item: Mapping[str, Any]) -> tuple[str, str]:
    """Key and text of an attribute of text."""
    value = item["value"]
    if len(item) != 2 or len(value) != 1:
        raise KeyError
    return item["key"], value["stringValue"]


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise WrongJsonError(f"is {_shown(value)}; an array belongs there")
    return value


def _wire_type(field: FieldDescriptor) -> int:
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64):
        return _FIXED64
    return _LENGTH if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES) else _VARINT


def _scalar_encoder(field: FieldDescriptor) -> Scalar:  # noqa: PLR0911  one switch over protobuf's types
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda value: _prefixed(_text(value).encode())
    if field.type == FieldDescriptor.TYPE_BYTES:
        decode = _from_hexadecimal if field.name in _HEXADECIMAL else _from_base64
        return lambda value: _prefixed(decode(_text(value)))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _boolean
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return lambda value: _REAL.pack(_double(value))
    if field.type == FieldDescriptor.TYPE_ENUM:
        enumeration: Any = field.enum_type
        numbers = {value.name: value.number for value in enumeration.values}
        return lambda value: _varint(_integer(numbers.get(value, value) if isinstance(value, str) else value, _INT32))
    if field.type in (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64):
        packer, bounds = (_UNSIGNED, _UINT64) if field.type == FieldDescriptor.TYPE_FIXED64 else (_SIGNED, _INT64)
        return lambda value: packer.pack(_integer(value, bounds))
    bounds = _BOUNDS[field.type]
    if field.type == FieldDescriptor.TYPE_SINT32:
        return lambda value: _varint(_zigzag(_integer(value, bounds)))
    return lambda value: _varint(_integer(value, bounds))


_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = range(2**64)
_BOUNDS: Final = {
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_UINT32: range(2**32),
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_UINT64: _UINT64,
}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongJsonError(f"is {_shown(value)}; text belongs there")
    return value


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise WrongJsonError(f"is {_shown(value)}; true or false belongs there")
    return b"\1" if value else b"\0"


def _integer(value: Any, bounds: range) -> int:
    if value.__class__ is int:
        whole = value
    elif (isinstance(value, str) and _INTEGER.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
        whole = int(value)
    else:
        raise WrongJsonError(f"is {_shown(value)}; a whole number belongs there")
    if whole not in bounds:
        raise WrongJsonError(f"is {whole}; it must lie in {bounds.start}..{bounds.stop - 1}")
    return int(whole)


def _double(value: Any) -> float:
    if value.__class__ is float or value.__class__ is int:
        return float(value)
    if isinstance(value, str):
        if value in _NAMED_DOUBLES:
            return _NAMED_DOUBLES[value]
        if _DOUBLE.fullmatch(value):
            return float(value)
    raise WrongJsonError(f'is {_shown(value)}; a number, "NaN", "Infinity" or "-Infinity" belongs there')


def _from_hexadecimal(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except ValueError:
        raise WrongJsonError(f"is {_shown(text)}; hexadecimal digits belong there") from None


def _from_base64(text: str) -> bytes:
    standard = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:
        raise WrongJsonError(f"is {_shown(text)}; base64 belongs there") from None


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _BYTES[value]
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_BYTES: Final = tuple(bytes([value]) for value in range(0x80))


def _zigzag(value: int) -> int:
    return 2 * value if value >= 0 else -2 * value - 1


def _prefixed(body: bytes) -> bytes:
    return _varint(len(body)) + body


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}…"
