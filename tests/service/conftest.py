"""Brokers for the service tests: each test gets its own, empty one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.service.servers import KafkaCluster, KafkaServer

from kernelcast.runtime.embedded import EmbeddedBroker


@dataclass(frozen=True)
class Broker:
    """A broker to talk to."""

    kind: str
    bootstrap_servers: str


@pytest.fixture(scope="session", autouse=True)
def _ready_to_start(compiled: None) -> None:
    """Every service test starts services."""


@contextmanager
def apache_kafka(directory: Path) -> Iterator[Broker]:
    """A server of its own, killed at the end."""
    server = KafkaServer(directory)
    try:
        server.run()
        yield Broker("kafka", server.bootstrap_servers)
    finally:
        server.kill()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    """A real Apache Kafka."""
    with apache_kafka(tmp_path) as broker:
        yield broker


@pytest.fixture(scope="module")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Apache Kafka, shared by the tests of a module: each uses topics and groups of its own."""
    with apache_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


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
