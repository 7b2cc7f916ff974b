"""The examples in the pages of packages and in docstrings show what happens (doctest)."""

import doctest
import importlib
import re
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(path.parent for path in ROOT.glob("*/kernelcast/*/README.md"))
MODULES: Final = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
    for path in ROOT.glob("*/kernelcast/**/*.py")
    if ">>> " in path.read_text()
)
_FENCE: Final = re.compile(r"^```.*$", re.MULTILINE)


class Examples(doctest.DocTestRunner):
    """Runs examples; an exception that none expects ends them, also one that leaves a test out (`--fast`)."""

    def report_unexpected_exception(self, out: object, test: object, example: object, exc_info: Any) -> NoReturn:
        del out, test, example
        raise exc_info[1]


@pytest.mark.parametrize("package", PAGES, ids=lambda package: package.name)
def test_the_example_of_a_packages_page_runs(package: Path) -> None:
    text = _FENCE.sub("", (package / "README.md").read_text())
    example = doctest.DocTestParser().get_doctest(text, {}, package.name, str(package / "README.md"), 0)
    assert example.examples, "a page shows the call of one public object"
    assert not Examples().run(example).failed


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module: str) -> None:
    examples = [one for one in doctest.DocTestFinder().find(importlib.import_module(module)) if one.examples]
    assert examples
    assert not [one.name for one in examples if Examples().run(one).failed]
