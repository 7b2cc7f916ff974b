"""Merges a service's settings from layers: defaults, a YAML file, the environment, flags. Later layers override.

`service.load` calls `gather`, validates the result, and has `problems` name the origin of each wrong value.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kernelcast.runtime.settings.masking import without_secrets
from kernelcast.runtime.settings.yaml_file import read_yaml
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.options import did_you_mean

Keys = tuple[str, ...]

SHARED_SECTIONS: Final = ("kafka", "log")
"""Sections at the top of the file for all services; a service's section may override them."""

SECTIONS: Final = frozenset({*SHARED_SECTIONS, "exporter", "bridge", "predictor", "replay", "simulate", "demo"})
"""One file serves all daemons of a site, so each must know the names of the others' sections."""

ENVIRONMENT_PREFIX: Final = "KERNELCAST_"


@dataclass(frozen=True, slots=True)
class OptionName:
    """Name of the option that gives a setting, if it is not the setting's; part of the field's annotation."""

    text: str


@dataclass(slots=True)
class Layers:
    """Values merged from all sources.

    Attributes:
        section: The service whose settings these are.
        values: Nested, as the service's model has them.
        origins: By path below the section: the name a person knows the value by, and where it was set.
    """

    section: str
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Keys, tuple[str, str]] = field(default_factory=dict)

    def put(self, keys: Keys, value: Any, *, name: str, source: str) -> None:
        """Override the value of an earlier source; mappings are merged key by key."""
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                self.put((*keys, str(key)), item, name=f"{name}.{key}", source=source)
            return
        # A later layer may replace a plain value by a mapping, or the reverse.
        node = self.values
        for key in keys[:-1]:
            child = node.get(key)
            if not isinstance(child, dict):
                child = node[key] = {}
            node = child
        if not isinstance(value, Mapping):
            node[keys[-1]] = value
        elif not isinstance(node.get(keys[-1]), dict):
            node[keys[-1]] = {}
        self.origins[keys] = (name, source)

    def origin(self, keys: Keys) -> tuple[str, str]:
        """Return a value's name, and its source in parentheses; the source is empty for a default."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.origins:
                name, source = self.origins[keys[:length]]
                return ".".join((name, *keys[length:])), f" ({source})" if source else ""
        return ".".join((self.section, *keys)), ""


def gather(
    section: str, model: type[BaseModel], *, path: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]
) -> Layers:
    """Merge all sources to the input that `model` validates.

    Raises:
        ConfigurationError: The file cannot be read, or it or a variable names an unknown section.
    """
    _check_variables(environ, SECTIONS | {section})
    layers = Layers(section)
    for name, info in model.model_fields.items():
        if isinstance(info.default, BaseModel):
            layers.put((name,), info.default.model_dump(), name=f"{section}.{name}", source="")
    shared = [name for name in SHARED_SECTIONS if name in model.model_fields]
    if path is not None:
        document = _read_sections(path, section)
        for name in shared:
            _put_section(layers, model, (name,), document.get(name), name=name, source=f"{path}")
        _put_section(layers, model, (), document.get(section), name=section, source=f"{path}")
    for name in shared:
        for keys, value, variable in _environment(name, environ):
            layers.put((name, *keys), _typed(model, (name, *keys), value), name=_dotted(name, keys), source=variable)
    for keys, value, variable in _environment(section, environ):
        layers.put(keys, _typed(model, keys, value), name=_dotted(section, keys), source=variable)
    for dotted, option in flags.items():
        if option is not None:
            keys = tuple(dotted.split("."))
            layers.put(keys, _typed(model, keys, option), name=_option(model, keys), source="")
    return layers


def field_at(model: type[BaseModel], keys: Keys) -> FieldInfo | None:
    """The field that a path leads to; None where the path leaves the models."""
    parent = model_at(model, keys[:-1])
    return parent.model_fields.get(keys[-1]) if parent is not None and keys else None


def model_at(model: type[BaseModel], keys: Keys) -> type[BaseModel] | None:
    """The model that a path leads to; None where it leads elsewhere."""
    for key in keys:
        info = model.model_fields.get(key)
        below = _model_in(info.annotation) if info is not None else None
        if below is None:
            return None
        model = below
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for item in get_args(annotation) if (found := _model_in(item)) is not None), None)


def _typed(model: type[BaseModel], keys: Keys, value: object) -> object:
    """Text from the environment or a flag, split at commas where the setting is a list."""
    info = field_at(model, keys)
    kinds = (get_origin(info.annotation), *map(get_origin, get_args(info.annotation))) if info is not None else ()
    if isinstance(value, str) and any(kind in {list, tuple, set, frozenset} for kind in kinds):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _read_sections(path: Path, section: str) -> dict[str, Any]:
    document = read_yaml(path, option="--config")
    known: AbstractSet[str] = SECTIONS | {section}
    unknown = [str(key) for key in document if key not in known]
    if unknown:
        raise ConfigurationError(
            "\n".join(f"{name} is not a section ({path}){did_you_mean(name, known)}" for name in unknown)
        )
    return document


def _put_section(layers: Layers, model: type[BaseModel], keys: Keys, content: Any, *, name: str, source: str) -> None:
    """Put the values of a section. One that is empty (`null`) leaves the default, unless the setting may be null."""
    if content is None:
        return
    if not isinstance(content, Mapping):
        raise ConfigurationError(
            f"{name} is {without_secrets(content)!r} ({source}); it must be a section: settings below it, indented"
        )
    for key, value in content.items():
        if value is not None or _may_be_null(field_at(model, (*keys, str(key)))):
            layers.put((*keys, str(key)), value, name=f"{name}.{key}", source=source)


def _option(model: type[BaseModel], keys: Keys) -> str:
    """The option that gives a setting: `--log.level` for `log.level`, unless the field names another."""
    info = field_at(model, keys)
    named = (item.text for item in (info.metadata if info is not None else ()) if isinstance(item, OptionName))
    return next(named, f"--{'.'.join(keys).replace('_', '-')}")


def _may_be_null(info: FieldInfo | None) -> bool:
    return info is not None and type(None) in get_args(info.annotation)


def _check_variables(environ: Mapping[str, str], known: AbstractSet[str]) -> None:
    """Raise an error where a variable that names a setting (`KERNELCAST_SECTION__KEY`) has an unknown section."""
    unknown = []
    for variable in sorted(environ):
        named, separator, _ = variable.removeprefix(ENVIRONMENT_PREFIX).partition("__")
        if variable.startswith(ENVIRONMENT_PREFIX) and separator and named.lower() not in known:
            unknown.append(f"{named.lower()} is not a section ({variable}){did_you_mean(named.lower(), known)}")
    if unknown:
        raise ConfigurationError("\n".join(unknown))


def _environment(section: str, environ: Mapping[str, str]) -> Iterator[tuple[Keys, str, str]]:
    prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}__"
    for variable in sorted(environ):
        if not variable.startswith(prefix) or variable == prefix:
            continue
        keys = tuple(variable[len(prefix) :].lower().split("__"))
        if "properties" in keys[:-1]:
            # Environment variables cannot carry the dots of librdkafka's names.
            keys = (*keys[:-1], keys[-1].replace("_", "."))
        yield keys, environ[variable], variable


def _dotted(section: str, keys: Keys) -> str:
    return ".".join((section, *keys))
