"""Reads YAML files that people write: whole, up to a limit, with the line of every mistake.

`layers` reads the settings file with it, `web.config` the web configuration file.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from kernelcast.runtime.settings.masking import MASKED
from kernelcast.wire.errors import ConfigurationError

MAX_FILE_BYTES: Final = 1024 * 1024
"""A larger file is probably no settings file."""
MAX_DEPTH: Final = 32
"""Levels of nesting: a value that contains itself (`&a {b: *a}`) has no end."""
_NOT_YAML: Final = (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What PyYAML raises for content that is no value: `2026-13-01`, `0x_`, three thousand brackets."""

_QUOTED_VALUE: Final = re.compile(r"(^|alias |tag |handle |: )(['\"]).+\2$")
"""The part of the file that ends some of PyYAML's messages; it may be a password."""


def read_yaml(path: Path, *, option: str) -> dict[str, Any]:
    """Read a file that holds one mapping; an empty file is an empty mapping.

    Args:
        path: The file.
        option: The flag that named it, for the remedy.

    Raises:
        ConfigurationError: Not readable, not YAML, a key given twice, or something other than a mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; give another {option}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} is larger than {MAX_FILE_BYTES} bytes; is it the right file for {option}?")
    try:
        document = yaml.load(content, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that also refuses duplicates
    except _NOT_YAML as error:
        raise ConfigurationError(f"{path} is not valid YAML: {_position_and_problem(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else "text" if isinstance(document, str) else "a single value"
        raise ConfigurationError(f"{path} holds {kind}; it must hold keys with values, such as `log: {{level: info}}`")
    if not _ends_within(document, MAX_DEPTH):
        raise ConfigurationError(f"{path} has more than {MAX_DEPTH} levels; is it the right file for {option}?")
    return document


def _ends_within(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    below = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_ends_within(one, levels - 1) for one in below)


class _StrictLoader(yaml.SafeLoader):
    """A loader that refuses equal keys in a mapping, and names the line of a value that is none.

    PyYAML's own takes the last key without a message, and says "month must be in 1..12" without a line.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            kind = "date" if node.tag.endswith(":timestamp") else "number"
            problem = f"no {kind}, though it is written like one: {error}; correct it, or put it in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _position_and_problem(error: Exception) -> str:
    where, problem = "", " ".join(str(error).split())
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        where = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: "
        problem = str(error.problem)
    shown, number = _QUOTED_VALUE.subn(rf"\1{MASKED}", problem)
    return f"{where}{shown}" + ("; put a value that begins with * or ! in quotes" if number else "")
