"""Describes an installation: entry points, extras, the `.pth` file, modules for `-m`, variables."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.surface.places import REPOSITORY, ROOTS, sources

STARTED: Final = re.compile(r"-m[ \"',]+(kernelcast(?:\.\w+)+)")
VARIABLE: Final = re.compile(r"KERNELCAST_[A-Z][A-Z0-9_]*[A-Z0-9]")
DOCUMENTS: Final = ("Makefile", "README.md", "CONTRIBUTING.md", "docs/*.md", "deploy/**/*", "grafana/README.md")
PTH: Final = REPOSITORY / "exporter" / "kernelcast_probe.pth"


def packaging() -> dict[str, Any]:
    """All of it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return {
        "distribution": {"name": project["name"], "python": project["requires-python"]},
        "scripts": sorted(project["scripts"]),
        "entry points": {group: sorted(points) for group, points in project["entry-points"].items()},
        "extras": sorted(project["optional-dependencies"]),
        "kernelcast_probe.pth": PTH.read_text().strip(),
        "modules started with -m": sorted(module for module in modules() if can_be_started(module)),
        "environment variables": sorted(variables()),
    }


def modules() -> set[str]:
    """Modules that code, documents, deployments, the Makefile or the frozen surface start with `-m`."""
    found = {module for text in _documents() for module in STARTED.findall(text)}
    for path in sources():
        text = path.read_text()
        found.update(STARTED.findall(text))
        if '"-m"' in text:
            found.update(_after_dash_m(ast.parse(text)))
        if '__name__ == "__main__"' in text or path.name == "__main__.py":
            found.add(_module_name(path))
    return found


def can_be_started(module: str) -> bool:
    """Whether `python -m MODULE` does something."""
    relative = module.replace(".", "/")
    for root in ROOTS:
        if (REPOSITORY / root / relative / "__main__.py").is_file():
            return True
        path = REPOSITORY / root / f"{relative}.py"
        if path.is_file():
            return '__name__ == "__main__"' in path.read_text()
    return False


def variables() -> set[str]:
    """Environment variables of ours that the packages read or set, except those of settings."""
    found: set[str] = set()
    for path in sources():
        text = path.read_text()
        if "KERNELCAST_" not in text:
            continue
        constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        found.update(value for value in constants if isinstance(value, str) and VARIABLE.fullmatch(value))
    return found | set(VARIABLE.findall(PTH.read_text()))


def _documents() -> Iterator[str]:
    for pattern in DOCUMENTS:
        for path in REPOSITORY.glob(pattern):
            if path.is_file():
                yield path.read_text()


def _module_name(path: Path) -> str:
    (root,) = (root for root in ROOTS if path.is_relative_to(REPOSITORY / root))
    return ".".join(path.relative_to(REPOSITORY / root).with_suffix("").parts).removesuffix(".__main__")


def _after_dash_m(tree: ast.Module) -> Iterator[str]:
    """Modules that follow `"-m"` in a list or tuple, as text or as a constant of the module."""
    assigned = [one for one in tree.body if isinstance(one, ast.Assign | ast.AnnAssign)]
    constants = {
        target.id: one.value.value
        for one in assigned
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
        if isinstance(target, ast.Name) and isinstance(one.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.List | ast.Tuple):
            continue
        for first, second in zip(node.elts, node.elts[1:], strict=False):
            if isinstance(first, ast.Constant) and first.value == "-m":
                value = second.value if isinstance(second, ast.Constant) else constants.get(getattr(second, "id", ""))
                if isinstance(value, str) and value.startswith("kernelcast."):
                    yield value
