"""Converts pydantic's validation errors to sentences: path, value, limit, remedy.

`service.load` and `web.config` call `explain`, and raise its text as a ConfigurationError.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kernelcast.runtime.settings.layers import Keys, Layers, field_at, model_at
from kernelcast.runtime.settings.masking import MASKED, is_secret, without_hashes, without_secrets
from kernelcast.wire.options import did_you_mean

MAX_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class Remedy:
    """Remedy for a setting that is out of its limits; part of the field's annotation."""

    text: str


def explain(error: ValidationError, model: type[BaseModel], layers: Layers) -> str:
    """Every problem of a validation, one a line."""
    return without_hashes("\n".join(_sentence(detail, model, layers) for detail in error.errors(include_url=False)))


def _sentence(detail: ErrorDetails, model: type[BaseModel], layers: Layers) -> str:
    keys = tuple(str(part) for part in detail["loc"])
    name, origin = layers.origin(keys)
    if detail["type"] == "extra_forbidden":
        parent = model_at(model, keys[:-1])
        known = set(parent.model_fields) if parent is not None else set()
        return f"{name} is not a setting{origin}{did_you_mean(keys[-1], known)}"
    if detail["type"] == "missing":
        return f"{name} is missing{origin}; {_remedy(model, keys) or 'set it'}"
    limit, usual_remedy = _LIMITS.get(detail["type"], _pydantic_reason)(detail)
    if detail["type"] == "value_error" and isinstance(detail["input"], Mapping):
        return f"{name}{origin}: {limit}"  # it names the settings below it that do not fit together
    remedy = _remedy(model, keys) or usual_remedy
    return f"{name} is {_shown(detail['input'], keys)}{origin}; {limit}" + (f"; {remedy}" if remedy else "")


def _remedy(model: type[BaseModel], keys: Keys) -> str:
    field = field_at(model, keys)
    return next((item.text for item in field.metadata if isinstance(item, Remedy)), "") if field is not None else ""


def _shown(value: Any, keys: Keys) -> str:
    if any(is_secret(key) for key in keys):
        return MASKED
    fit = without_secrets(value)
    plain = isinstance(fit, str) and fit and not any(character.isspace() for character in fit)
    text = str(fit) if plain else repr(fit)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


Limit = Callable[[ErrorDetails], tuple[str, str]]


def _must_be(what: str) -> Limit:
    return lambda _detail: (f"it must be {what}", "")


def _bound(word: str, key: str, remedy: str) -> Limit:
    return lambda detail: (f"{word} {detail['ctx'][key]}", remedy)


def _pydantic_reason(detail: ErrorDetails) -> tuple[str, str]:
    message = detail["msg"]
    return message[:1].lower() + message[1:], ""


def _check_reason(detail: ErrorDetails) -> tuple[str, str]:
    return str(detail["ctx"]["error"]), ""


_WHOLE: Final = _must_be("a whole number")
_NUMBER: Final = _must_be("a number")
_SETTINGS: Final = _must_be("a section: settings below it, one a line, indented")

_LIMITS: Final[Mapping[str, Limit]] = MappingProxyType(
    {
        "greater_than_equal": _bound("the minimum is", "ge", "raise it"),
        "greater_than": _bound("it must be above", "gt", "raise it"),
        "less_than_equal": _bound("the maximum is", "le", "lower it"),
        "less_than": _bound("it must be below", "lt", "lower it"),
        "literal_error": _bound("it must be one of", "expected", ""),
        "enum": _bound("it must be one of", "expected", ""),
        "string_too_short": _bound("its minimum length is", "min_length", "give it a value"),
        "string_too_long": _bound("its maximum length is", "max_length", "shorten it"),
        "int_parsing": _WHOLE,
        "int_type": _WHOLE,
        "int_from_float": _WHOLE,
        "float_parsing": _NUMBER,
        "float_type": _NUMBER,
        "finite_number": _must_be("a finite number"),
        "bool_parsing": _must_be("true or false"),
        "bool_type": _must_be("true or false"),
        "string_type": _must_be("text"),
        "path_type": _must_be("a path"),
        "list_type": _must_be("a list"),
        "tuple_type": _must_be("a list"),
        "dict_type": _SETTINGS,
        "model_type": _SETTINGS,
        "model_attributes_type": _SETTINGS,
        "value_error": _check_reason,
    }
)
