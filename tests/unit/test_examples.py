"""The examples in the pages of packages and in docstrings show what happens (doctest)."""

import doctest
import importlib
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(path.parent for path in ROOT.glob("*/kernelcast/*/README.md"))
MODULES: Final = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
    for path in ROOT.glob("*/kernelcast/**/*.py")
    if ">>> " in path.read_text()
)
_FENCE: Final = re.compile(r"^```.*$", re.MULTILINE)


@pytest.mark.parametrize("package", PAGES, ids=lambda package: package.name)
def test_the_example_of_a_packages_page_runs(package: Path) -> None:
    text = _FENCE.sub("", (package / "README.md").read_text())
    example = doctest.DocTestParser().get_doctest(text, {}, package.name, str(package / "README.md"), 0)
    assert example.examples, "a page shows the call of one public object"
    result = doctest.DocTestRunner().run(example)
    assert not result.failed


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted
    assert not result.failed
