"""Only some modules may import numba and llvmlite, and only some parts of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("core", "exporter", "bridge", "predictor", "grafana")
HOME = "core/kernelcast/columnar/compiled"
COMPILERS = frozenset({"numba", "llvmlite"})

PUBLIC = frozenset({"numba", "numba.types", "numba.extending", "llvmlite", "llvmlite.binding", "llvmlite.ir"})
"""Modules that numba's manual offers to its users: other options and objects may change with any release."""

PRIVATE = {
    "decorators.py": {"_nrt"},
    "code_cache.py": {
        "numba.core",
        "numba.core.caching",
        "numba.core.runtime",
        *("_cache", "_CacheLocator", "_defined_symbols", "_engine", "_index_key", "_load_index"),
        *("_locator_classes", "_nrt_python"),
    },
}
"""Other parts that the project relies on, by module: what each update of numba has to be checked for."""

TESTS = {
    "tests/support/fast.py": {"numba.core.dispatcher"},
    "tests/unit/columnar/test_compiled.py": {"numba", "numba.core.dispatcher"},
    "tests/unit/test_fast.py": {"numba"},
}
"""Tests that inspect or copy compiled code, and their imports."""


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports_of_compilers(path: Path) -> Iterator[str]:
    """Names of modules of numba and llvmlite that a file imports, also within functions."""
    text = path.read_text()
    if not any(name in text for name in COMPILERS):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in PUBLIC else node.module for name in submodules]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in COMPILERS)


def private_names(path: Path) -> Iterator[str]:
    """Names with an underscore that a file takes from objects and modules of others, and options it passes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield from (name for name in (node.attr,) if name.startswith("_") and not name.startswith("__"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in COMPILERS:
            yield from (alias.name for alias in node.names if alias.name.startswith("_"))
        elif isinstance(node, ast.Constant) and node.value == "_nrt":
            yield "_nrt"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_only_one_package_imports_the_compiler() -> None:
    importing = {relative(path) for path in sources(*PACKAGES, "benchmarks") if any(imports_of_compilers(path))}
    assert importing == {f"{HOME}/{name}.py" for name in ("blake2b", "code_cache", "decorators", "intrinsics")}


def test_tests_that_import_the_compiler_are_listed() -> None:
    found = {relative(path): set(imports_of_compilers(path)) for path in sources("tests")}
    assert {name: modules for name, modules in found.items() if modules} == TESTS


@pytest.mark.parametrize("path", sources(HOME), ids=lambda path: path.name)
def test_private_parts_of_numba_are_listed(path: Path) -> None:
    private = set(imports_of_compilers(path)) - PUBLIC
    private |= set(private_names(path))
    assert private == PRIVATE.get(path.name, set())


def test_five_decorators_make_machine_code() -> None:
    tree = ast.parse((ROOT / HOME / "decorators.py").read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert {name for name in names if not name.startswith("_")} == {
        "allocating_kernel",
        "inlined",
        "kernel",
        "routine",
        "spliced",
    }
    others = [path for path in sources(*PACKAGES) if path.parent != ROOT / HOME]
    assert [relative(path) for path in others if "njit" in path.read_text()] == []
