"""A program finds, starts and keeps the exporter beside it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelcast.probe.activation import standalone
from kernelcast.probe.activation.standalone import Standalone, private_directory
from kernelcast.probe.process.descriptors import OwnDescriptor


class Process:
    """A started exporter; `code` is that with which it has ended."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code

    def close(self) -> None:
        """There is no pipe."""


class Machine:
    """A node on which the program starts exporters."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.started: list[Process] = []
        self.code: int | None = None
        self.seconds = 100.0
        self.listens = False
        self._accepted: list[socket.socket] = []
        monkeypatch.setattr(Standalone, "_spawn", lambda _beside: self._spawn())
        monkeypatch.setattr(Standalone, "_hold", lambda beside: self._hold(beside))  # noqa: PLW0108  a bound method gets no self
        monkeypatch.setattr(Standalone, "_can_run", lambda _self: True)
        self.beside = Standalone(directory, clock=lambda: self.seconds)

    def _spawn(self) -> Process:
        self.started.append(Process(self.code))
        return self.started[-1]

    def _hold(self, beside: Standalone) -> bool:
        if not self.listens:
            return False
        line, accepted = socket.socketpair()
        line.setblocking(False)
        self._accepted.append(accepted)
        beside._line = OwnDescriptor(line.detach())
        return True

    def exporter_ends(self) -> None:
        """The kernel closes its connections."""
        self.listens = False
        while self._accepted:
            self._accepted.pop().close()

    def pass_minutes(self, minutes: int) -> None:
        for _ in range(60 * minutes):
            self.seconds += 1
            self.beside.poll()

    def close(self) -> None:
        self.beside.let_go()
        self.exporter_ends()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path / "k", monkeypatch)
    yield made
    made.close()


def test_a_program_that_has_met_an_exporter_at_its_end_gets_another_one(machine: Machine) -> None:
    machine.listens = True
    machine.beside.start()
    assert (machine.beside.held, len(machine.started)) == (True, 0)
    machine.exporter_ends()
    machine.pass_minutes(1)
    assert (machine.beside.held, len(machine.started)) == (False, 1)
    machine.listens = True
    machine.pass_minutes(1)
    assert (machine.beside.held, len(machine.started)) == (True, 1)


def test_an_exporter_that_found_the_last_one_still_ending_is_started_again(machine: Machine) -> None:
    machine.beside.start()
    assert len(machine.started) == 1
    machine.started[0].code = 0  # another exporter held the lock
    machine.pass_minutes(1)
    assert len(machine.started) == 2
    machine.started[1].code = machine.code = 0
    machine.pass_minutes(60)
    assert 3 < len(machine.started) < 70, "they are started less and less often"


def test_an_exporter_that_ends_with_an_error_is_not_started_again(machine: Machine) -> None:
    machine.beside.start()
    machine.started[0].code = 3
    machine.pass_minutes(5)
    assert len(machine.started) == 1
    assert machine.beside.failure() == f"it ended with 3; see {machine.directory / 'exporter.log'}"


@pytest.mark.parametrize("executable", [None, ""])
def test_a_python_within_another_program_goes_on_without_an_exporter(
    executable: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "find_spec", lambda _name: object())
    beside = Standalone(tmp_path / "k", python=executable)
    beside.start()
    assert not beside.held
    assert "sys.executable is empty" in beside.failure()


def test_a_bare_installation_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "find_spec", lambda _name: None)
    beside = Standalone(tmp_path / "k")
    beside.start()
    assert beside.failure() == "it is not installed: pip install 'kernelcast[exporter]'"


def test_a_runtime_directory_that_this_node_lacks_is_not_used(tmp_path: Path) -> None:
    """Slurm passes the login node's `XDG_RUNTIME_DIR` on."""
    own = Path(f"/tmp/kernelcast-{os.getuid()}")
    assert private_directory({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}) == own
    assert private_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "kernelcast"
    assert private_directory({}) == own
