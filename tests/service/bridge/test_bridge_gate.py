"""The bridge exposes a partition of a real Kafka only after it has caught up."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.stack import Stack
from tests.service.topics import create_topics

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.topics import DEVICE, FORECASTS, KERNELS

pytestmark = pytest.mark.service
RESOURCE = Resource((("service.instance.id", "node-1"), ("service.name", "kernelcast-exporter")))


def make(kafka: Broker, *topics: str) -> None:
    create_topics(kafka.bootstrap_servers, [NewTopic(topic, 2, 1) for topic in topics])


def launches(name: str, number: int) -> bytes:
    sample = Sample(kernel.LAUNCHES, (("kernel", name),), time.time_ns(), number, 1)
    return next(iter(encode(RESOURCE, [sample], scope="test"))).body


def test_the_marker_of_a_transaction_keeps_nothing_hidden_and_a_topic_made_later_is_read(
    kafka: Broker, tmp_path: Path
) -> None:
    make(kafka, DEVICE.name, KERNELS.name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(KERNELS.name, launches("early", 5), key=b"program")
    producer.commit_transaction()  # its marker takes the last offset
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        stack.service("bridge")
        assert stack.total("cuda_kernel_launches_total", kernel="early") == 5
        make(kafka, FORECASTS.name)
        producer.begin_transaction()
        producer.produce(FORECASTS.name, launches("late", 7), key=b"program")
        producer.commit_transaction()
        wait_for("the topic made later", lambda: stack.exposed("cuda_kernel_launches_total", kernel="late"))
