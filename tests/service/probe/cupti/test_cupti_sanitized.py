"""The decoder under sanitizers: its own tests once more, and a program of several threads without Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.probe.cupti.double import EXTRA_FLAGS
from tests.service.require import missing

from kernelcast.probe.cupti import build

ROOT = Path(__file__).resolve().parents[4]
TESTS = Path(__file__).with_name("test_cupti_native.py")
STRESS = Path(__file__).with_name("stress.c")
ROUNDS, ROUND_MS = 16, 120
ADDRESSES_TOO_RANDOM = "unexpected memory mapping"
"""The thread sanitizer's word for a kernel that places memory where it does not expect any."""
RACE = """
#include <pthread.h>
static int shared;
static void *add(void *unused) { for (int i = 0; i < 1000; i++) shared++; return unused; }
int main(void) {
    pthread_t one, other;
    pthread_create(&one, 0, add, 0);
    pthread_create(&other, 0, add, 0);
    pthread_join(one, 0);
    pthread_join(other, 0);
    return shared == 7;
}
"""


def runtime(name: str) -> str:
    """The sanitizer's library, which must be loaded before Python's."""
    if not build.compiler():
        missing("a C compiler", "install gcc")
    asked = subprocess.run([build.compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(asked.stdout.strip())
    if not path.is_absolute():
        missing(f"the compiler's {name}", "install libgcc's development files")
    return str(path)


def compiled(target: Path, sources: list[Path], sanitizers: str) -> Path:
    """A program with sanitizers that end it at the first finding."""
    flags = ("-std=c11", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{build.SOURCES}")
    command = [build.compiler(), *flags, f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    subprocess.run([*command, *map(str, sources), "-o", str(target)], check=True, capture_output=True, text=True)
    return target


def run(*command: object) -> "subprocess.CompletedProcess[str]":
    """Run a program; once more without random addresses where the sanitizer cannot do with them."""
    options = {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66", "ASAN_OPTIONS": "detect_leaks=0"}
    words = [str(word) for word in command]
    environ = {**os.environ, **options}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=120, check=False)
    setarch = shutil.which("setarch")
    if ADDRESSES_TOO_RANDOM in done.stderr and setarch:
        words = [setarch, "--addr-no-randomize", *words]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done


def sanitized(preload: str, flags: str, chosen: str) -> "subprocess.CompletedProcess[str]":
    environ = dict(os.environ)
    environ[EXTRA_FLAGS] = f"{flags} -fno-sanitize-recover=all -g"
    environ["LD_PRELOAD"] = preload
    environ["ASAN_OPTIONS"] = "detect_leaks=0"  # Python's own are many, and the decoder's memory is kept on purpose
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, str(TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.nightly
def test_no_byte_is_touched_that_is_not_ours_and_nothing_is_undefined() -> None:
    done = sanitized(runtime("libasan.so"), "-fsanitize=address,undefined", "not threads")
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("sanitizers", "library"),
    [("thread", "libtsan.so"), ("address,undefined", "libasan.so")],
    ids=["thread", "address"],
)
def test_threads_that_launch_drain_close_and_open_again_find_no_fault(
    sanitizers: str, library: str, tmp_path: Path
) -> None:
    runtime(library)
    program = compiled(tmp_path / "stress", [STRESS, *sorted(build.SOURCES.glob("*.c"))], sanitizers)
    done = run(program, ROUNDS, ROUND_MS)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    brought, read = (int(word) for word in done.stdout.split() if word.isdigit())
    assert 0 < read <= brought


def test_the_thread_sanitizer_would_report_a_race(tmp_path: Path) -> None:
    runtime("libtsan.so")
    source = tmp_path / "race.c"
    source.write_text(RACE)
    done = run(compiled(tmp_path / "race", [source], "thread"))
    assert done.returncode == 66, done.stderr[-3_000:]
    assert "data race" in done.stderr
