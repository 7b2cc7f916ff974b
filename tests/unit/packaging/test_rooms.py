"""Each package describes itself, and what the pages name exists."""

import re
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from kernelcast import columnar, probe

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = ("core", "exporter", "bridge", "predictor", "grafana", "lab", "tests", "benchmarks")
PACKAGES: Final = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("*/kernelcast/*/py.typed"))
_TICKED: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(r"[\w.-]+(/[\w.-]+)*/?")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_page_that_names_its_rooms_and_only_paths_that_exist(package: str) -> None:
    folder = ROOT / package
    text = (folder / "README.md").read_text()
    named = {word for words in _TICKED.findall(text) for word in words.split()}
    paths = {word for word in named if _PATH.fullmatch(word) and ("/" in word or word.endswith((".py", ".md")))}
    missing = {path for path in paths if not (folder / path).exists() and not (ROOT / path).exists()}
    assert not missing, f"{package}/README.md names paths that do not exist"
    rooms = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert rooms <= named, f"{package}/README.md says nothing of {rooms - named}"


def test_every_file_that_the_page_on_architecture_names_exists() -> None:
    named = [word for word in _TICKED.findall((ROOT / "ARCHITECTURE.md").read_text()) if word.endswith((".py", ".md"))]
    assert len(named) > 20
    files = [str(path.relative_to(ROOT)) for root in (*SOURCES, "docs") for path in (ROOT / root).rglob("*.[pm][yd]")]
    patterns = {word: re.escape(word).replace("…", ".*").replace(r"\*", "[^/]*") for word in named}
    missing = [
        word for word, pattern in patterns.items() if not any(re.search(rf"(^|/){pattern}$", one) for one in files)
    ]
    assert missing == ["kernelcast/__init__.py"], "that one does not exist, and the page says so"


@pytest.mark.parametrize("package", [columnar, probe])
def test_no_module_hides_a_public_name_that_is_imported_on_first_use(package: ModuleType) -> None:
    folder = Path(str(package.__file__)).parent
    assert not [name for name in package.__all__ if (folder / name).is_dir() or (folder / f"{name}.py").exists()]
