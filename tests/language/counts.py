"""Counts words that this project avoids, and docstrings that do not begin with a noun or a verb.

Run `python -m tests.language.counts` for a table, `--show CATEGORY --under FOLDER` for the lines.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CEILINGS = Path(__file__).with_name("ceilings.json")
PATTERNS = {
    "told": re.compile(r"\b(?:told|tells)\b", re.IGNORECASE),
    "what it": re.compile(r"\bwhat (?:it|is|was|are|were|a|an|the|this|they|has|had|one)\b", re.IGNORECASE),
    "nobody": re.compile(r"\bnobody\b", re.IGNORECASE),
    "aside": re.compile(r"\baside\b", re.IGNORECASE),
    "so many": re.compile(r"\bso (?:many|much|long|often)\b", re.IGNORECASE),
    "stands for": re.compile(r"\bstands? (?:for|in|at)\b", re.IGNORECASE),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
}
CLAUSE = "docstring clause"
CATEGORIES = (*PATTERNS, CLAUSE)
# "What the bridge reads" is a subordinate clause; it does not say what the thing is or does.
OPENINGS = re.compile(
    r"(?:what|how|where|which|as|when|why|whos?e?|while|until|since|so|that|if|because|al?though|by)\b(?!-)",
    re.IGNORECASE,
)
# A string that begins with such a word: a file without any has no docstring to parse for.
CANDIDATES = re.compile(rf"""["'](?:\\\n)?\s*{OPENINGS.pattern}""", re.IGNORECASE)
STEMS = ("told", "tells", "what ", "nobody", "aside", "so m", "so l", "so o", "stand", "anew")
"""Each pattern's matches contain one, in lower case; a search for them is a hundred times faster than for a pattern."""
AREAS = {
    "core": ("core", "hatch_build.py"),
    "exporter": ("exporter",),
    "bridge": ("bridge",),
    "predictor": ("predictor",),
    "grafana": ("grafana",),
    "tests": ("tests",),
    "other": ("benchmarks", "examples", "deploy", ".ci", "Makefile", "pyproject.toml"),
    "documents": ("docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
}
SUFFIXES = frozenset({".py", ".md", ".c", ".h", ".yaml", ".yml", ".toml", ".service", ""})
# Written by `make docs` from the other areas; generated code; this list of words itself.
LEFT_OUT = re.compile(
    r"__pycache__|/grafana/(?:rules|dashboards)/|^docs/(?:api|metrics|runbooks)\.md|^tests/(?:language|surface/frozen)/|/golden/|_pb2"
)


class Found(NamedTuple):
    """One occurrence: where it is, its category, and the line."""

    area: str
    path: str
    line: int
    category: str
    text: str


def files() -> Iterator[tuple[str, Path]]:
    """Yields every file that people write, with the area that it belongs to."""
    for area, tops in AREAS.items():
        for top in (ROOT / name for name in tops):
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and path.suffix in SUFFIXES and not LEFT_OUT.search(str(path.relative_to(ROOT))):
                    yield area, path


def clauses(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line, first line) of each docstring that begins with a subordinate clause."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            if OPENINGS.match(docstring):
                yield getattr(node, "lineno", 1), docstring.splitlines()[0]


def occurrences(area: str, path: Path) -> Iterator[Found]:
    """Yields each avoided word and each docstring clause of one file."""
    text, name = path.read_text(encoding="utf-8", errors="replace"), str(path.relative_to(ROOT))
    for number, line in _suspect_lines(text):
        for category, pattern in PATTERNS.items():
            for _ in pattern.finditer(line):
                yield Found(area, name, number, category, line.strip())
    if path.suffix == ".py" and CANDIDATES.search(text):
        for number, line in clauses(text):
            yield Found(area, name, number, CLAUSE, line)


def _suspect_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines, with their numbers, in which a pattern may be found."""
    lower = text.lower()
    if any(stem in lower for stem in STEMS):
        for number, line in enumerate(text.splitlines(), 1):
            if any(stem in line.lower() for stem in STEMS):
                yield number, line


def everything() -> list[Found]:
    return [found for area, path in files() for found in occurrences(area, path)]


def table(found: list[Found]) -> dict[str, dict[str, int]]:
    """Counts by area and category; zeros included."""
    counts = {area: dict.fromkeys(CATEGORIES, 0) for area in AREAS}
    for one in found:
        counts[one.area][one.category] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", choices=(*CATEGORIES, "all"), help="list the lines of one category")
    parser.add_argument("--under", default="", help="only files whose path begins with this")
    parser.add_argument("--write", action="store_true", help="write the present counts as the new ceilings")
    options = parser.parse_args()
    found = [one for one in everything() if one.path.startswith(options.under)]
    if options.write:
        CEILINGS.write_text(json.dumps(table(found), indent=1) + "\n")
    for one in found if options.show else ():
        if options.show in {"all", one.category}:
            sys.stdout.write(f"{one.path}:{one.line}: [{one.category}] {one.text[:160]}\n")
    if not options.show:
        counts = table(found)
        sys.stdout.write(f"{'':12}" + "".join(f"{name:>18}" for name in CATEGORIES) + "\n")
        for area, row in counts.items():
            sys.stdout.write(f"{area:12}" + "".join(f"{row[name]:>18}" for name in CATEGORIES) + "\n")


if __name__ == "__main__":
    main()
