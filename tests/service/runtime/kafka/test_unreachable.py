"""A Kafka that is not there is one sentence on standard error, with its remedy, and no reason not to stop."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.service.nursery import ForkedServer
from tests.service.servers import ServerProcess
from tests.support.ports import free_ports
from tests.support.waiting import LONGEST_SECONDS, eventually

pytestmark = pytest.mark.service

WAITING = 'event="waiting for Kafka"'


@contextlib.contextmanager
def running(name: str, directory: Path, *, level: str = "info") -> Iterator[tuple[ServerProcess, int]]:
    """A command of kernelcast's, and the port at which no Kafka answers."""
    (port,) = free_ports(1)
    web = {"listen_address": "127.0.0.1:0"}
    content = {
        "kafka": {"bootstrap_servers": f"127.0.0.1:{port}"},
        "log": {"level": level},
        "exporter": {
            "web": web,
            "socket_path": str(directory / "probe.sock"),
            "state_directory": str(directory / "state"),
            "nvml": "off",
            "kubernetes": "off",
        },
        "bridge": {"web": web},
        "predictor": {"web": web},
        "simulate": {"speed": "max", "duration_seconds": 30, "flush_timeout_seconds": 3600},
    }
    configuration = directory / "kernelcast.yaml"
    configuration.write_text(yaml.safe_dump(content))
    server = ForkedServer(name, [name, "--config", str(configuration)], directory)
    server.log.touch()
    try:
        yield server.start(), port
    finally:
        server.kill()


def stopped(server: ServerProcess, number: int = signal.SIGTERM) -> int:
    assert server.process is not None
    server.process.send_signal(number)
    return server.process.wait(LONGEST_SECONDS)


@pytest.mark.parametrize("name", ["exporter", "bridge", "predictor", "simulate"])
def test_a_closed_port_is_one_sentence_with_its_remedy(name: str, tmp_path: Path) -> None:
    with running(name, tmp_path) as (server, port):
        eventually(lambda: WAITING in server.log.read_text())
        stopped(server)
    log = server.log.read_text()
    assert "FAIL [" not in log
    (sentence,) = [line for line in log.splitlines() if WAITING in line]
    assert f"brokers=127.0.0.1:{port} " in sentence
    assert "Connection refused" in sentence
    assert 'remedy="start Kafka, or correct the port in kafka.bootstrap_servers"' in sentence


@pytest.mark.parametrize("action", ["apply", "list"])
def test_a_command_on_a_closed_port_writes_one_line_and_ends(action: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = ["topics", action, "--kafka.bootstrap-servers", f"127.0.0.1:{port}"]
    server = ForkedServer("topics", command, tmp_path).start()
    assert server.process is not None
    assert server.process.wait(LONGEST_SECONDS) == 2
    (line,) = server.log.read_text().splitlines()
    assert line.startswith(f"kernelcast: reaching Kafka at 127.0.0.1:{port} failed: ")
    assert line.endswith("Connection refused; start Kafka, or correct the port in kafka.bootstrap_servers")


def test_the_line_of_librdkafka_is_there_for_who_asks_for_details(tmp_path: Path) -> None:
    with running("simulate", tmp_path, level="debug") as (server, _):
        eventually(lambda: 'level=debug logger=kafka event="FAIL [' in server.log.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_simulation_without_kafka_ends_at_a_signal_and_counts_what_is_lost(number: int, tmp_path: Path) -> None:
    with running("simulate", tmp_path) as (server, port):
        eventually(lambda: WAITING in server.log.read_text())
        assert stopped(server, number) == 1
    log = server.log.read_text()
    assert f"of them NOT acknowledged by Kafka at 127.0.0.1:{port}" in log
    assert log.count('event="messages given up, because Kafka has not confirmed them"') == 1
    assert "Purged" not in log
