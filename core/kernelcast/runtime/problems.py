"""Validation errors as sentences: path, value, limit, remedy."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kernelcast.runtime.layers import Layers, did_you_mean
from kernelcast.runtime.secrets import MASKED, is_secret


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do when a setting is out of its limits; stands in the field's annotation."""

    text: str


def explain(error: ValidationError, model: type[BaseModel], layers: Layers) -> str:
    """Every problem of a validation, one a line."""
    return "\n".join(_sentence(detail, model, layers) for detail in error.errors(include_url=False))


def _sentence(detail: ErrorDetails, model: type[BaseModel], layers: Layers) -> str:
    path = tuple(str(part) for part in detail["loc"])
    name = ".".join((layers.section, *path))
    return f"{name} {detail['msg']}"
