"""Brokers for the service tests: each test gets its own, empty one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.service.servers import KafkaServer

from kernelcast.runtime.embedded import EmbeddedBroker


@dataclass(frozen=True)
class Broker:
    """A broker to talk to."""

    kind: str
    bootstrap_servers: str


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    """A real Apache Kafka."""
    server = KafkaServer(tmp_path)
    try:
        server.run()
        yield Broker("kafka", server.bootstrap_servers)
    finally:
        server.kill()


@pytest.fixture(params=["embedded", "kafka"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Both brokers, one after the other: the embedded one of the demo, and a real Apache Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedBroker() as embedded:
        yield Broker("embedded", embedded.bootstrap_servers)
