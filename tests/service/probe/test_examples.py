"""Examples with JAX, Pallas and Keras below `kernelcast probe`: the report has the steps that the program has made."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.service.require import REPOSITORY
from tests.support.service.packages import FRAMEWORKS, environment, python_with

pytestmark = pytest.mark.service


def run(example: str, folder: Path, *arguments: str, **environ: str) -> tuple[str, dict[str, Any]]:
    """What an example prints, and its report."""
    python, report = str(python_with(FRAMEWORKS)), folder / "report.json"
    program = str(REPOSITORY / "examples" / example)
    command = [python, "-m", "kernelcast.probe", "--report", str(report), "--", python, program, *arguments]
    switched = environment(KERNELCAST_SOCKET=str(folder / "none.sock"), **environ)
    done = subprocess.run(command, capture_output=True, text=True, env=switched, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    box = [line for line in done.stderr.splitlines() if line.startswith(("+-", "| "))]
    assert 4 <= len(box) <= 10
    assert {len(line) for line in box} == {80}
    assert not any(line.endswith(".. |") for line in box)
    return done.stdout, json.loads(report.read_text())


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_keras_loop(backend: str, tmp_path: Path) -> None:
    printed, report = run("keras_fit.py", tmp_path, "--epochs", "2", KERAS_BACKEND=backend)
    assert printed == "96 steps\n"
    assert report["steps"] == 96
    assert report["phase_seconds"]["evaluation"] > 0


def test_the_jax_loop(tmp_path: Path) -> None:
    printed, report = run("jax_loop.py", tmp_path)
    assert printed.startswith("5000 steps")
    assert report["steps"] == 5000
    assert {"data", "other"} <= report["phase_seconds"].keys()


def test_the_pallas_kernel_gets_a_faster_block(tmp_path: Path) -> None:
    printed, report = run("pallas_blocks.py", tmp_path, KERNELCAST_TRIAL_SHARE="1")
    assert printed.startswith(f"{report['steps']} steps, the first 30 took ")
    (block,) = report["tuning"]
    assert (block["state"], block["own"]) == ("kept", "rows=32 columns=128")
    assert block["time_ratio"] < 0.5
