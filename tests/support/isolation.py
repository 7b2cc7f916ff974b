"""Fails a unit test that starts a process or a server, or sleeps: such a test belongs in `tests/service`."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pytest

UNIT: Final = str(Path(__file__).resolve().parents[1] / "unit")
PERMITTED: Final[Mapping[str, str]] = {}
"""Files below `tests/unit` that may, each with the reason."""


@contextmanager
def isolated(file: str) -> Iterator[None]:
    """Close the ways out of this process for the duration of a block, unless a file is permitted.

    Args:
        file: The test's, relative to `tests/unit`.
    """
    if file in PERMITTED:
        yield
        return
    violations: list[str] = []

    def refuse(what: str) -> Callable[..., Any]:
        def refused(*_: object, **__: object) -> None:
            violations.append(what)
            pytest.fail(_sentence(what))

        return refused

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, what in _ways_out():
            patch.setattr(owner, name, refuse(what))
        patch.setattr(time, "sleep", _watched(time.sleep, refuse("sleeps")))
        patch.setattr(asyncio, "sleep", _watched(asyncio.sleep, refuse("sleeps")))
        yield
    if violations:  # on another thread, or where the exception was caught
        pytest.fail(_sentence(violations[0]))


def _ways_out() -> list[tuple[Any, str, str]]:
    from kernelcast.runtime.kafka.embedded import EmbeddedBroker

    grpc = sys.modules.get("grpc")
    return [
        (subprocess.Popen, "__init__", "starts a process"),
        (BaseProcess, "start", "starts a process"),
        (os, "fork", "starts a process"),
        (os, "system", "starts a process"),
        (EmbeddedBroker, "__enter__", "starts a broker"),
        (socket.socket, "listen", "starts a server"),
        *([(grpc, "server", "starts a server")] if grpc else []),
    ]


def _watched(sleep: Callable[[float], Any], refused: Callable[..., Any]) -> Callable[[float], Any]:
    """Refuse to sleep where a unit test calls; code under test may, on a thread of its own."""

    def watched(seconds: float) -> Any:
        if seconds > 0 and sys._getframe(1).f_code.co_filename.startswith(UNIT):
            refused()
        return sleep(seconds)

    return watched


def _sentence(what: str) -> str:
    return f"a unit test {what}; pass in a double, or move it to tests/service"
