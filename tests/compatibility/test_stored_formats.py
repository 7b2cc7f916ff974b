"""Files of an older revision are read; files of this one are read, or refused with a sentence, by the older one."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.compatibility import storage
from tests.support.revisions import ROOT, environment, sources

EXAMPLES = Path(__file__).parent
REVISIONS = sorted(path.name for path in EXAMPLES.iterdir() if (path / "meaning.json").is_file())


def meaning(revision: str) -> Any:
    return json.loads((EXAMPLES / revision / "meaning.json").read_text())


def kept(before: Any, after: Any) -> bool:
    """Whether everything that was said before is still said; new fields may stand beside it."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(name in after and kept(before[name], after[name]) for name in before)
    if isinstance(before, list):
        return isinstance(after, list) and len(before) == len(after) and all(map(kept, before, after))
    if isinstance(before, float) and math.isnan(before):
        return isinstance(after, float) and math.isnan(after)
    return bool(before == after)


def source_of(revision: str) -> Path:
    """The packages of the revision that added an example, from this clone's history."""
    paths = ["log", "--diff-filter=A", "--format=%H", "--", f"tests/compatibility/{revision}/meaning.json"]
    found = subprocess.run(["git", *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode or not found.stdout.strip():
        pytest.skip(f"the history of this checkout does not reach revision {revision}")
    return sources(found.stdout.split()[-1], "tests/compatibility/storage.py")


@pytest.fixture(scope="module")
def meanings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The contents of each revision's example as this revision reads them; each example is read once."""

    @cache
    def read(revision: str) -> Any:
        examples = tmp_path_factory.mktemp(revision) / "examples"
        shutil.copytree(EXAMPLES / revision, examples)
        return storage.read(examples)

    return read


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This revision's examples."""
    examples = tmp_path_factory.mktemp("written") / "examples"
    storage.write(examples)
    return examples


def test_there_is_an_example_of_every_format_and_every_example_was_read() -> None:
    assert {name for revision in REVISIONS for name in meaning(revision)} == set(storage.FORMATS)
    for revision in REVISIONS:
        assert set(meaning(revision)) <= set(storage.FORMATS)
        assert not [name for name, said in meaning(revision).items() if "refused" in said]


@pytest.mark.parametrize(("revision", "format_"), [(one, name) for one in REVISIONS for name in meaning(one)])
def test_data_of_an_older_revision_is_read(revision: str, format_: str, meanings: Callable[[str], Any]) -> None:
    found = meanings(revision)[format_]
    assert kept(meaning(revision)[format_], found), found


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_older_revision_reads_this_ones_data_or_gives_the_reason(
    revision: str, written: Path, tmp_path: Path
) -> None:
    source = source_of(revision)
    shutil.copytree(written, tmp_path / "examples")
    environ = {**os.environ, **environment(source)}
    command = [sys.executable, str(source / "tests/compatibility/storage.py"), "read", str(tmp_path / "examples")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    for name, said in meaning(revision).items():
        refusal = found[name].get("refused", "")
        assert kept(said, found[name]) or refusal.startswith(
            ("WireError", "FrameError", "EventError", "Configuration")
        ), (
            name,
            found[name],
        )


def test_a_lost_field_and_a_changed_value_are_noticed() -> None:
    assert kept({"a": [1, float("nan")]}, {"a": [1, float("nan")], "b": 2})
    assert not kept({"a": 1}, {"b": 1})
    assert not kept({"a": [1]}, {"a": [1, 2]})
    assert not kept({"a": {"b": 1}}, {"a": {"b": 2}})
