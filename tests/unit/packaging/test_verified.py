"""The table of measured features comes from the results of GPU days."""

import json
from pathlib import Path
from typing import Any

import pytest

from release import verified


def day(folder: Path, name: str, date: str, *lines: dict[str, Any], gpu: str = "NVIDIA H100") -> None:
    environment = {"step": "environment", "ok": None, "date": date, "gpu": gpu, "driver": "580.1"}
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in (environment, *lines)))


def measured(feature: str, figure: str, **more: Any) -> dict[str, Any]:
    return {"step": "cupti", "ok": True, "measured": [{"feature": feature, "figure": figure}], **more}


def test_the_document_has_the_table_of_the_results() -> None:
    document = verified.DOCUMENT.read_text()
    assert document == verified.rendered(document, verified.days()), "python -m release.verified"


def test_the_latest_day_of_a_gpu_counts_and_each_gpu_has_its_row(tmp_path: Path) -> None:
    day(tmp_path, "2026-02-01-h100.jsonl", "2026-02-01", measured("Launches", "7 of 7"))
    day(tmp_path, "2026-01-01-h100.jsonl", "2026-01-01", measured("Launches", "5 of 5"), measured("Waits", "a|b"))
    day(tmp_path, "2026-01-05-l4.jsonl", "2026-01-05", measured("Launches", "3 of 3"), gpu="NVIDIA L4")
    rows = [row for row in verified.table(verified.days(tmp_path)).splitlines() if row.startswith("| ")]
    assert rows == [
        "| feature | figure | GPU | driver | date |",
        "| Launches | 7 of 7 | NVIDIA H100 | 580.1 | 2026-02-01 |",
        r"| Waits | a\|b | NVIDIA H100 | 580.1 | 2026-01-01 |",
        "| Launches | 3 of 3 | NVIDIA L4 | 580.1 | 2026-01-05 |",
    ]


def test_a_day_names_the_steps_that_failed_and_those_that_did_not_run(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": "cupti", "ok": False, "failed": ["waits"]},
        {"step": "demo", "ok": False, "error": "killed by SIGSEGV"},
        {"step": "occupancy", "ok": None, "skipped": "no ncu"},
        {"step": "search", "ok": None, "left_out": "no time"},
        {"step": "jax", "ok": True},
    ]
    day(tmp_path, "2026-01-01-h100.jsonl", "2026-01-01", *lines)
    assert verified.table(verified.days(tmp_path)).splitlines()[-1] == (
        "* [2026-01-01-h100.jsonl](gpu/2026-01-01-h100.jsonl), NVIDIA H100: 1 of 3 steps held in every comparison. "
        "Failed: `cupti` (waits); `demo` (killed by SIGSEGV). Not run: `occupancy`, `search`."
    )


def test_results_without_a_driver_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": "environment", "ok": null, "gpu": "L4", "date": "2026-01-01"}\n')
    with pytest.raises(verified.VerifiedError, match=r"a\.jsonl: its step environment lacks driver"):
        verified.days(tmp_path)


def test_a_document_without_the_marks_is_an_error() -> None:
    with pytest.raises(verified.VerifiedError, match="begin"):
        verified.rendered("# Verified\n", [])
