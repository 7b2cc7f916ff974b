"""Shape of the source code: modules by folder, protocols, class names that are used twice, lengths of functions.

    python -m tests.language.shape [--root CHECKOUT] [--json FILE]

Another revision is measured in a checkout of its own: `git worktree add /tmp/before REVISION`.
"""

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

PACKAGES = ("core", "exporter", "bridge", "predictor", "grafana")
SHOWN = 6


def trees(root: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Path, text and syntax tree of each source file."""
    for path in sorted(path for package in PACKAGES for path in (root / package / "kernelcast").rglob("*.py")):
        text = path.read_text()
        yield path.relative_to(root), text, ast.parse(text)


def measure(root: Path) -> dict[str, Any]:
    """Every figure, by name."""
    modules: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    lengths: list[int] = []
    protocols = methods_of_largest = lines = 0
    for path, text, tree in trees(root):
        lines += text.count("\n")
        modules[str(path.parent)] += path.name != "__init__.py"
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
                protocols += any("Protocol" in ast.unparse(base).split("[")[0].split(".") for base in node.bases)
                methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
                methods_of_largest = max(methods_of_largest, methods)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
    twice = {name: number for name, number in classes.most_common() if number > 1 and not name.startswith("_")}
    return {
        "files": sum(1 for _ in trees(root)),
        "lines": lines,
        "folders_with_more_than_15_modules": sum(number > 15 for number in modules.values()),
        "modules_in_the_fullest_folders": dict(modules.most_common(SHOWN)),
        "protocols": protocols,
        "public_class_names_used_more_than_once": len(twice),
        "the_commonest_of_them": dict(list(twice.items())[:SHOWN]),
        "functions": len(lengths),
        "median_function_lines": median(lengths),
        "functions_over_50_lines": sum(length > 50 for length in lengths),
        "methods_of_the_largest_class": methods_of_largest,
    }


def main() -> None:
    """Measure, print, write JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="a checkout")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.root)
    for name, value in figures.items():
        sys.stdout.write(f"{name.replace('_', ' '):42} {value}\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
