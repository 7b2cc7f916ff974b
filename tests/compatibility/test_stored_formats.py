"""What a release writes is read with the same meaning afterwards.

Until 0.1.0 is released, `python tests/compatibility/storage.py tests/compatibility/0.1.0` writes its folder again where
a format has changed. From the release on, the folder stays as it is.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.compatibility import storage

EXAMPLES = Path(__file__).parent
RELEASES = sorted(path.name for path in EXAMPLES.iterdir() if (path / "meaning.json").is_file())


def meaning(release: str) -> Any:
    return json.loads((EXAMPLES / release / "meaning.json").read_text())


def kept(before: Any, after: Any) -> bool:
    """Whether everything that was said before is still said; new fields may stand beside it."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(name in after and kept(before[name], after[name]) for name in before)
    if isinstance(before, list):
        return isinstance(after, list) and len(before) == len(after) and all(map(kept, before, after))
    if isinstance(before, float) and math.isnan(before):
        return isinstance(after, float) and math.isnan(after)
    return bool(before == after)


@pytest.mark.parametrize("release", RELEASES)
def test_every_format_of_a_release_is_read_with_its_meaning(release: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / release, tmp_path / release)
    found = storage.read(tmp_path / release)
    for name, said in meaning(release).items():
        assert kept(said, found[name]), (name, found[name])


def test_there_is_an_example_of_every_format() -> None:
    assert RELEASES
    assert {name for release in RELEASES for name in meaning(release)} == set(storage.FORMATS)
    for release in RELEASES:
        assert not [name for name, said in meaning(release).items() if "refused" in said]


def test_a_lost_field_and_a_changed_value_are_noticed() -> None:
    assert kept({"a": [1, float("nan")]}, {"a": [1, float("nan")], "b": 2})
    assert not kept({"a": 1}, {"b": 1})
    assert not kept({"a": [1]}, {"a": [1, 2]})
    assert not kept({"a": {"b": 1}}, {"a": {"b": 2}})
