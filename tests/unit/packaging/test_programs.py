"""Every name that a program inside a string imports exists. Programs for a GPU run on few machines."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("tests/gpu", "tests/unit", "tests/service", "tests/faults", "benchmarks", "examples")
IMPORT: Final = re.compile(r"\bfrom (kernelcast[\w.]*) import ([\w, ]+)|\bimport (kernelcast[\w.]*)")


def strings(path: Path) -> Iterator[str]:
    """The texts of a file, those of format strings in parts."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if IMPORT.search(text) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def imported() -> list[tuple[str, str, str]]:
    """File, module and name of each import in a string; an empty name where all of a module is imported.

    `kernelcast.tiny` is made by the test that imports it.
    """
    found = set()
    for path in sorted(one for folder in FOLDERS for one in (ROOT / folder).rglob("*.py")):
        for text in strings(path):
            for match in IMPORT.finditer(text.replace("kernelcast.tiny", "tiny")):
                names = [one.split(" as ")[0].strip() for one in (match[2] or "").split(",")]
                found |= {(str(path.relative_to(ROOT)), match[1] or match[3], one) for one in names}
    return sorted(found)


def exists(module: str, name: str) -> bool:
    """Whether a module can be imported and has the name, as an attribute or as a module of its package."""
    try:
        found = import_module(module)
    except ModuleNotFoundError:
        return False
    is_package = hasattr(found, "__path__")
    return not name or hasattr(found, name) or (is_package and find_spec(f"{module}.{name}") is not None)


@pytest.mark.slow
def test_every_name_that_a_program_in_a_string_imports_exists() -> None:
    found = imported()
    assert found
    assert [(path, module, name) for path, module, name in found if not exists(module, name)] == []


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        ("kernelcast.wire.errors", "KernelcastError", True),
        ("kernelcast.wire", "errors", True),
        ("kernelcast.wire.errors", "", True),
        ("kernelcast.wire.errors", "MissingError", False),
        ("kernelcast.wire.missing", "", False),
        ("kernelcast.wire.missing", "MissingError", False),
    ],
)
def test_a_missing_name_or_module_is_found(module: str, name: str, expected: bool) -> None:  # noqa: FBT001
    assert exists(module, name) is expected
