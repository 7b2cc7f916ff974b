"""The public surface is the one that the files in `frozen/` describe."""

import pytest
from tests.surface import packaging
from tests.surface.collect import FROZEN, SURFACES, frozen_file
from tests.surface.tree import Kind, differences, load, read, render


@pytest.mark.parametrize("surface", SURFACES)
def test_nothing_is_gone_renamed_or_changed_and_additions_are_recorded(surface: str) -> None:
    found = differences(read(frozen_file(surface)), SURFACES[surface]())
    assert not found, "\n".join(one.sentence(surface) for one in found)


def test_every_frozen_file_is_compared() -> None:
    assert sorted(FROZEN.iterdir()) == sorted(map(frozen_file, SURFACES))


def test_a_written_file_equals_the_description() -> None:
    described = {"a: b": {"c": None, "labels": ["x" * 80, "y" * 80, "z" * 80]}, "plain": {"default": "1", "help": ""}}
    assert load(render(described)) == described


def test_every_module_that_something_starts_can_be_started() -> None:
    cannot = {module for module in packaging.modules() if not packaging.can_be_started(module)}
    assert not cannot, "code, documents or deployments start modules that are not there or do nothing"


def test_a_difference_is_named_with_its_remedy() -> None:
    before = {"bridge": {"shards": {"default": 1, "enum": ["a", "b"], "help": "old"}, "gone": {"default": 5}}}
    after = {"bridge": {"shards": {"default": 2, "enum": ["b", "c"], "help": "new"}, "added": {"default": 7}}}
    sentences = {one.path: one.sentence("settings") for one in differences(before, after)}
    assert sentences["bridge", "gone"].startswith("settings: bridge / gone is gone, it was {'default': 5}; keep it")
    assert sentences["bridge", "shards", "default"].startswith("settings: bridge / shards / default was 1 and is 2;")
    assert sentences["bridge", "shards", "enum", "a"].startswith("settings: bridge / shards / enum / a is gone")
    assert "run python -m tests.surface.write" in sentences["bridge", "added"]
    kinds = {one.path[-1]: one.kind for one in differences(before, after)}
    assert kinds == {
        "gone": Kind.REMOVED,
        "default": Kind.CHANGED,
        "a": Kind.REMOVED,
        "c": Kind.ADDED,
        "help": Kind.REWORDED,
        "added": Kind.ADDED,
    }


def test_a_rename_is_recognised() -> None:
    found = differences({"old_name": {"default": 5}}, {"new_name": {"default": 5}})
    assert [(one.kind, one.path, one.after) for one in found] == [(Kind.RENAMED, ("old_name",), "new_name")]
    assert "old_name is gone, new_name has come in its place" in found[0].sentence("settings")


def test_what_adds_or_rewords_breaks_nothing() -> None:
    assert not any(kind.breaking for kind in (Kind.ADDED, Kind.REWORDED))
    assert all(kind.breaking for kind in (Kind.REMOVED, Kind.RENAMED, Kind.CHANGED))
