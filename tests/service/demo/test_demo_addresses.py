"""Ports of the demo and of `--standalone`: found before a server starts, and no other program gets them until then."""

import os
import signal
import socket
from pathlib import Path

import pytest
from tests.support.waiting import wait_for

from kernelcast.cli.demo.workspace import reserved_addresses
from kernelcast.probe.activation.standalone import Standalone


def test_a_reserved_address_is_free_for_a_server_and_for_nobody_else() -> None:
    with reserved_addresses(2) as addresses:
        assert len(set(addresses)) == 2
        port = int(addresses[0].rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port)).close()


def test_nobody_else_gets_the_port_of_a_standalone_exporter_that_starts(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 100\n")
    slow.chmod(0o755)
    beside = Standalone(tmp_path / "runtime", python=str(slow))
    beside.start()
    number = tmp_path / "pid"
    assert wait_for(lambda: number.is_file() and number.read_text() != "")
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", beside._port))
        socket.create_server(("127.0.0.1", beside._port)).close()
    finally:
        os.kill(int(number.read_text()), signal.SIGKILL)
    process = beside._process
    assert process is not None
    assert wait_for(lambda: process.poll() is not None)
    assert process.poll() == 128 + signal.SIGKILL
    beside.let_go()
