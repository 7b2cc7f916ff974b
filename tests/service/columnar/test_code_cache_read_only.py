"""Machine code on disk is found wherever it can be read. Each run is a fresh interpreter."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelcast.columnar

WITHOUT_ROOTS_RIGHTS = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what lets root write where modes forbid it
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; refused to others than root, who need it not
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
COMPILE_ONE = """
import sys
sys.path.insert(0, sys.argv[1])
import kernelcast.columnar
assert kernelcast.columnar.__file__.startswith(sys.argv[1]), kernelcast.columnar.__file__
from kernelcast.columnar.walk import entries
from kernelcast.columnar.decoding import tables
from kernelcast.columnar.compiled import code_cache
tables.grown_store(tables.new_store(), 0)
print(*code_cache.compiled_here(), *code_cache.not_kept())
"""
REHASH = "kernelcast.columnar.walk.entries.rehash"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A copy of the package, without machine code, whose folders a test may make read-only."""
    core = Path(kernelcast.columnar.__file__).parents[2]
    root = tmp_path / "site"
    for part in ("wire", "columnar"):
        shutil.copytree(
            core / "kernelcast" / part, root / "kernelcast" / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    yield root
    _set_mode_of_folders(tmp_path, 0o755)


def make_read_only(*folders: Path) -> None:
    for folder in folders:
        _set_mode_of_folders(folder, 0o555)


def _set_mode_of_folders(top: Path, mode: int) -> None:
    for folder in (top, *(path for path in top.rglob("*") if path.is_dir())):
        folder.chmod(mode)


def compiled_and_not_kept(site: Path, cache: Path | str = "", home: Path | str = "/dev/null") -> list[str]:
    """The functions that a new process compiles, then those of them that it could not keep."""
    environment = {"HOME": str(home), "NUMBA_CACHE_DIR": str(cache), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", WITHOUT_ROOTS_RIGHTS, "-c", COMPILE_ONE, str(site)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_cache_that_can_only_be_read_is_read(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert compiled_and_not_kept(site, cache) == [REHASH]
    make_read_only(site, cache)
    assert compiled_and_not_kept(site, cache) == []


def test_a_cache_beside_read_only_sources_is_read_where_a_home_could_be_written(site: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert compiled_and_not_kept(site) == [REHASH]
    make_read_only(site)
    assert compiled_and_not_kept(site, home=home) == []


def test_code_compiled_without_a_writable_cache_is_reported_as_not_kept(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    make_read_only(site, cache)
    assert compiled_and_not_kept(site, cache) == [REHASH, REHASH]


def test_a_copy_of_the_sources_with_other_times_takes_the_same_machine_code(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert compiled_and_not_kept(site, cache) == [REHASH]
    for source in site.rglob("*.py"):
        os.utime(source, (1, 1))
    assert compiled_and_not_kept(site, cache) == []
