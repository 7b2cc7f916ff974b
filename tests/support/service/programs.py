"""A measured program as a process of its own."""

from pathlib import Path

from tests.service import program
from tests.service.conftest import Broker

from kernelcast.runtime.kafka.admin import apply_topics
from kernelcast.runtime.settings.service import KafkaSettings

LAUNCHES = "cuda_kernel_launches_total"


SCRIPT = str(Path(program.__file__))


def topics(broker: Broker) -> None:
    if broker.kind == "kafka":
        apply_topics(KafkaSettings(bootstrap_servers=broker.bootstrap_servers))
