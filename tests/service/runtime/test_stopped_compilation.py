"""A service that still compiles ends at a signal, without waiting for the compiler."""

import signal
from pathlib import Path

import pytest
from tests.service.nursery import ForkedServer
from tests.support.service.endless_compilation import COMPILING
from tests.support.waiting import LONGEST_SECONDS, eventually

pytestmark = pytest.mark.service


@pytest.mark.parametrize("name", ["bridge", "predictor"])
def test_a_signal_ends_a_service_that_compiles(name: str, tmp_path: Path) -> None:
    arguments = [name, "--kafka.bootstrap-servers", "127.0.0.1:1", "--web.listen-address", "127.0.0.1:0"]
    server = ForkedServer(name, arguments, tmp_path, before="tests.support.service.endless_compilation:install")
    server.log.touch()
    try:
        server.start()
        eventually(lambda: COMPILING in server.log.read_text())
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LONGEST_SECONDS) == 0
    finally:
        server.kill()
    assert "Traceback" not in server.log.read_text()
