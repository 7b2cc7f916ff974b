"""The nightly run fails where a step fails, and never calls dependencies safe that were not audited."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.nightly.audit import NOT_AUDITED, VULNERABLE, verdict
from tests.nightly.run import REPOSITORY, SHORT, WHOLE, Step, main, report, steps


@pytest.mark.parametrize(
    ("results", "code"), [({"a": (0, 1.0), "b": (0, 2.0)}, 0), ({"a": (2, 1.0), "b": (0, 2.0)}, 1), ({}, 1)]
)
def test_one_step_that_fails_fails_the_night(
    results: dict[str, tuple[int, float]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(results) == code
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.startswith("passed") for line in lines] == [one == 0 for one, _ in results.values()]


def test_a_night_that_is_stopped_has_printed_its_revision_and_the_result_of_each_finished_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped_in_the_second(step: Step) -> tuple[int, float]:
        if step.name == second:
            raise KeyboardInterrupt
        return 3, 12.4

    first, second = (step.name for step in steps(2)[:2])
    monkeypatch.setattr("tests.nightly.run.run", stopped_in_the_second)
    monkeypatch.setattr("tests.nightly.run._revision", lambda: "0123456789ab")
    with pytest.raises(KeyboardInterrupt):
        main(["--workers", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"(\d+) of \1 steps, 2 workers, at 0123456789ab", lines[0])
    assert f"== FAILED with 3      12 s  {first}" in lines


def test_each_step_has_its_own_name_in_the_documentation() -> None:
    names = [step.name for step in steps(2)]
    assert len(set(names)) == len(names)
    documented = (REPOSITORY / "CONTRIBUTING.md").read_text()
    assert [step.name for step in steps(2) if f"| {step.name} | {step.finds} |" not in documented] == []


def test_a_short_night_has_the_same_steps_with_fewer_examples() -> None:
    whole, short = steps(2), steps(2, SHORT)
    assert [step.name for step in short] == [step.name for step in whole]
    assert SHORT.inputs < WHOLE.inputs
    assert SHORT.schedules < WHOLE.schedules


def test_bounds_are_checked_over_tests_and_mutated_messages_with_machine_code_in_a_folder_of_their_own() -> None:
    checked = [step for step in steps(2) if "bounds checks" in step.name]
    assert ["tests/unit/columnar" in step.command for step in checked] == [True, False]
    assert ["tests.fuzz.run" in step.command for step in checked] == [False, True]
    for step in checked:
        assert step.environ["NUMBA_BOUNDSCHECK"] == "1"
        assert Path(step.environ["NUMBA_CACHE_DIR"]).relative_to(REPOSITORY).parts[0] == ".cache"


def package(*vulnerabilities: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"name": "left-pad", "version": "1.0", "vulns": list(vulnerabilities), **more}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([package()], 0, "1 packages, no known vulnerability"),
        ([package({"id": "CVE-1", "fix_versions": ["1.1"]})], VULNERABLE, "left-pad 1.0: CVE-1, mended in 1.1"),
        ([package({"id": "CVE-1", "fix_versions": []})], VULNERABLE, "mended in no version"),
        (
            [package(), package(skip_reason="no answer")],
            NOT_AUDITED,
            "1 of 2 packages were not audited: left-pad (no",
        ),
        ([package(skip_reason="no answer")], NOT_AUDITED, "nothing was audited: left-pad (no answer)"),
        ([], NOT_AUDITED, "nothing was audited"),
    ],
)
def test_what_pip_audit_found_is_judged(packages: list[dict[str, Any]], code: int, words: str) -> None:
    found, text = verdict(0, json.dumps({"dependencies": packages}), "")
    assert found == code
    assert words in text


@pytest.mark.parametrize("output", ["", "no JSON", "[]", "{}"])
def test_a_database_that_cannot_be_had_is_no_pass(output: str) -> None:
    code, text = verdict(1, output, "some lines\nConnectionError: no route to host\n")
    assert code == NOT_AUDITED
    assert text.startswith("nothing was audited")
    assert "no route to host" in text
