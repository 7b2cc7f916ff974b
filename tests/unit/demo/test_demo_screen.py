"""The screens of the demo and of `top` on a terminal: nothing hides the first lines, and the terminal is restored."""

import io
import os
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kernelcast.cli.demo import command
from kernelcast.cli.demo.sources import DemoSource
from kernelcast.cli.demo.state import DemoState
from kernelcast.cli.demo.workspace import Endpoints, Workspace
from kernelcast.cli.top import command as top_command
from kernelcast.cli.top.controls import Controls
from kernelcast.cli.top.target import ServerCredentials
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.view.model import Alerts

ALTERNATE_SCREEN, MAIN_SCREEN, SHOWN_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The output to a terminal of 140 by 50."""
    sent = io.StringIO()
    for each in (command, top_command):
        monkeypatch.setattr(
            each,
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
        assert "kernels" in terminal.getvalue()
        assert MAIN_SCREEN not in terminal.getvalue()
    assert MAIN_SCREEN in terminal.getvalue()


def test_services_that_never_start_leave_the_screen_as_it_was(terminal: io.StringIO) -> None:
    with pytest.raises(RuntimeError, match="not ready"), command._screen(Shutdown()):
        raise RuntimeError("not ready")
    assert terminal.getvalue() == ""


def interrupt_twice() -> None:
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)


class KilledRun:
    """Counts how often the demo has ended its processes at once."""

    kills = 0

    def kill(self) -> None:
        self.kills += 1


@pytest.fixture
def no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends without its `finally` blocks is a failure: the terminal stays as it is."""
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"ended with {code} at once"))


@pytest.mark.usefixtures("no_exit")
def test_a_second_ctrl_c_ends_the_demo_and_restores_the_terminal(tmp_path: Path, terminal: io.StringIO) -> None:
    run = KilledRun()
    shutdown = Shutdown(exit_now=lambda code: command._end_now(run, code))  # type: ignore[arg-type]

    def shown_and_interrupted() -> None:
        with shutdown.signals(), command._screen(shutdown) as show:
            show(state(tmp_path))
            interrupt_twice()

    with pytest.raises(SystemExit) as end:
        shown_and_interrupted()
    assert end.value.code == 128 + signal.SIGINT
    assert run.kills == 1
    assert terminal.getvalue().endswith(SHOWN_CURSOR + MAIN_SCREEN)


@pytest.mark.usefixtures("no_exit")
def test_a_second_ctrl_c_ends_top_while_a_server_does_not_answer(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = iter(["kernelcast_bridge_ready 1\n"])

    def get(*_: object) -> str:
        for page in pages:
            return page
        interrupt_twice()
        return ""

    monkeypatch.setattr(top_command, "get", get)
    monkeypatch.setattr(top_command, "bridge_alerts", lambda *_: Alerts([]))
    with pytest.raises(SystemExit) as end:
        top_command._live(top_command.PageReader("http://bridge:1", ServerCredentials()), Controls(), 0.0)
    assert end.value.code == 128 + signal.SIGINT
    assert terminal.getvalue().endswith(SHOWN_CURSOR + MAIN_SCREEN)
