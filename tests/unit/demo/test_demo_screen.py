"""The demo's screen on a terminal: the first lines stay readable while the services start."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kernelcast.cli.demo import command
from kernelcast.cli.demo.sources import DemoSource
from kernelcast.cli.demo.state import DemoState
from kernelcast.cli.demo.workspace import Endpoints, Workspace
from kernelcast.runtime.lifecycle import Shutdown

ALTERNATE_SCREEN, MAIN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The output to a terminal of 140 by 50."""
    sent = io.StringIO()
    monkeypatch.setattr(
        command,
        "Console",
        lambda: Console(file=sent, force_terminal=True, width=140, height=50, _environ={"TERM": "xterm"}),
    )
    monkeypatch.setattr(sys, "stdin", Keyboard())
    return sent


def state(directory: Path) -> DemoState:
    endpoints = Endpoints("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    return DemoState(DemoSource("simulate", "asked for"), Workspace(directory, endpoints, "127.0.0.1:9"), "embedded")


def test_the_screen_is_taken_over_when_there_is_something_to_show(tmp_path: Path, terminal: io.StringIO) -> None:
    with command._screen(Shutdown()) as show:
        assert terminal.getvalue() == "", "it would hide the lines about the start"
        show(state(tmp_path))
        assert ALTERNATE_SCREEN in terminal.getvalue()
        assert "kernels by time" in terminal.getvalue()
        assert MAIN_SCREEN not in terminal.getvalue()
    assert MAIN_SCREEN in terminal.getvalue()


def test_services_that_never_start_leave_the_screen_as_it_was(terminal: io.StringIO) -> None:
    with pytest.raises(RuntimeError, match="not ready"), command._screen(Shutdown()):
        raise RuntimeError("not ready")
    assert terminal.getvalue() == ""
