"""Describes every key of the settings file and of the web configuration file: types, bounds, default."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.cli.doctor.settings import DoctorSettings, NodeSettings
from kernelcast.cli.kafka import ClientSettings
from kernelcast.exporter.replay.settings import RunSettings
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.simulate.command import SimulateSettings
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.layers import ENVIRONMENT_PREFIX, SECTIONS, SHARED_SECTIONS
from kernelcast.runtime.web.config import WebConfig

MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "exporter": ExporterSettings,
    "bridge": BridgeSettings,
    "predictor": PredictorSettings,
    "replay": RunSettings,
    "simulate": SimulateSettings,
    "doctor": DoctorSettings,
    "doctor of a node": NodeSettings,
    "topics": ClientSettings,
    "web configuration file": WebConfig,
}
"""By section of the settings file, or by what else reads the model."""

_WORDS: Final = frozenset({"title", "description"})
_ABSENT: Final = object()


def settings() -> dict[str, Any]:
    """Keys by section, and how sections and environment variables are named."""
    described: dict[str, Any] = {name: dict(_keys_of(model)) for name, model in MODELS.items()}
    described["file"] = {"sections": sorted(SECTIONS), "shared sections": sorted(SHARED_SECTIONS)}
    described["environment"] = {"prefix": ENVIRONMENT_PREFIX}
    return described


def _keys_of(model: type[BaseModel]) -> Iterator[tuple[str, dict[str, Any]]]:
    schema = model.model_json_schema()
    yield from _keys(schema, schema.get("$defs", {}), "", _ABSENT)


def _keys(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str, default: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The keys below a section; `default` is the section's own, which wins over those of its fields."""
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        own = default[name] if isinstance(default, dict) and name in default else field.get("default", _ABSENT)
        path = f"{prefix}{name}"
        below = _section_in(field, definitions)
        if below is not None:
            mark, section = below
            yield from _keys(section, definitions, f"{path}{mark}.", own)
        if below is None or below[0]:
            described = _leaf(field, definitions)
            if own is not _ABSENT:
                described["default"] = own
            elif name in required:
                described["required"] = True
            yield path, described


def _section_in(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The section that a field holds: itself, in a list (`[]`) or under names of the user's (`.NAME`)."""
    for part in _alternatives(field, definitions):
        if "properties" in part:
            return "", part
        for key, mark in (("items", "[]"), ("additionalProperties", ".NAME")):
            inner = part.get(key)
            if isinstance(inner, Mapping):
                found = _section_in(inner, definitions)
                if found is not None:
                    return mark + found[0], found[1]
    return None


def _leaf(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Types and bounds of a key; those of its alternatives are merged."""
    described: dict[str, Any] = {}
    types: list[str] = []
    for part in _alternatives(field, definitions):
        types.append(_type(part, definitions))
        described |= {
            key: value
            for key, value in part.items()
            if key not in {"type", "items", "additionalProperties", "default", "properties", "required", *_WORDS}
            and not isinstance(value, dict)
            and not key.startswith("$")
        }
    return {"types": sorted(set(types)), **described}


def _type(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    name = str(part.get("type", "const" if "const" in part else "any"))
    for key in ("items", "additionalProperties"):
        inner = part.get(key)
        if isinstance(inner, Mapping):
            kinds = sorted({_type(one, definitions) for one in _alternatives(inner, definitions)})
            return f"{name} of {' or '.join(kinds)}"
    return name


def _alternatives(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in field:
        yield from _alternatives(definitions[field["$ref"].rpartition("/")[2]], definitions)
    elif "anyOf" in field or "allOf" in field or "oneOf" in field:
        for part in field.get("anyOf", field.get("allOf", field.get("oneOf", ()))):
            yield from _alternatives(part, definitions)
    else:
        yield field
