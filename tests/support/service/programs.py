"""A measured program as a process of its own."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.service import program
from tests.service.conftest import Broker

from kernelcast.runtime.kafka.admin import apply_topics
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.topics import TOPICS

LAUNCHES = "cuda_kernel_launches_total"
PARTITIONS: Final = 3
"""Of a topic; with the contract's 12, Kafka computes for a second to create all, and for half of one to delete them."""

SCRIPT = str(Path(program.__file__))


def topics(broker: Broker, *, partitions: int = PARTITIONS) -> None:
    """Create the contract's topics in a real Kafka; the embedded one has its own.

    Args:
        broker: The broker.
        partitions: Maximum number of a topic's partitions.
    """
    if broker.kind == "kafka":
        fewer = [replace(topic, partitions=min(topic.partitions, partitions)) for topic in TOPICS]
        apply_topics(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), fewer)
