"""The services and systemd: a real datagram socket in its place, and a real process or real threads as the service."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.bridge.command import supervise
from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.topics import TOPICS

pytestmark = [pytest.mark.service]

KERNELCAST = Path(sys.executable).with_name("kernelcast")
WATCHDOG_SECONDS = 2.0
SILENCE_SECONDS = 1.5 * WATCHDOG_SECONDS


class Systemd:
    """A socket that receives notifications, as systemd's does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._earlier: set[str] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def environ(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(round(WATCHDOG_SECONDS * 1e6))}

    def received(self, seconds: float, wanted: Callable[[str], bool]) -> str | None:
        """The first line that is wanted, within a time; None if none came."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                datagram = self._socket.recv(4096).decode()
            except TimeoutError:
                return None
            self._earlier.update(datagram.splitlines())
            for line in datagram.splitlines():
                if wanted(line):
                    return line
        return None

    def has_sent(self, line: str) -> bool:
        """Whether a line came, now or at any time before."""
        return line in self._earlier or self.waits_for(line)

    def has_sent_like(self, beginning: str) -> bool:
        """Whether a line with this beginning came, now or at any time before."""
        known = any(line.startswith(beginning) for line in self._earlier)
        return known or self.received(LONGEST_SECONDS, lambda line: line.startswith(beginning)) is not None

    def waits_for(self, line: str, seconds: float = LONGEST_SECONDS) -> bool:
        return self.received(seconds, lambda found: found == line) is not None

    def is_silent(self) -> bool:
        """Whether no note of the watchdog comes for longer than its period, after those already on their way."""
        self.received(WATCHDOG_SECONDS, lambda _: False)
        return self.received(SILENCE_SECONDS, lambda found: found == "WATCHDOG=1") is None

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@kernelcast-test-{os.getpid()}"
    made = Systemd(address)
    yield made
    made.close()


@pytest.fixture
def abstract_systemd() -> Iterator[Systemd]:
    made = Systemd(f"@kernelcast-test-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        started.add_topics(topic.name for topic in TOPICS)
        yield started


def kafka(broker: EmbeddedBroker) -> KafkaSettings:
    quick = {"session.timeout.ms": "5000", "heartbeat.interval.ms": "300"}
    return KafkaSettings(bootstrap_servers=broker.bootstrap_servers, properties=quick)


@contextmanager
def stuck(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A method hangs for the duration of the block."""
    release = threading.Event()
    working = getattr(owner, name)

    def hang(*arguments: object) -> object:
        release.wait()
        return working(*arguments)

    monkeypatch.setattr(owner, name, hang)
    try:
        yield
    finally:
        release.set()
        monkeypatch.setattr(owner, name, working)


def test_an_exporter_is_ready_feeds_the_watchdog_and_says_that_it_stops(systemd: Systemd, tmp_path: Path) -> None:
    options = ["--kafka", "off", "--nvml", "off", "--interval", "0.5", "--web.listen-address", "127.0.0.1:0"]
    places = ["--probe.socket", str(tmp_path / "probe.sock"), "--state.directory", str(tmp_path / "state")]
    process = subprocess.Popen(
        [KERNELCAST, "exporter", *options, *places],
        env={**os.environ, **systemd.environ()},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert systemd.waits_for("READY=1")
        assert systemd.waits_for("WATCHDOG=1")
        assert systemd.has_sent("STATUS=ready")
        process.terminate()
        assert systemd.waits_for("STOPPING=1")
        assert process.wait(LONGEST_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("loaded")
def test_a_bridge_that_hangs_feeds_the_watchdog_no_more_although_its_other_threads_run(
    broker: EmbeddedBroker, abstract_systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, shutdown = ServiceManager.from_environ(abstract_systemd.environ()), Shutdown()
    settings = BridgeSettings(kafka=kafka(broker), web=WebSettings(listen_address="127.0.0.1:0"))
    with Bridge(settings, manager=manager) as bridge:
        main = threading.Thread(target=supervise, args=(bridge, shutdown, manager))
        main.start()
        try:
            assert abstract_systemd.waits_for("READY=1", 120)
            assert abstract_systemd.waits_for("WATCHDOG=1")
            with stuck(bridge._intake, "step", monkeypatch):
                assert abstract_systemd.is_silent()
            assert abstract_systemd.waits_for("WATCHDOG=1")
        finally:
            shutdown.request()
            main.join()
    assert abstract_systemd.waits_for("STOPPING=1")


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("part", ["reading", "cycles"])
def test_a_predictor_feeds_the_watchdog_no_more_when_either_of_its_loops_hangs(
    broker: EmbeddedBroker, abstract_systemd: Systemd, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    shutdown = Shutdown()
    settings = PredictorSettings(
        kafka=kafka(broker), web=WebSettings(listen_address="127.0.0.1:0"), sweep_every_seconds=0.2
    )
    predictor = Predictor(settings, manager=ServiceManager.from_environ(abstract_systemd.environ()))
    main = threading.Thread(target=predictor.run, args=(shutdown,))
    main.start()
    try:
        assert abstract_systemd.waits_for("READY=1", 120)
        assert abstract_systemd.waits_for("WATCHDOG=1")
        owner, name = (predictor._logs.hints, "poll") if part == "reading" else (predictor._cycles, "run_cycle")
        with stuck(owner, name, monkeypatch):
            assert abstract_systemd.is_silent()
        assert abstract_systemd.waits_for("WATCHDOG=1")
    finally:
        shutdown.request()
        main.join()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("service", ["bridge", "predictor"])
def test_a_service_that_waits_for_kafka_is_started_and_its_status_says_so(
    abstract_systemd: Systemd, service: str
) -> None:
    process = subprocess.Popen(
        [KERNELCAST, service, "--kafka.bootstrap-servers", "127.0.0.1:1", "--web.listen-address", "127.0.0.1:0"],
        env={**os.environ, **abstract_systemd.environ()},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert abstract_systemd.waits_for("READY=1", 120), "systemd would end it, although only Kafka is missing"
        assert abstract_systemd.has_sent_like("STATUS=not ready: ")
    finally:
        process.kill()
        process.wait()
