"""Machine code that one process leaves on disk for the next."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelcast.columnar.compiled import code_cache

TABLES = "STEPS = (1, {second})\n"
PARTS = """
from kernelcast.columnar.compiled import routine
from kernelcast.tiny.deep import tables

@routine
def second():
    return tables.STEPS[1]
"""
LOOP = """
import numpy as np
from kernelcast.columnar.compiled import allocating_kernel, kernel
from kernelcast.tiny.parts import second

@kernel
def of_kernel():
    return second()

@allocating_kernel
def of_allocating_kernel():
    return second()

@allocating_kernel
def filled(length):
    made = np.empty(length, np.int64)
    made[:] = length
    return made[1:]
"""
PROGRAM = """
from kernelcast.tiny import loop
for function in (loop.of_kernel, loop.of_allocating_kernel):
    print(function(), sum(function.stats.cache_hits.values()))
"""
ALLOCATING = """
import sys
from kernelcast.tiny import loop
print(loop.filled(3).tolist(), sum(loop.filled.stats.cache_hits.values()), "numba.np.arrayobj" in sys.modules)
try:
    loop.filled(-1)
except ValueError as error:
    print(error)
"""
BEYOND = """
import numpy as np
from kernelcast.columnar.compiled import inlined, kernel

@inlined
def element(values, index):
    return values[index]

@kernel
def of_kernel(values, index):
    return element(values, index)
"""
READING = """
import numpy as np
from kernelcast.tiny import beyond
values = np.arange(4)[:3]
try:
    print(beyond.of_kernel(values, 3))
except IndexError as error:
    print(error)
print(sum(beyond.of_kernel.stats.cache_hits.values()))
"""
FORKING = """
import json, os, sys, traceback
from numba.core import config
from kernelcast.columnar.compiled import kernel

kernel(lambda: 1)()  # so that no child imports the compiler again

def become(request):
    os.environ.update(request["environ"])
    config.reload_config()
    sys.path[:0] = request["paths"]
    sys.stdout = open(request["output"], "w")
    try:
        exec(request["program"], {})
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        raise
    finally:
        sys.stdout.flush()

for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            become(json.loads(line))
            os._exit(0)
        finally:
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has imported the compiler, and runs each program of a line in a child."""
Package = Path
Run = Callable[..., list[str]]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package of kernels whose constant stands two imports away, in another folder."""
    tiny = tmp_path / "site" / "kernelcast" / "tiny"
    (tiny / "deep").mkdir(parents=True)
    for name, source in (("__init__", ""), ("loop", LOOP), ("parts", PARTS), ("deep/__init__", "")):
        (tiny / f"{name}.py").write_text(source)
    set_constant(tiny, 2)
    return tiny


def set_constant(package: Package, value: int) -> None:
    (package / "deep" / "tables.py").write_text(TABLES.format(second=value))


def run_alone(package: Package, cache: str, program: str = PROGRAM, **environ: str) -> list[str]:
    """Run a program in an interpreter of its own, which alone can be told another processor; return its output."""
    paths = os.pathsep.join((str(package.parents[1]), *sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": cache, **environ}
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def forking() -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command, pipe = [sys.executable, "-B", "-c", FORKING], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        yield process


@pytest.fixture
def run(package: Package, tmp_path: Path, forking: "subprocess.Popen[str]") -> Run:
    """Runs a program in a process of its own; the result of each kind of kernel, and whether it came from the cache."""

    def run(cache: str, program: str = PROGRAM, **environ: str) -> list[str]:
        output = tmp_path / "output"
        asked = {"environ": {"NUMBA_CACHE_DIR": cache, **environ}, "paths": [str(package.parents[1])]}
        assert forking.stdin is not None
        assert forking.stdout is not None
        forking.stdin.write(json.dumps({**asked, "output": str(output), "program": program}) + "\n")
        forking.stdin.flush()
        assert forking.stdout.readline() == "0\n", output.read_text()
        return output.read_text().splitlines()

    return run


@pytest.mark.parametrize("beside", [True, False], ids=["beside the file", "in NUMBA_CACHE_DIR"])
def test_a_constant_that_changes_in_another_file_reaches_every_kind_of_kernel(
    package: Package, tmp_path: Path, run: Run, *, beside: bool
) -> None:
    cache = "" if beside else str(tmp_path / "cache")
    if not beside:  # a file where the folder would be: not even root can write there
        (package / "__pycache__").write_text("")
    assert run(cache) == ["2 0"] * 2
    (package / "unrelated.py").write_text("")
    assert run(cache) == ["2 1"] * 2
    set_constant(package, 3)
    assert run(cache) == ["3 0"] * 2
    assert run(cache) == ["3 1"] * 2


def test_machine_code_from_disk_allocates_and_raises_without_the_compilers_numpy(
    package: Package, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    assert run_alone(package, cache, ALLOCATING) == ["[3, 3] 0 True", "negative dimensions not allowed"]
    assert run_alone(package, cache, ALLOCATING) == ["[3, 3] 1 False", "negative dimensions not allowed"]


@pytest.mark.parametrize("beside", [True, False], ids=["beside the file", "in NUMBA_CACHE_DIR"])
def test_machine_code_with_and_without_bounds_checks_is_never_confused(
    package: Package, tmp_path: Path, run: Run, *, beside: bool
) -> None:
    (package / "beyond.py").write_text(BEYOND)
    cache = "" if beside else str(tmp_path / "cache")
    unchecked, checked = {"NUMBA_BOUNDSCHECK": "0"}, {"NUMBA_BOUNDSCHECK": "1"}
    assert run(cache, READING, **unchecked) == ["3", "0"]
    assert run(cache, READING, **checked) == ["index is out of bounds", "0"]
    assert run(cache, READING, **checked) == ["index is out of bounds", "1"]
    assert run(cache, READING, **unchecked) == ["3", "1"]


PORTABLE = code_cache.portable_environment()
ANOTHER = "import {package}\n{package}.__version__ = '0.0.1'\n" + PROGRAM


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its features are those of x86-64")
def test_portable_machine_code_serves_each_processor_that_has_its_features_and_no_other(package: Package) -> None:
    first, *others = features = PORTABLE["NUMBA_CPU_FEATURES"].split(",")
    newer = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ",".join([*features, "+aes"])}
    older = {"NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": ",".join([first.replace("+", "-"), *others])}
    assert run_alone(package, "", **PORTABLE) == ["2 0"] * 2
    assert run_alone(package, "", **newer) == ["2 1"] * 2
    assert run_alone(package, "", **older) == ["2 0"] * 2


@pytest.mark.parametrize("package_name", ["numba", "llvmlite"])
def test_machine_code_of_another_compiler_is_not_run(run: Run, package_name: str) -> None:
    assert run("") == ["2 0"] * 2
    other = ANOTHER.format(package=package_name)
    assert run("", other) == ["2 0"] * 2
    assert run("", other) == ["2 1"] * 2
