"""The stamp of whole machine code fits as long as nothing has changed that machine code depends on."""

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from kernelcast.cli.demo import machine_code
from kernelcast.cli.demo.machine_code import MachineCodeStamp

CPU = "processor\t: {number}\nmodel name\t: {model}\ncpu MHz\t\t: {number}000.1\nflags\t\t: {flags}\n\n"


def cpuinfo(model: str = "Xeon", flags: str = "avx avx2") -> str:
    return "".join(CPU.format(number=number, model=model, flags=flags) for number in (0, 1))


@pytest.fixture
def stamp(tmp_path: Path) -> MachineCodeStamp:
    """A stamp of whole machine code that has been written."""
    kept = tmp_path / "kernelcast" / "columnar" / "__pycache__"
    kept.mkdir(parents=True)
    (kept.parent / "walk.py").write_text("STEP = 1\n")
    (kept / "walk.step-1.py311.nbi").write_bytes(b"index")
    (tmp_path / "kept").mkdir()
    (tmp_path / "cpuinfo").write_text(cpuinfo())
    environ = {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "HOME": "/root"}
    made = MachineCodeStamp(tmp_path / "stamps" / "stamp", [tmp_path / "kernelcast"], environ, tmp_path / "cpuinfo")
    made.write()
    return made


def source(tmp_path: Path) -> Path:
    return tmp_path / "kernelcast" / "columnar" / "walk.py"


def touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a source is longer": lambda path: source(path).write_text("STEP = 10\n"),
    "a source has another time": lambda path: touch(source(path)),
    "a source is new": lambda path: source(path).with_name("points.py").touch(),
    "a source is gone": lambda path: source(path).unlink(),
    "machine code is gone": lambda path: next(path.rglob("*.nbi")).unlink(),
    "machine code elsewhere": lambda path: (path / "kept" / "other.nbi").touch(),
    "another processor": lambda path: (path / "cpuinfo").write_text(cpuinfo(model="EPYC")),
    "other instructions": lambda path: (path / "cpuinfo").write_text(cpuinfo(flags="avx")),
    "no processor is known": lambda path: (path / "cpuinfo").unlink(),
    "another stamp": lambda path: (path / "stamps" / "stamp").write_text("0"),
    "no text": lambda path: (path / "stamps" / "stamp").write_bytes(b"\xff\x00"),
    "no stamp": lambda path: (path / "stamps" / "stamp").unlink(),
}


def test_a_stamp_matches_while_nothing_changes(stamp: MachineCodeStamp) -> None:
    stamp.cpuinfo.write_text(cpuinfo().replace("000.1", "999.9"))
    assert stamp.matches()
    assert replace(stamp, environ={**stamp.environ, "HOME": "/home"}).matches()
    assert [path.name for path in stamp.file.parent.iterdir()] == ["stamp"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_stamp_does_not_fit_after_a_change(
    change: Callable[[Path], object], stamp: MachineCodeStamp, tmp_path: Path
) -> None:
    change(tmp_path)
    assert not stamp.matches()


@pytest.mark.parametrize("variable", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_BOUNDSCHECK"])
def test_variables_of_the_compiler_count(stamp: MachineCodeStamp, variable: str) -> None:
    assert not replace(stamp, environ={**stamp.environ, variable: "1"}).matches()


@pytest.mark.parametrize("package", ["numba", "llvmlite", "numpy"])
def test_versions_of_the_compiler_count(stamp: MachineCodeStamp, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0" if name == package else version(name))
    assert not stamp.matches()


def test_without_the_compiler_nothing_is_stamped(stamp: MachineCodeStamp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "COMPILERS", ("no such package",))
    stamp.write()
    assert not stamp.matches()


def test_a_stamp_that_cannot_be_written_stops_nothing(stamp: MachineCodeStamp, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    unwritable = replace(stamp, file=tmp_path / "file" / "stamp")
    unwritable.write()
    assert not unwritable.matches()


def test_this_installations_stamp_lies_beside_its_bytecode() -> None:
    here = MachineCodeStamp.here()
    assert here.file.parent.name == "__pycache__"
    assert any((root / "columnar" / "series.py").is_file() for root in here.roots)
