"""`kernelcast compile`, with doubles for the disk and for the processes that compile."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from kernelcast.bridge import compile_command
from kernelcast.bridge.warm_up import PARTS
from kernelcast.cli import app
from kernelcast.columnar.compiled import code_cache

EVERYTHING = list(PARTS)


@dataclass
class Disk:
    """A disk with the machine code of some parts; the rest is missing.

    Attributes:
        parts: Names of parts.
        is_writable: Whether there is a directory to write to.
        loses: A part that is compiled and not kept.
        fails: A part whose process fails.
        started: Parts whose process was started.
    """

    parts: set[str] = field(default_factory=set)
    is_writable: bool = True
    loses: str = ""
    fails: str = ""
    started: list[str] = field(default_factory=list)

    def not_on_disk(self, modules: Sequence[str]) -> list[str]:
        return [
            f"function of {name}"
            for name, part in PARTS.items()
            if set(part.modules) & set(modules) and name not in self.parts
        ]

    def run(self, name: str) -> tuple[int, str]:
        self.started.append(name)
        if name == self.fails:
            return 1, "LLVM ERROR: out of memory\n"
        if name != self.loses:
            self.parts.add(name)
        return 0, f"ready {name} 1.0\n"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(code_cache, "not_on_disk", disk.not_on_disk)
    monkeypatch.setattr(code_cache, "is_writable", lambda: disk.is_writable)
    monkeypatch.setattr(compile_command, "_run", disk.run)
    return disk


def test_all_that_is_missing_is_compiled_and_progress_is_shown(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    disk.parts = {"series"}
    assert app.run(["compile", "--cores", "1"]) == 0
    assert disk.started == [name for name in EVERYTHING if name != "series"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "series: on disk already"
    assert lines[1].startswith("compiling decoder, protobuf, forecasts on 1 cores")
    assert lines[2].startswith("decoder: compiled, 1 of 3, after ")
    assert lines[-1] == "everything is on disk"


def test_every_core_takes_parts(disk: Disk) -> None:
    assert app.run(["compile", "--cores", "3"]) == 0
    assert sorted(disk.started) == sorted(EVERYTHING)


def test_nothing_is_compiled_where_all_is_on_disk_even_if_it_is_read_only(disk: Disk) -> None:
    disk.parts, disk.is_writable = set(EVERYTHING), False
    assert app.run(["compile"]) == 0
    assert disk.started == []


def test_one_part_can_be_asked_for(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["compile", "decoder"]) == 0
    assert disk.started == ["decoder"]
    assert capsys.readouterr().out.splitlines()[-1] == "on disk: decoder"


def test_a_cache_that_cannot_be_written_is_an_error_that_names_the_setting(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.is_writable = False
    assert app.run(["compile"]) == 2
    assert disk.started == []
    assert "machine code cannot be written to disk; set NUMBA_CACHE_DIR" in capsys.readouterr().err


def test_machine_code_that_was_not_kept_is_an_error(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    disk.loses = "protobuf"
    assert app.run(["compile"]) == 1
    assert "1 functions were compiled and could not be written" in capsys.readouterr().err


def test_a_part_that_fails_is_an_error_with_its_processs_message(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.fails = "protobuf"
    assert app.run(["compile"]) == 1
    assert "compiling protobuf failed with exit code 1: LLVM ERROR: out of memory" in capsys.readouterr().err


def test_a_part_that_there_is_not_is_an_error_with_those_there_are(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["compile", "decodr"]) == 2
    assert "parts are decoder, series, protobuf, forecasts" in capsys.readouterr().err
    assert disk.started == []


def test_portable_code_is_compiled_by_a_process_that_is_told_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def call(command: Sequence[str], env: dict[str, str]) -> int:
        calls.append((list(command)[-5:], env))
        return 3

    monkeypatch.setattr(subprocess, "call", call)
    assert app.run(["compile", "--portable", "decoder", "--cores", "2", "--check"]) == 3
    ((arguments, environ),) = calls
    assert arguments == ["compile", "decoder", "--cores", "2", "--check"]
    assert code_cache.portable_environment().items() <= environ.items()


def test_help_names_the_directories_of_machine_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["compile", "--help"]) == 0
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().out
