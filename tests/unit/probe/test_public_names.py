"""`kernelcast.probe` as users meet it: its names, their docstrings, and `docs/api.md`."""

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

from kernelcast import probe
from kernelcast.probe import document

REPOSITORY = Path(__file__).parents[3]
FUNCTIONS = [name for name in probe.__all__ if inspect.isfunction(getattr(probe, name))]


def test_every_public_name_can_be_had_and_no_other() -> None:
    namespace: dict[str, Any] = {}
    exec("from kernelcast.probe import *", namespace)  # noqa: S102  users may write this
    assert set(namespace) - {"__builtins__"} == set(probe.__all__)
    assert set(probe.__all__) <= set(dir(probe))
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        probe.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_the_names_are_known_before_anything_is_imported() -> None:
    spec = importlib.util.spec_from_file_location("probe_of_its_own", probe.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    assert set(probe.__all__) <= set(dir(fresh))
    assert not set(probe.__all__) & set(vars(fresh))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_describes_each_of_its_arguments(name: str) -> None:
    function = getattr(probe, name)
    described = document.sections(inspect.getdoc(function) or "")
    assert described.summary.endswith((".", ";", ":"))
    assert list(described.items.get("Args", {})) == list(inspect.signature(function).parameters)


def test_every_public_name_is_in_the_reference_once() -> None:
    grouped = [name for names in document.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(probe.__all__)
    headings = [line for line in document.document().splitlines() if line.startswith("### ")]
    assert headings == [f"### {name}" for name in grouped]


@pytest.mark.parametrize("name", document.PUBLIC_MEMBERS)
def test_the_members_of_a_class_in_the_reference_exist(name: str) -> None:
    running = probe.start("reference", socket_path="/nowhere", source="simulated")
    try:
        things: dict[str, object] = {
            "Probe": running,
            "Tunable": probe.tunable("tile", [1, 2], 1),
            "ProgramSpace": probe.space("conv", {"tile": [1, 2]}, start={"tile": 1}),
        }
        thing = things[name]
        assert all(hasattr(thing, member) for member in document.PUBLIC_MEMBERS[name])
    finally:
        probe.stop()


def test_the_committed_reference_equals_the_docstrings() -> None:
    assert (REPOSITORY / "docs" / "api.md").read_text() == document.document(), "run: make docs"
