"""Properties take their number of examples from the profile; one module has all names and numbers."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.examples import NUMBERS, chosen_profile, parser_examples, register_profiles

TESTS = Path(__file__).parents[1]


@pytest.fixture
def _profile_afterwards() -> Iterator[None]:
    before = settings.get_current_profile_name()
    yield
    settings.load_profile(before)


def test_no_property_fixes_its_number() -> None:
    fixed = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != "examples.py" or path.parent.name != "support"
        if "max_examples" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword) and node.arg == "max_examples"
    ]
    assert fixed == []


@pytest.mark.usefixtures("_profile_afterwards")
@pytest.mark.parametrize("profile", NUMBERS)
def test_a_profile_tries_new_examples_in_each_run(profile: str) -> None:
    register_profiles()
    settings.load_profile(profile)
    assert (settings().max_examples, settings().derandomize) == (NUMBERS[profile], False)


@pytest.mark.usefixtures("_profile_afterwards")
@pytest.mark.parametrize(("profile", "expected"), [("fast", 10), ("default", 25), ("ci", 300), ("nightly", 1_000)])
def test_a_parser_of_foreign_bytes_keeps_its_number_in_ci(profile: str, expected: int) -> None:
    settings.load_profile(profile)
    assert parser_examples(300).max_examples == expected


@pytest.mark.parametrize(
    ("environ", "fast", "expected"),
    [
        ({}, False, "default"),
        ({"CI": "true"}, False, "ci"),
        ({}, True, "fast"),
        ({"CI": "true"}, True, "fast"),
        ({"CI": "true", "HYPOTHESIS_PROFILE": "nightly"}, False, "nightly"),
    ],
)
def test_the_environment_chooses_the_profile(environ: dict[str, str], fast: bool, expected: str) -> None:  # noqa: FBT001
    assert chosen_profile(environ, fast=fast) == expected
