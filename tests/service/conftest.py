"""For the service tests: one real Kafka for all tests of a process, emptied between them, and the built wheel."""

import os
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.service.emptying import emptied
from tests.service.servers import KafkaCluster, SharedKafka
from tests.support.once import once, run_directory
from tests.support.packaging import MACHINE_CODE_VARIABLE, ROOTS, build_package

from kernelcast.runtime.kafka.embedded import EmbeddedBroker


@dataclass(frozen=True)
class Broker:
    """A broker to talk to."""

    kind: str
    bootstrap_servers: str


WITHOUT_BRIDGE: Final = (
    *("cli", "columnar", "demo", "exporter/attribution", "exporter/nvml", "exporter/tpu", "gpu_day"),
    *("grafana", "packaging", "predictor/test_findings_on_kafka.py", "probe", "runtime/kafka", "runtime/web", "tuning"),
)
"""Folders and files whose tests start processes or servers without compiled functions; they need no machine code."""


KAFKA: Final = pytest.StashKey[SharedKafka]()
"""The server of `running_kafka`."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Freeze Kafka behind each file, whose successor may not use it: an idle one takes 2 to 3 % of a core."""
    yield
    server = item.config.stash.get(KAFKA, None)
    if server is not None and nextitem is not None and nextitem.path != item.path:
        server.freeze()


@pytest.fixture(scope="module", autouse=True)
def _ready_to_start(request: pytest.FixtureRequest) -> None:
    """Machine code is on disk before a test starts services; the first test that needs it compiles it."""
    here = Path(__file__).parent
    if not any(request.path.is_relative_to(here / folder) for folder in WITHOUT_BRIDGE):
        request.getfixturevalue("compiled")


@pytest.fixture(scope="session")
def running_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Apache Kafka, started once a process; a test that stops or configures a broker starts its own."""
    server = request.config.stash[KAFKA] = SharedKafka(tmp_path_factory.mktemp("kafka"))
    try:
        server.run()
        yield Broker("kafka", server.bootstrap_servers)
    finally:
        server.kill()


@pytest.fixture(scope="module")
def thawed_kafka(request: pytest.FixtureRequest, running_kafka: Broker) -> Broker:
    """A real Apache Kafka that runs until the end of the module, with what earlier tests left in it."""
    request.config.stash[KAFKA].thaw()
    return running_kafka


@pytest.fixture
def kafka(thawed_kafka: Broker) -> Broker:
    """A real Apache Kafka without topics and groups, so a test can use the names of the catalogue."""
    emptied(thawed_kafka.bootstrap_servers)
    return thawed_kafka


@pytest.fixture(scope="module")
def shared_kafka(thawed_kafka: Broker) -> Broker:
    """A real Apache Kafka, emptied once a module: each of its tests uses topics and groups of its own."""
    emptied(thawed_kafka.bootstrap_servers)
    return thawed_kafka


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three nodes of a real Apache Kafka, shared by the tests of a module: each uses topics and groups of its own."""
    servers = KafkaCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield servers.run()
    finally:
        servers.kill()


@pytest.fixture(params=["embedded", "kafka"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Both brokers, one after the other: the embedded one of the demo, and a real Apache Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedBroker() as embedded:
        yield Broker("embedded", embedded.bootstrap_servers)


@pytest.fixture(scope="session")
def wheel(compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's wheel with its machine code; one process of a run builds it for all."""
    folder = run_directory(tmp_path_factory) / "wheel"
    once(tmp_path_factory, "wheel", lambda: _built(folder))
    (path,) = folder.iterdir()
    return path


def _built(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of a worker whose build failed
    build_package(folder, {**os.environ, MACHINE_CODE_VARIABLE: os.pathsep.join(ROOTS)})
