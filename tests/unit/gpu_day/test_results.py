"""What becomes of a step's findings: one line, then a published line without traces of the machine."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.day import plan
from tests.gpu.day.driver import latest, second
from tests.gpu.day.publish import model, publish, scrubbed
from tests.gpu.day.report import StepReport, merged
from tests.gpu.day.steps.exact import ncu_values

ENVIRONMENT = {"step": "environment", "ok": None, "gpu": "NVIDIA H100 80GB HBM3", "date": "2026-11-27"}


def written(report: StepReport) -> list[str]:
    file = report._file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


def test_a_steps_findings_are_one_line_and_one_check_that_fails_decides() -> None:
    report = StepReport(io.StringIO(), Path())
    report.figures(launches=3)
    report.check("launches", True, lost=0)
    report.check("copies", False)
    report.check("copies", True)
    report.measured("Launches", "3 of 3")
    found = merged([*written(report), '{"half a li'])
    assert found == {
        "ok": False,
        "failed": ["copies"],
        "measured": [{"feature": "Launches", "figure": "3 of 3"}],
        "figures": {"launches": 3, "lost": 0},
    }


def test_a_step_that_compares_nothing_has_no_verdict() -> None:
    report = StepReport(io.StringIO(), Path())
    report.figures(launches=3)
    assert merged(written(report))["ok"] is None


def test_a_second_run_has_what_failed_and_was_left_out_and_the_environment() -> None:
    steps = [plan.Step(name, "", 1.0) for name in ("environment", "a", "b", "c", "d", "e")]
    lines: list[dict[str, Any]] = [
        {"step": "environment", "ok": None},
        {"step": "a", "ok": True},
        {"step": "b", "ok": False},
        {"step": "c", "ok": None, "left_out": "no time"},
        {"step": "d", "ok": None, "skipped": "no ncu"},
    ]
    assert [step.name for step in second(steps, lines)] == ["environment", "b", "c", "e"]


def test_the_latest_line_of_a_step_counts_but_not_one_that_was_left_out() -> None:
    lines: list[dict[str, Any]] = [
        {"step": "a", "ok": False},
        {"step": "b", "ok": False},
        {"step": "a", "ok": True},
        {"step": "b", "ok": None, "left_out": "no time"},
    ]
    assert {name: line["ok"] for name, line in latest(lines).items()} == {"a": True, "b": False}


def test_a_published_line_has_no_paths_and_no_identifiers(tmp_path: Path) -> None:
    line = {
        "step": "tests_gpu",
        "ok": False,
        "last": ["/opt/torch/.venv/lib/cupy/compiler.py:879: CompileException, at 10 kernels/s and a/b"],
        "uuid": ["GPU-00000000-0000-0000-0000-000000000100"],
    }
    path = publish([ENVIRONMENT, line], tmp_path / "gpu")
    assert path.name == "2026-11-27-h100.jsonl"
    published = json.loads(path.read_text().splitlines()[1])
    assert published["last"] == ["…/compiler.py:879: CompileException, at 10 kernels/s and a/b"]
    assert published["uuid"] == ["GPU-…"]


def test_results_without_a_gpu_are_not_published(tmp_path: Path) -> None:
    with pytest.raises(plan.PlanError, match="no line of the step environment"):
        publish([{"step": "environment", "ok": None, "date": "2026-11-27"}], tmp_path)


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H200", "h200"),
        ("Tesla T4", "t4"),
        ("NVIDIA H100 PCIe", "h100"),
    ],
)
def test_a_file_is_named_by_the_gpus_model(gpu: str, name: str) -> None:
    assert model(gpu) == name


def test_numbers_stay_as_they_are() -> None:
    assert scrubbed({"a": 1.5, "b": [None, True]}) == {"a": 1.5, "b": [None, True]}


def test_the_days_list_names_functions_that_exist_and_images_require_steps_of_it() -> None:
    from importlib import import_module

    steps = plan.read().steps
    for step in steps:
        module, _, name = step.function.partition(":")
        assert callable(getattr(import_module(module), name))
    assert steps[0].name == "environment"
    assert plan.read().required("pytorch-cupy-jax") == {step.name for step in steps} - {"tensorflow"}


def test_an_image_that_requires_an_unknown_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "day.json"
    content = {"seconds": 1, "second_seconds": 1, "steps": [], "images": {"bare": {"must_run": ["a"]}}}
    path.write_text(json.dumps(content))
    with pytest.raises(plan.PlanError, match=r"image bare requires \['a'\]"):
        plan.read(path)


def test_ncus_table_begins_after_its_messages_and_has_thousands_with_a_comma() -> None:
    output = (
        '==PROF== Connected\n{"launched": true}\n"ID","Kernel Name","Metric Name","Metric Value"\n'
        '"0","occ_small(float *)","launch__registers_per_thread","16"\n'
        '"0","occ_small(float *)","dram__bytes.sum","10,240"\n'
    )
    expected = {"occ_small": {"launch__registers_per_thread": 16.0, "dram__bytes.sum": 10_240.0}}
    assert ncu_values(output) == expected
    assert ncu_values("==ERROR== no permission\n") == {}
