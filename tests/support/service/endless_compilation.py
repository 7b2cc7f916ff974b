"""A compilation that does not end, for a daemon of a nursery: `before="…endless_compilation:install"`."""

import sys
import time
from typing import Any

import pytest

COMPILING = "the endless compilation has begun"


def compile_for_ever(*_: Any) -> None:
    """Say so, and go on until the process ends."""
    sys.stderr.write(f"{COMPILING}\n")
    sys.stderr.flush()
    while True:
        time.sleep(0.01)


def install() -> None:
    """Let bridge and predictor compile so, and let them wait for their threads for longer than a test does."""
    from kernelcast.bridge import compilation, service
    from kernelcast.predictor.forecasting import machine_code

    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(service, "STOP_SECONDS", 3600.0)
    monkeypatch.setattr(compilation.Compilation, "finish_what_readiness_needs", compile_for_ever)
    monkeypatch.setattr(machine_code, "warm_up", compile_for_ever)
