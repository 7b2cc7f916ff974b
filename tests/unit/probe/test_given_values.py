"""Values given at a program's start: by name, or as a file of values that another node has kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelcast import probe
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal
from kernelcast.wire.frames import DeviceClaim

H100 = "NVIDIA H100 80GB HBM3"
ROW = {
    "program": "train",
    "device_model": H100,
    "code_version": "v2",
    "tunable": "block_size",
    "value": "128",
    "previous": "48",
    "measured_ratio": 0.8,
    "approved_by": "",
}


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KERNELCAST_TUNING_DIRECTORY", str(tmp_path / "memory"))
    yield tmp_path / "memory"
    probe.stop()


def started(tmp_path: Path, *, model: str = H100, version: str = "v2") -> probe.Probe:
    return probe.start(
        "train",
        socket_path=str(tmp_path / "none"),
        devices=[DeviceClaim("GPU-1", model_name=model)],
        code_version=version,
        method="manual",
    )


def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> None:
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("KERNELCAST_SET", f"@{file}")


def test_a_value_that_another_node_has_kept_is_in_force_from_the_start_and_is_checked_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path, monkeypatch, ROW, {**ROW, "tunable": "bucket_mb", "value": "25"})
    running = started(tmp_path)
    assert probe.tunable("block_size", [48, 128], 48).value == 128
    assert probe.tunable("bucket_mb", [1, 25], 1, granularity="restart").value == 25
    assert probe.tunable("other", [1, 2], 1).value == 1
    for _ in range(200):
        probe.step()
    assert [(outcome.tunable, outcome.state.value) for outcome in running.outcomes][:1] == [("block_size", "applied")]
    assert "checked again" in running.outcomes[0].reason
    assert capsys.readouterr().err == ""


def test_the_configuration_of_a_decorated_function_is_in_force_at_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(tmp_path, monkeypatch, {**ROW, "tunable": "conv.run (8, 8)", "value": "[3]"})
    started(tmp_path)

    @probe.space("conv", {"x": [1, 2, 3]}, start={"x": 1}).tuned(shape=lambda size: size)  # type: ignore[untyped-decorator]
    def run(c: Any, size: tuple[int, int]) -> int:
        return int(c.x)

    assert (run((8, 8)), run((9, 9))) == (3, 1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"device_model": "NVIDIA A100"}, f"has block_size for device_model 'NVIDIA A100', and this is '{H100}'"),
        ({"code_version": "v1"}, "has block_size for code_version 'v1', and this is 'v2'; it is not applied"),
        ({"program": "serve"}, "has block_size for program 'serve', and this is 'train'; it is not applied"),
        ({"value": "7"}, "has 7 for block_size, which is not applied: block_size allows 48, 128"),
    ],
    ids=["another device", "another version", "another program", "not allowed"],
)
def test_what_is_not_for_this_process_is_not_applied_and_said_once(
    row: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path, monkeypatch, {**ROW, **row})
    started(tmp_path)
    assert [probe.tunable("block_size", [48, 128], 48).value for _ in range(2)] == [48, 48]
    error = capsys.readouterr().err
    assert error.count("kernelcast: KERNELCAST_SET=@") == 1
    assert said in error


def test_the_row_of_this_device_is_found_among_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(tmp_path, monkeypatch, {**ROW, "device_model": "NVIDIA A100", "value": "64"}, ROW, {**ROW, "value": "64"})
    started(tmp_path)
    assert probe.tunable("block_size", [48, 64, 128], 48).value == 128


@pytest.mark.parametrize("decision", [Decision.FAILED, Decision.ROLLED_BACK])
def test_what_this_node_has_found_to_fail_or_to_be_slower_is_not_applied(
    decision: Decision,
    memory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Journal(memory, "train").end("block_size", "128", decision, "v2", reason="out of memory")
    given(tmp_path, monkeypatch, ROW)
    started(tmp_path)
    assert probe.tunable("block_size", [48, 128], 48).value == 48
    expected = "it failed before: out of memory" if decision is Decision.FAILED else "here it was rolled back"
    assert f"which is not applied: {expected}" in capsys.readouterr().err


def test_what_this_node_has_kept_itself_precedes_the_file(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Journal(memory, "train").end("block_size", "64", Decision.KEPT, "v2")
    given(tmp_path, monkeypatch, ROW)
    started(tmp_path)
    assert probe.tunable("block_size", [48, 64, 128], 48).value == 64


def test_a_value_that_changes_results_needs_the_person_who_approved_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path, monkeypatch, ROW, {**ROW, "tunable": "batch", "approved_by": "ana"})
    started(tmp_path)
    assert probe.tunable("block_size", [48, 128], 48, changes_results=True).value == 48
    assert probe.tunable("batch", [48, 128], 48, kind="batch_size").value == 128
    assert "it changes results, and no person approved it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: "), ("", "has no kept configuration; write it by `kernelcast hints export`")],
    ids=["no file", "an empty file"],
)
def test_a_file_without_values_is_said(
    content: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kept.jsonl"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("KERNELCAST_SET", f"@{file}")
    started(tmp_path)
    assert probe.tunable("block_size", [48, 128], 48).value == 48
    assert said in capsys.readouterr().err


def test_without_a_memory_no_file_is_used_because_a_ban_would_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path, monkeypatch, ROW)
    monkeypatch.setenv("KERNELCAST_TUNING_DIRECTORY", "off")
    started(tmp_path)
    assert probe.tunable("block_size", [48, 128], 48).value == 48
    assert "is not used without a memory; set KERNELCAST_TUNING_DIRECTORY to a folder" in capsys.readouterr().err
