"""A GPU day without a GPU: the real steps in a rehearsal, and a day of steps that end in every way."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.day import plan
from tests.gpu.day.driver import REPOSITORY, RESULTS, read_lines
from tests.gpu.day.needs import gpu

STEPS = "tests.support.gpu_day.steps"
DOUBLES = {"environment", "examples", "product", "nvml"}
"""Steps that run to their end without a GPU; `nvml` where there is a capture of one."""


def day(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.gpu.day", "--output", str(folder), *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)


def listed(
    folder: Path, *names: str, limit_seconds: float = 20.0, seconds: float = 100.0, must_run: Sequence[str] = ()
) -> Path:
    """A list of steps of `tests.support.gpu_day.steps`."""
    path = folder / "list.json"
    steps = [{"name": name, "function": f"{STEPS}:{name}", "limit_seconds": limit_seconds} for name in names]
    images = {"bare": {"must_run": list(must_run)}}
    path.write_text(json.dumps({"seconds": seconds, "second_seconds": seconds, "steps": steps, "images": images}))
    return path


def lines(folder: Path) -> dict[str, dict[str, Any]]:
    return {line["step"]: line for line in read_lines(folder / RESULTS)}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


@pytest.mark.skipif(not gpu(), reason="this machine has a GPU: `make gpu` runs the day itself")
def test_every_step_of_the_day_ends_with_a_reason_or_with_its_double_where_there_is_no_gpu(tmp_path: Path) -> None:
    names = [step.name for step in plan.read().steps if step.name != "tests_gpu"]  # pytest in pytest, 17 s of skips
    done = day(tmp_path, "--rehearse", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    found = lines(tmp_path)
    assert list(found) == names
    ran = {name for name, line in found.items() if "skipped" not in line}
    assert DOUBLES - {"nvml"} <= ran <= DOUBLES
    assert all(line["skipped"] for name, line in found.items() if name not in ran)
    assert found["product"]["manual"]["got"] == {"known": 3000}
    assert found["examples"]["plain_python"]["launches"] == 50


@pytest.mark.skipif(not gpu(), reason="this machine has a GPU")
def test_a_day_without_a_gpu_is_a_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = day(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("no NVIDIA GPU: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / RESULTS).exists()


def test_a_step_that_fails_crashes_hangs_or_is_killed_ends_as_its_line_and_never_ends_the_day(tmp_path: Path) -> None:
    names = ("does_not_hold", "raises", "crashes", "leaves", "hangs", "leaves_a_child", "skips", "holds")
    done = day(tmp_path, "--rehearse", "--list", listed(tmp_path, *names, limit_seconds=3.0))
    found = lines(tmp_path)
    assert list(found) == list(names)
    assert done.returncode == 1
    assert found["does_not_hold"]["failed"] == ["product"]
    assert "the program answered 15" in found["raises"]["error"]
    assert found["crashes"]["error"].startswith("killed by SIGSEGV")
    assert found["leaves"]["error"] == "it ended before it was done"
    assert found["hangs"]["error"].startswith("ended after 3 s, its limit")
    assert gone(found["hangs"]["child"])
    assert gone(found["leaves_a_child"]["child"])
    assert {found[name]["ok"] for name in names[:5]} == {False}
    assert all(found[name]["before"] == 1 for name in ("does_not_hold", "raises", "crashes", "leaves"))
    assert (found["skips"]["ok"], found["skips"]["skipped"]) == (None, "no such thing here")
    assert (found["holds"]["ok"], found["holds"]["measured"]) == (True, [{"feature": "Sums", "figure": "2 of 2"}])


def test_the_day_ends_in_time_and_a_second_run_does_what_failed_or_was_left_out(tmp_path: Path) -> None:
    first = tmp_path / "first"
    names = ("holds", "raises", "skips", "sleeps", "leaves_a_child")
    steps = listed(tmp_path, *names, limit_seconds=60.0)
    began = time.monotonic()
    done = day(first, "--rehearse", "--list", steps, "--seconds", 14)
    assert time.monotonic() - began < 25
    assert done.returncode == 1
    found = lines(first)
    assert found["sleeps"]["left_out"].startswith("the day's time was over: ended after ")
    assert found["leaves_a_child"]["left_out"] == "no time: 0 s were left"
    assert found["sleeps"]["before"] == 1
    # The environment, which is first in the list, is part of each run.
    day(tmp_path / "second", "--rehearse", "--list", steps, "--second", first / RESULTS, "--seconds", 6)
    assert list(lines(tmp_path / "second")) == ["holds", "raises", "sleeps", "leaves_a_child"]


def test_a_step_that_must_run_on_the_machines_image_fails_where_it_would_skip(tmp_path: Path) -> None:
    steps = listed(tmp_path, "skips", "holds", must_run=["skips"])
    assert day(tmp_path / "other", "--rehearse", "--list", steps).returncode == 0
    assert day(tmp_path / "image", "--rehearse", "--list", steps, "--image", "bare").returncode == 1
    assert lines(tmp_path / "other")["skips"]["ok"] is None
    line = lines(tmp_path / "image")["skips"]
    assert (line["ok"], line["error"]) == (False, "must run on bare: no such thing here")


def test_an_unknown_image_or_step_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    steps = listed(tmp_path, "holds")
    for arguments, words in ((["--image", "none"], "images are bare"), (["none"], "steps are holds")):
        done = day(tmp_path, "--rehearse", "--list", steps, *arguments)
        assert (done.returncode, words in done.stderr) == (2, True)


@pytest.mark.skipif(not gpu(), reason="this machine has a GPU: `make gpu` would measure")
def test_make_gpu_without_a_gpu_says_so_and_exits_with_2() -> None:
    environ = {**os.environ, "MAKEFLAGS": ""}
    command = ["make", "--no-print-directory", "--assume-old=.venv/.installed", "gpu"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no NVIDIA GPU: " in done.stderr
