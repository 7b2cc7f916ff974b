"""The process with which a bridge compiles on a second core."""

import sys
import time

import pytest

from kernelcast.bridge import compilation
from kernelcast.bridge.compilation import CompilerProcess


def test_a_second_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = "import time; print('ready decoder 1.0', flush=True); time.sleep(120)"
    monkeypatch.setattr(compilation, "_COMMAND", (sys.executable, "-c", hangs))
    monkeypatch.setattr(compilation, "LONGEST_SECONDS", 1.0)
    started = time.monotonic()
    assert list(CompilerProcess([]).lines()) == ["ready decoder 1.0\n"]
    assert time.monotonic() - started < 60
