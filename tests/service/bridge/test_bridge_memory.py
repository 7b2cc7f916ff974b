"""Resident memory of an empty bridge with its machine code on disk."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
import kernelcast.bridge.command
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest
from kernelcast.columnar.compiled import code_cache
warm_up()
warm_up_the_rest()
lines = Path("/proc/self/status").read_text().splitlines()
print(len(code_cache.compiled_here()), next(line for line in lines if line.startswith("VmRSS:")).split()[1])
"""
MAX_MIB = 180


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux shows it")
@pytest.mark.usefixtures("compiled")
def test_an_empty_bridge_holds_at_most_180_mib() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled, resident_kib = map(int, done.stdout.split())
    assert compiled == 0
    assert resident_kib / 1024 <= MAX_MIB
