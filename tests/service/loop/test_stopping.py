"""Services stop within their deadline on SIGTERM, whatever has become of Kafka."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.service.servers import KafkaServer, ServerProcess
from tests.service.stack import SERVICES, Stack

from kernelcast.runtime.kafka.admin import apply_topics
from kernelcast.runtime.settings.service import KafkaSettings

pytestmark = pytest.mark.service

STOP_SECONDS = 25
"""Below Kubernetes' 30 s, after which a container is killed."""


def stop_all(services: list[ServerProcess]) -> dict[str, tuple[int, float]]:
    """Send SIGTERM to all at once; exit code and seconds by service."""
    began = time.monotonic()
    for service in services:
        assert service.process is not None
        service.process.send_signal(signal.SIGTERM)
    ended = {}
    for service in services:
        assert service.process is not None
        ended[service.name] = (service.process.wait(90), time.monotonic() - began)
    return ended


def test_services_stop_in_time_while_kafka_answers_nothing(tmp_path: Path) -> None:
    kafka = KafkaServer(tmp_path)
    try:
        kafka.run()
        apply_topics(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
        with Stack(tmp_path, kafka.bootstrap_servers) as stack:
            services = [stack.service(name) for name in SERVICES]
            assert kafka.process is not None
            os.killpg(kafka.process.pid, signal.SIGSTOP)
            time.sleep(3)  # long enough for requests to be on their way to the frozen broker
            ended = stop_all(services)
        assert {name: code for name, (code, _) in ended.items()} == dict.fromkeys(SERVICES, 0)
        assert {name: seconds for name, (_, seconds) in ended.items() if seconds > STOP_SECONDS} == {}, ended
    finally:
        kafka.kill()
