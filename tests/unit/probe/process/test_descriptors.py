"""A descriptor of the probe that the program closes, and whose number the program uses again."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from kernelcast.probe.activation.standalone import KILLED, StartedExporter
from kernelcast.probe.process.descriptors import OwnDescriptor


class Pipes:
    """Opens pipes, and closes at the end what the test has left open."""

    def __init__(self) -> None:
        self.opened: list[int] = []

    def open(self) -> tuple[int, int]:
        ends = os.pipe()
        self.opened += ends
        return ends

    def reuse(self, number: int) -> int:
        """Close a number and open another pipe under it, as a program may; returns the end to write to."""
        read, write = self.open()
        os.dup2(read, number)
        return write


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes()
    yield pipes
    for number in pipes.opened:
        with contextlib.suppress(OSError):
            os.close(number)


def test_it_reads_and_writes_while_it_is_the_probes(pipes: Pipes) -> None:
    read, write = map(OwnDescriptor, pipes.open())
    write.write(b"packet")
    assert read.read(100) == b"packet"
    write.close()
    assert read.read(100) == b""
    assert write.fileno() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        write.write(b"more")


def test_a_number_that_the_program_uses_for_another_file_is_neither_read_nor_written_nor_closed(pipes: Pipes) -> None:
    number, _ = pipes.open()
    own = OwnDescriptor(number)
    os.write(pipes.reuse(number), b"the program's")
    for use in (lambda: own.read(100), lambda: own.write(b"the probe's")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    own.close()
    assert own.fileno() is None
    assert os.read(number, 100) == b"the program's"


def test_a_closed_number_stays_forgotten_when_the_program_uses_it(pipes: Pipes) -> None:
    number, _ = pipes.open()
    own = OwnDescriptor(number)
    os.close(number)
    assert own.fileno() is None
    pipes.reuse(number)
    assert own.fileno() is None


def test_the_status_of_a_started_exporter_is_not_read_from_a_file_of_the_program(pipes: Pipes) -> None:
    number, _ = pipes.open()
    started = StartedExporter(OwnDescriptor(number))
    os.write(pipes.reuse(number), b"7")
    assert started.poll() == 0
    assert os.read(number, 100) == b"7"


def test_a_started_exporter_runs_until_its_status_comes(pipes: Pipes) -> None:
    for written, status in ((b"3\n", 3), (b"", KILLED)):
        read, write = pipes.open()
        os.set_blocking(read, False)
        started = StartedExporter(OwnDescriptor(read))
        assert started.poll() is None
        os.write(write, written)
        os.close(write)
        assert (started.poll(), started.poll()) == (status, status)
