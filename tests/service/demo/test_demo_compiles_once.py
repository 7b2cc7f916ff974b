"""A demo compiles once, and never where a stamp says that it has."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelcast.cli.demo import run
from kernelcast.cli.demo.machine_code import MachineCodeStamp
from kernelcast.cli.demo.progress import StartProgress
from kernelcast.cli.demo.run import Demo, DemoOptions
from kernelcast.cli.demo.sources import DemoSource
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.wire.errors import KernelcastError


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each start of a compiler, in place of real ones."""
    stamp = replace(MachineCodeStamp.here(), file=tmp_path / "code" / "stamp", roots=[tmp_path / "sources"])
    stamp.roots[0].mkdir()
    monkeypatch.setattr(MachineCodeStamp, "here", lambda: stamp)
    program = f"print('one', file=open({str(tmp_path / 'starts')!r}, 'a'))"
    monkeypatch.setattr(run, "COMPILING", ((sys.executable, "-c", program),))
    (tmp_path / "starts").touch()
    return tmp_path / "starts"


def compile_for_demo(directory: Path, shutdown: Shutdown | None = None) -> None:
    addresses = [f"127.0.0.1:{port}" for port in range(1, 6)]
    options = DemoOptions(DemoSource("simulate", "test"), servers=False)
    (directory / "demo").mkdir(exist_ok=True)
    demo = Demo(options, directory / "demo", addresses, "127.0.0.1:1", "embedded")
    demo._compile(shutdown or Shutdown(), StartProgress(io.StringIO()))


def test_the_second_demo_starts_no_compiler_until_a_source_changes(starts: Path, tmp_path: Path) -> None:
    compile_for_demo(tmp_path)
    compile_for_demo(tmp_path)
    assert starts.read_text() == "one\n"
    (tmp_path / "sources" / "new.py").touch()
    compile_for_demo(tmp_path)
    assert starts.read_text() == "one\none\n"


def test_a_compilation_that_fails_is_tried_again(starts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = run.COMPILING
    monkeypatch.setattr(run, "COMPILING", (*commands, (sys.executable, "-c", "raise SystemExit('no compiler')")))
    with pytest.raises(KernelcastError, match="no compiler"):
        compile_for_demo(tmp_path)
    monkeypatch.setattr(run, "COMPILING", commands)
    compile_for_demo(tmp_path)
    assert starts.read_text() == "one\none\n"


def test_a_compilation_that_is_interrupted_is_not_taken_for_whole(starts: Path, tmp_path: Path) -> None:
    shutdown = Shutdown()
    shutdown.request()
    compile_for_demo(tmp_path, shutdown)
    interrupted = starts.read_text()
    compile_for_demo(tmp_path)
    assert starts.read_text() == f"{interrupted}one\n"
