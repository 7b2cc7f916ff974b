"""Lists the compiled functions, which coverage does not see: `python -m tests.support.compiled_functions`.

They run as machine code, which Python cannot trace. `[tool.coverage.report]` in pyproject.toml excludes them
by their decorators, so that they count neither as covered nor as missed. Their tests compare them with slow oracles.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
ROOTS: Final = ("core", "exporter", "bridge", "predictor", "grafana")
DECORATORS: Final = "core/kernelcast/columnar/compiled/decorators.py"


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A function with one of our decorators for machine code.

    Attributes:
        file: Its path in the repository.
        name: The function's name.
        lines: Lines of its source, with decorator and docstring.
        decorator_line: Text of the line with the decorator.
    """

    file: str
    name: str
    lines: int
    decorator_line: str


def decorators() -> set[str]:
    """Names of the decorators that make machine code."""
    parts = ast.parse((REPOSITORY / DECORATORS).read_text()).body
    return {part.name for part in parts if isinstance(part, ast.FunctionDef)}


def compiled_functions() -> Iterator[CompiledFunction]:
    """All compiled functions, file by file."""
    names = decorators()
    decorated = re.compile(rf"(?m)^\s*@.*\b({'|'.join(names)})\b")
    for path in sorted(path for root in ROOTS for path in (REPOSITORY / root).rglob("*.py")):
        text = path.read_text()
        if not decorated.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if ast.unparse(decorator).partition("(")[0].rpartition(".")[2] in names:
                        lines = (node.end_lineno or node.lineno) - decorator.lineno + 1
                        line = text.splitlines()[decorator.lineno - 1]
                        yield CompiledFunction(str(path.relative_to(REPOSITORY)), node.name, lines, line)


def is_excluded(function: CompiledFunction) -> bool:
    """Whether coverage excludes a function by its decorator."""
    patterns = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["coverage"]["report"]["exclude_also"]
    return any(re.search(pattern, function.decorator_line) for pattern in patterns)


def main() -> int:
    """Print the compiled functions of each file, and the sum."""
    found = list(compiled_functions())
    for file, functions in groupby(found, key=lambda function: function.file):
        sys.stdout.write(f"{file}: {', '.join(function.name for function in functions)}\n")
    lines = sum(function.lines for function in found)
    sys.stdout.write(f"coverage excludes these {len(found)} compiled functions of {lines} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
