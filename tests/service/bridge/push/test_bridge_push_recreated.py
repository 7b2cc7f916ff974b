"""Pushing from a topic of a real Kafka that is deleted and made again."""

import time

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from tests.service.conftest import Broker
from tests.support.push.push_site import MS, RESOURCE
from tests.support.push.receivers import answer_with, server
from tests.support.service.partitioned import make
from tests.support.waiting import eventually

from kernelcast.bridge.clock import SystemClock
from kernelcast.bridge.push.instruments import DestinationMetrics, PushMetrics
from kernelcast.bridge.push.member import MemberTask, PushMember
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.columnar import Sample, encode
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import kernel

pytestmark = pytest.mark.service
TOPIC = "recreated"


def write(servers: str, messages: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for time_ms in range(1, messages + 1):
        for export in encode(RESOURCE, [Sample(kernel.LAUNCHES, (("kernel", "k"),), time_ms * MS, 1, 1)], scope=""):
            producer.produce(TOPIC, export.body, key=b"k", partition=0)
    assert producer.flush(10) == 0


def test_offsets_of_a_topic_that_is_made_again_are_committed(shared_kafka: Broker) -> None:
    servers = shared_kafka.bootstrap_servers
    kafka, registry = KafkaSettings(bootstrap_servers=servers), CollectorRegistry()
    make(shared_kafka, TOPIC, partitions=1)
    write(servers, 50)
    with server(answer_with(200)) as url:
        given = {"name": "d", "kind": "otlp", "url": url, "topics": [TOPIC], "start": "beginning", "linger_seconds": 0}
        settings = PushSettings.model_validate(given)
        metrics = DestinationMetrics(PushMetrics(registry), "d")
        member = PushMember(MemberTask(settings, kafka, ReaderSettings(), metrics, SystemClock()), 0)

        def pushed() -> float | None:
            return registry.get_sample_value("kernelcast_bridge_push_messages_total", {"destination": "d"})

        member.start()
        try:
            eventually(lambda: pushed() == 50)
            admin = AdminClient({"bootstrap.servers": servers})
            admin.delete_topics([TOPIC])[TOPIC].result()
            time.sleep(1)  # a broker says that it is done before it has forgotten the name
            make(shared_kafka, TOPIC, partitions=1)
            write(servers, 5)
            eventually(lambda: pushed() == 55)
        finally:
            member.stop()
            member.join(20)
    consumer = Consumer(kafka, group_id=settings.group)
    try:
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)])
    finally:
        consumer.close()
    assert committed.offset == 5
