"""The decoder's own tests once more, compiled with the address and undefined-behaviour sanitizers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.probe.cupti.double import EXTRA_FLAGS

from kernelcast.probe.cupti import build

ROOT = Path(__file__).resolve().parents[4]
TESTS = Path(__file__).with_name("test_cupti_native.py")


def runtime(name: str) -> str:
    """The sanitizer's library, which must be loaded before Python's."""
    if not build.compiler():
        pytest.skip("no C compiler on this machine; install gcc")
    asked = subprocess.run([build.compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(asked.stdout.strip())
    if not path.is_absolute():
        pytest.skip(f"the compiler has no {name}; install libgcc's development files")
    return str(path)


def sanitized(preload: str, flags: str, chosen: str) -> "subprocess.CompletedProcess[str]":
    environ = dict(os.environ)
    environ[EXTRA_FLAGS] = f"{flags} -fno-sanitize-recover=all -g"
    environ["LD_PRELOAD"] = preload
    environ["ASAN_OPTIONS"] = "detect_leaks=0"  # Python's own are many, and the decoder's memory is kept on purpose
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, str(TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240, check=False)


def test_no_byte_is_touched_that_is_not_ours_and_nothing_is_undefined() -> None:
    done = sanitized(runtime("libasan.so"), "-fsanitize=address,undefined", "not threads")
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    assert " passed" in done.stdout
