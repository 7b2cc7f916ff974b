"""The exporter of a site that has no Kafka: its own `/metrics` is the only way out."""

import socket
import threading
import urllib.request
from pathlib import Path

from structlog.testing import capture_logs
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.exporter import assembly
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import load
from kernelcast.wire.frames import Bye, DeviceClaim, Hello, encode


def settings(tmp_path: Path, **flags: object) -> ExporterSettings:
    own: dict[str, object] = {
        "socket_path": tmp_path / "probe.sock",
        "state_directory": tmp_path / "state",
        "web.listen_address": "127.0.0.1:0",
        "nvml": "off",
        "kubernetes": "off",
        "kafka.bootstrap_servers": "127.0.0.1:1",
    }
    return load("exporter", ExporterSettings, path=None, flags={**own, **flags}, environ={})


def test_it_is_ready_shows_programs_and_keeps_nothing_for_kafka(tmp_path: Path) -> None:
    with assembly.assembled(settings(tmp_path, to_kafka="off"), Shutdown()) as (daemon, web, _):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
            program.connect(str(tmp_path / "probe.sock"))
            hello = Hello("train", "n1", 1, 99, devices=(DeviceClaim("cpu"),), source="simulated")
            for frame in (hello, Bye()):
                for packet in encode(frame):
                    program.send(packet)
        daemon.interval()
        assert daemon.ready() == (True, "")
        with urllib.request.urlopen(f"{web.url}/metrics", timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own page
            page = answer.read().decode()
        assert "kernelcast_exporter_probe_connections" in page
        assert "kernelcast_producer" not in page
        assert "hints" not in {thread.name for thread in threading.enumerate()}
    assert not (tmp_path / "state" / "spool").exists()


def test_with_kafka_it_is_not_ready_before_kafka_is(tmp_path: Path) -> None:
    with assembly.assembled(settings(tmp_path), Shutdown()) as (daemon, *_):
        daemon.interval()
        assert not daemon.ready()[0]


def test_its_last_line_says_that_it_has_stopped_and_where_its_state_is(tmp_path: Path) -> None:
    shutdown, own = Shutdown(), settings(tmp_path, to_kafka="off")
    shutdown.request()
    with capture_logs() as lines:
        assembly.run(own, shutdown, reload=lambda: own)
    assert lines[-1] == {
        "event": "exporter stopped",
        "state_saved_in": str(tmp_path / "state"),
        "log_level": "info",
    }
