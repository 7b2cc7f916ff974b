"""Coverage excludes exactly the compiled functions, and fails below its floor."""

import tomllib

import pytest
from tests.support.compiled_functions import (
    REPOSITORY,
    CompiledFunction,
    compiled_functions,
    decorators,
    is_excluded,
    main,
)


@pytest.mark.slow
def test_every_compiled_function_is_excluded_by_its_decorator() -> None:
    found = list(compiled_functions())
    assert {"kernel", "routine", "inlined"} <= decorators()
    assert "write_metrics" in {function.name for function in found}
    assert [function for function in found if not is_excluded(function)] == []


@pytest.mark.parametrize("line", ["@property", "@contextmanager", "@kernels", "# @kernel", "    kernel = 1"])
def test_other_functions_are_not_excluded(line: str) -> None:
    assert not is_excluded(CompiledFunction("file.py", "function", 1, line))


@pytest.mark.slow
def test_the_list_names_each_file_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    found = list(compiled_functions())
    assert len(lines) == len({function.file for function in found}) + 1
    assert lines[-1].startswith(f"coverage excludes these {len(found)} compiled functions")


def test_branches_of_all_packages_are_measured_against_a_floor() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["coverage"]
    assert settings["run"]["branch"] is True
    assert set(settings["run"]["source"]) == {"core", "exporter", "bridge", "predictor", "grafana"}
    assert settings["report"]["fail_under"] > 0
    assert 'make PYTHON="$python" coverage' in (REPOSITORY / ".ci" / "run").read_text()
