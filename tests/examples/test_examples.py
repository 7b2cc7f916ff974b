"""Every example runs to its end and reports to the probe; a framework that is not installed has a stand-in."""

import ast
import importlib.util
import math
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.examples import doubles
from tests.support.service.packages import FRAMEWORKS, python_with

from kernelcast import probe
from kernelcast.probe.recording.regions import table

EXAMPLES = Path(__file__).parents[2] / "examples"


class Finished:
    """An example that has run; its probe is still there.

    Attributes:
        probe: The probe that it started.
        regions: Wall time by region, in nanoseconds.
        launches: Launches by kernel.
    """

    def __init__(self, running: probe.Probe) -> None:
        self.probe = running
        for _ in range(2):
            running.selection.poll()
        counters = running.recorder.counters(0, dropped_frames=0)
        self.regions = {name: wall_ns for name, _, _, wall_ns in counters.regions}
        self.launches = {cell.signature: cell.launches for cell in running.recorder.cells(0)}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No exporter listens, no rank is set, and the probe of an example stays until the test has looked at it."""
    for name in ("RANK", "LOCAL_RANK", "KERNELCAST_RANK", "KERNELCAST_PROGRAM", "KERNELCAST_CUPTI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERNELCAST_SOCKET", str(tmp_path / "none.sock"))
    stop = probe.stop
    monkeypatch.setattr(probe, "stop", lambda: None)
    table.forget()
    yield
    stop()
    table.forget()


def run(name: str, *arguments: str, gpu: bool = False) -> Finished:
    """Run an example's `main`; with `gpu`, the probe finds a CUDA context."""
    runpy.run_path(str(EXAMPLES / name))["main"](list(arguments))
    running = probe.start()
    if gpu:
        running.selection._environment = replace(running.selection._environment, contexts=lambda: (0,))
    return Finished(running)


def available(framework: str, double: Any) -> Any:
    """The framework itself where it is installed, else its stand-in."""
    return nullcontext() if importlib.util.find_spec(framework) else double()


def test_every_example_is_in_the_readme_and_has_a_test() -> None:
    names = sorted(path.name for path in EXAMPLES.glob("*.py"))
    below_the_command = Path(__file__).parents[1] / "service" / "probe" / "test_examples.py"
    tested = Path(__file__).read_text() + below_the_command.read_text()
    readme = (EXAMPLES / "README.md").read_text()
    assert names
    assert [name for name in names if f'"{name}"' not in tested or f"]({name})" not in readme] == []


def test_plain_python(capsys: pytest.CaptureFixture[str]) -> None:
    finished = run("plain_python.py", "--steps", "3")
    assert finished.launches == {"smooth": 3}
    assert (finished.probe.steps, finished.probe.settings.source) == (3, "simulated")
    assert finished.regions["smoothing"] > 0
    assert capsys.readouterr().out.startswith("3 steps, chunk 256, largest value ")


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_the_chunk_does_not_change_what_plain_python_computes(chunk: int) -> None:
    values = [float(number % 7) for number in range(20)]
    padded = [values[0], *values, values[-1]]
    expected = [sum(padded[at : at + 3]) / 3 for at in range(20)]
    assert runpy.run_path(str(EXAMPLES / "plain_python.py"))["smooth"](values, chunk) == expected


def test_cupy() -> None:
    with doubles.cupy() as cupy:
        finished = run("cupy_saxpy.py", "--steps", "4", gpu=True)
        assert finished.launches == {"saxpy": 4}
        assert finished.regions["saxpy"] > 0
        assert {how[:2] for _, _, how in cupy.gpu.launches} == {((32768,), (128,))}


def test_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    with available("torch", doubles.torch):
        finished = run("pytorch_training.py", "--epochs", "2")
    assert finished.probe.steps == 40
    assert {"data", "forward", "backward", "optimizer"} <= set(finished.regions)
    assert all(finished.regions.values())
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_mpi(capsys: pytest.CaptureFixture[str]) -> None:
    with available("mpi4py", doubles.mpi4py):
        finished = run("mpi_ranks.py", "--steps", "3")
    assert finished.probe.steps == 3
    assert finished.regions["exchange"] > 0
    assert capsys.readouterr().out == "rank 0: 3 steps, halo 1, first cell 0.000\n"


def test_jax(capsys: pytest.CaptureFixture[str]) -> None:
    with available("jax", doubles.jax):
        finished = run("jax_training.py", "--steps", "60")
    assert finished.probe.steps == 60
    assert finished.regions["train_step"] > 0
    assert float(capsys.readouterr().out.rpartition(" ")[2]) < 0.01


@pytest.mark.service
def test_cnn_trains_with_two_ranks_and_reports_its_steps() -> None:
    path = os.pathsep.join(str(EXAMPLES.parent / root) for root in ("core", "exporter"))
    command = [
        str(python_with(FRAMEWORKS)),
        str(EXAMPLES / "cnn.py"),
        "--epochs",
        "1",
        "--batch",
        "32",
        "--workers",
        "2",
    ]
    command += ["--workers", "2", "--samples", "512", "--bucket-mb", "25"]
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, env=environ)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    values = "2 loader workers, 1 threads, buckets of 25 MB"
    found = re.fullmatch(rf"epoch 0: ([\d.]+) samples/s, loss ([\d.]+), {values}", line)
    assert found is not None, line
    assert float(found[1]) > 0
    assert float(found[2]) < math.log(10), "after an epoch it is no worse than guessing"


def test_the_examples_import_nothing_but_the_framework_and_the_probe() -> None:
    for path in EXAMPLES.glob("*.py"):
        statements = [
            one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Import | ast.ImportFrom)
        ]
        names = [one.module or "" for one in statements if isinstance(one, ast.ImportFrom)]
        names += [alias.name for one in statements if isinstance(one, ast.Import) for alias in one.names]
        imported = {name.partition(".")[0] for name in names}
        assert imported <= {
            *sys.stdlib_module_names,
            "kernelcast",
            "cupy",
            "torch",
            "jax",
            "keras",
            "numpy",
            "mpi4py",
        }, path
