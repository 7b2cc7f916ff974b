"""The data of events and frames: frozen dataclasses as JSON and back, by the types that their fields declare.

`to_data` writes every field. `from_data` reads a field by its type, and refuses what JSON may hold in its place: a text
for a number, NaN, an integer beyond 64 bits. It ignores fields that it does not know, so that a newer writer can add
some; a field with a default may be absent. A class that JSON holds otherwise has a class method `from_data`.

>>> @dataclass(frozen=True)
... class Measured:
...     name: str
...     count: Count = 0
...     interval: tuple[float, float] | None = None
>>> to_data(Measured("gemm", 3))
{'name': 'gemm', 'count': 3, 'interval': None}
>>> from_data(Measured, {"name": "gemm", "interval": [0, 2], "added later": 1})
Measured(name='gemm', count=0, interval=(0.0, 2.0))
>>> from_data(Measured, {"name": "gemm", "count": -1})
Traceback (most recent call last):
ValueError: count is -1: it must be at least 0
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from kernelcast.wire.cloudevents import data_of
from kernelcast.wire.errors import EventError

UNREADABLE: Final = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What `from_data` raises for data that its class cannot hold."""
MAX_SHOWN_CHARACTERS: Final = 80
"""Longest part of a value in an error."""

_Data = TypeVar("_Data")
_Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a field, beside its type: `Annotated[int, Limits(least=0)]`.

    Attributes:
        least: The smallest number.
        above: A number is greater than this.
        most: The largest number of characters of a text, or of items.
    """

    least: float | None = None
    above: float | None = None
    most: int | None = None


Count = Annotated[int, Limits(least=0)]
Ratio = Annotated[float, Limits(least=0)]


def to_data(data: Any) -> dict[str, Any]:
    """Return every field of a dataclass, nested ones included, for `cloudevents.envelope`."""
    return asdict(data)


def from_data(kind: type[_Data], values: Any) -> _Data:
    """Return the dataclass that a JSON object holds; one of `UNREADABLE` is raised if it holds none."""
    read: Callable[[Any], _Data] = _reader(kind)  # type: ignore[arg-type]  # a class is hashable
    return read(values)


def event_data(event: Any, kind: type[_Data], event_type: str) -> _Data:
    """Return the data of an event of one type.

    Raises:
        EventError: It is no CloudEvent, has another type, or its data cannot be used.
    """
    values = data_of(event, event_type)
    try:
        return from_data(kind, values)
    except UNREADABLE as error:
        raise EventError(f"event {event['id']} has unusable data: {error}; it is refused") from error


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that reads a value of a declared type from JSON."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is not None:
        return _generic(origin, arguments)
    if hasattr(kind, "from_data"):
        own: _Reader = kind.from_data
        return own
    if is_dataclass(kind):
        return _record(kind)
    if issubclass(kind, Enum):
        choice: _Reader = kind
        return choice
    raise TypeError(f"{kind} cannot be read from JSON; add a reader here")


def _generic(origin: Any, arguments: tuple[Any, ...]) -> _Reader:
    """Return the reader of a type with parameters, such as `tuple[str, ...]`."""
    if origin is Annotated:
        return _limited(_reader(arguments[0]), arguments[1])
    readers = tuple(_reader(one) for one in arguments if one not in (..., NoneType))
    if origin in (Union, UnionType):
        return _optional(*readers)
    if origin is tuple:
        return _items(*readers) if arguments[-1] is ... else _row(readers)
    if origin in (dict, Mapping):
        return _object(*readers)
    raise TypeError(f"{origin} cannot be read from JSON; add a reader here")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is not a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it is neither true nor false")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or value is True or value is False:
        raise TypeError("it is not an integer")
    if not -(2**63) <= value < 2**64:
        raise ValueError("it is beyond 64 bits")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (float, int)) or value is True or value is False:
        raise TypeError("it is not a number")
    number = float(value)
    if not isfinite(number):
        raise ValueError("it is not finite")
    return number


_PLAIN: Final[dict[Any, _Reader]] = {str: _text, bool: _flag, int: _integer, float: _number, Any: lambda value: value}


def _limited(read: _Reader, limits: Limits) -> _Reader:
    most, least = limits.most, limits.above if limits.least is None else limits.least
    if most is not None:
        return _short(read, most)
    return _at_least(read, least or 0, is_above=limits.above is not None)


def _short(read: _Reader, most: int) -> _Reader:
    def short(value: Any) -> Any:
        if len(value) > most:
            raise ValueError(f"it has {len(value)} characters or items; the limit is {most}")
        return read(value)

    return short


def _at_least(read: _Reader, least: float, *, is_above: bool) -> _Reader:
    def at_least(value: Any) -> Any:
        number = read(value)
        if number < least or (is_above and number == least):
            raise ValueError(f"it must be {'above' if is_above else 'at least'} {least}")
        return number

    return at_least


def _optional(read: _Reader) -> _Reader:
    return lambda value: None if value is None else read(value)


def _items(read: _Reader) -> _Reader:
    return lambda value: tuple(map(read, _list(value)))


def _row(readers: tuple[_Reader, ...]) -> _Reader:
    def row(value: Any) -> tuple[Any, ...]:
        return tuple(read(one) for read, one in zip(readers, _list(value), strict=True))

    return row


def _object(read_name: _Reader, read: _Reader) -> _Reader:
    def mapping(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeError("it is not an object")
        return {read_name(name): read(one) for name, one in value.items()}

    return mapping


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError("it is not a list")
    return value


def _record(kind: Any) -> _Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {item.name: _reader(hints[item.name]) for item in fields(kind)}
    needed = [item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING]

    def record(values: Any) -> Any:
        if not isinstance(values, dict):
            raise TypeError("it is not an object")
        found = {}
        for name, value in values.items():
            read = readers.get(name)
            if read is None:
                continue
            try:
                found[name] = read(value)
            except UNREADABLE as error:
                raise ValueError(f"{name} is {repr(value)[:MAX_SHOWN_CHARACTERS]}: {error}") from error
        if len(found) < len(readers):
            for name in needed:
                if name not in found:
                    raise ValueError(f"{name} is missing")
        return kind(**found)

    return record
