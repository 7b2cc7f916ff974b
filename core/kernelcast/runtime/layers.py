"""Where settings come from: defaults, the YAML file, the environment, flags; later ones win, and each value knows its origin."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from kernelcast.wire.errors import ConfigurationError

SHARED_SECTIONS: Final = ("kafka", "log")
"""Stand at the top of the file for all services; a service's own section may override them."""

SECTIONS: Final = (*SHARED_SECTIONS, "exporter", "bridge", "predictor", "replay", "simulate", "demo", "grafana")
ENVIRONMENT_PREFIX: Final = "KERNELCAST_"
MAX_FILE_BYTES: Final = 1024 * 1024

Path_ = tuple[str, ...]


@dataclass(slots=True)
class Layers:
    """Values merged from all sources.

    Attributes:
        section: The service whose settings these are.
        values: Nested, as the service's model has them.
        origins: Where a value came from, for messages: by path below the section.
    """

    section: str
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path_, str] = field(default_factory=dict)

    def put(self, path: Path_, value: Any, origin: str) -> None:
        """Set a value, over what an earlier source said; mappings are merged key by key."""
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                self.put((*path, str(key)), item, origin)
            return
        node = self.values
        for key in path[:-1]:
            child = node.get(key)
            if not isinstance(child, dict):
                child = node[key] = {}
            node = child
        if isinstance(value, Mapping):
            node.setdefault(path[-1], {})
        else:
            node[path[-1]] = value
        self.origins[path] = origin


def gather(
    section: str, model: type[BaseModel], *, path: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]
) -> Layers:
    """Merge every source into what `model` is to validate.

    Raises:
        ConfigurationError: The file cannot be read, or has a section nobody knows.
    """
    layers = Layers(section)
    for name, info in model.model_fields.items():
        if isinstance(info.default, BaseModel):
            layers.put((name,), info.default.model_dump(), "default")
    shared = tuple(name for name in SHARED_SECTIONS if name in model.model_fields)
    document = read_document(path, section) if path is not None else {}
    for name in shared:
        _put_section(layers, (name,), document.get(name), f"{path}")
    _put_section(layers, (), document.get(section), f"{path}")
    for name in shared:
        for keys, value, variable in _environment(name, environ):
            layers.put((name, *keys), value, variable)
    for keys, value, variable in _environment(section, environ):
        layers.put(keys, value, variable)
    for dotted, value in flags.items():
        if value is not None:
            keys = tuple(dotted.split("."))
            layers.put(keys, value, "--" + dotted.replace("_", "-"))
    return layers


def read_document(path: Path, section: str) -> dict[str, Any]:
    """Read the YAML file and check its top level.

    Raises:
        ConfigurationError: It cannot be read, is not YAML (with line and column), or has unknown sections.
    """
    document = _parse(path)
    known = {*SECTIONS, section}
    unknown = [str(key) for key in document if key not in known]
    if unknown:
        lines = [f"{name} is not a section of {path}{did_you_mean(name, known)}" for name in unknown]
        raise ConfigurationError("\n".join(lines))
    return document


def did_you_mean(name: str, known: "set[str] | list[str]") -> str:
    """The end of a message about an unknown name: the nearest known one, else all of them."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"


def _put_section(layers: Layers, path: Path_, content: Any, origin: str) -> None:
    if content is None:
        return
    if not isinstance(content, Mapping):
        name = ".".join(path) or layers.section
        raise ConfigurationError(f"{name} in {origin} is {content!r}; a section holds settings, one a line, indented")
    for key, value in content.items():
        layers.put((*path, str(key)), value, origin)


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path} is larger than {MAX_FILE_BYTES} bytes; is it a settings file?")
        document = yaml.safe_load(content)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; give another --config") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} holds {type(document).__name__}; it must hold sections, as `kafka:`")
    return document


def _environment(section: str, environ: Mapping[str, str]) -> Iterator[tuple[Path_, str, str]]:
    prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}__"
    for variable in sorted(environ):
        if variable.startswith(prefix) and len(variable) > len(prefix):
            keys = tuple(variable[len(prefix) :].lower().split("__"))
            yield keys, environ[variable], variable
