"""The two locks: what `make demo` installs is a part of what developers install, in the same versions."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
DEVELOPERS_ONLY = {"basedpyright", "hypothesis", "kubernetes-validate", "mkdocs-material", "mypy", "pytest", "ruff"}
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))?(?: \\)?$((?:\n    --hash=\S+(?: \\)?)+)", re.MULTILINE)


def pins(name: str) -> dict[tuple[str, str], frozenset[str]]:
    """Hashes by package and version."""
    found = _PIN.findall((REPOSITORY / name).read_text())
    return {(package, version): frozenset(re.findall(r"sha256:\w+", hashes)) for package, version, _, hashes in found}


def test_what_the_demo_installs_has_the_versions_and_hashes_that_developers_have() -> None:
    run, everything = pins("requirements-run.lock"), pins("requirements.lock")
    assert len(run) > 40
    assert {pin: everything.get(pin) for pin in run} == run


def test_the_demo_installs_no_tool_for_development() -> None:
    run = {package for package, _ in pins("requirements-run.lock")}
    everything = {package for package, _ in pins("requirements.lock")}
    assert everything >= DEVELOPERS_ONLY
    assert not run & DEVELOPERS_ONLY
    assert {"hatchling", "editables", "grafanalib", "numba", "statsmodels"} <= run
