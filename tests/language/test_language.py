"""Avoided words and unclear docstrings become fewer with each change, never more."""

import json
from pathlib import Path

import pytest
from tests.language import counts, shape

MAX_PROTOCOLS = 67
"""Those that a test double uses, or that keep a room from importing another; lower it when they become fewer."""


@pytest.fixture(scope="module")
def found() -> list[counts.Found]:
    return counts.everything()


@pytest.mark.parametrize("area", counts.AREAS)
def test_an_area_has_no_more_avoided_words_than_were_recorded(area: str, found: list[counts.Found]) -> None:
    ceilings, present = json.loads(counts.CEILINGS.read_text())[area], counts.table(found)[area]
    more = {name: [ceilings[name], number] for name, number in present.items() if number > ceilings[name]}
    assert not more, (
        f"{area} has more than recorded; `python -m tests.language.counts --show all --under {area}` lists them"
    )


def test_each_kind_of_avoided_wording_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        '"""What the module reads."""\n'
        "# nobody is told; set aside what it was, so many, begin anew; a row stands for one\n"
        'def right():\n    """Whether all is well."""\n'
    )
    categories = {one.category for one in counts.occurrences("core", path)}
    assert categories == set(counts.CATEGORIES)
    assert [one.line for one in counts.occurrences("core", path) if one.category == counts.CLAUSE] == [1]


def test_every_area_has_files() -> None:
    assert {area for area, _ in counts.files()} == set(counts.AREAS)


def test_one_search_for_a_class_finds_one_meaning() -> None:
    figures = shape.measure(counts.ROOT)
    assert figures["the_commonest_of_them"] == {}, "two public classes share a name; give each the word of its field"
    assert figures["protocols"] <= MAX_PROTOCOLS, "look for an equal protocol in runtime or wire before adding one"
