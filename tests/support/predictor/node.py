"""A node that writes samples to Kafka for the predictor."""

import time

import numpy as np

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels
from kernelcast.wire.topics import DEVICE, KERNELS

SECOND_NS = 1_000_000_000


GPU = {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0", "source": "simulated"}


EXPORTER = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))


class Node:
    """Writes a node's seconds to Kafka as fast as asked: a drifting GPU, and a program with a bad block size."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.producer = Producer(kafka, client_id="node")
        self.start_ns = time.time_ns() - 600 * SECOND_NS
        self.rng = np.random.default_rng(5)
        self.totals = DurationTotals()

    def second(self, number: int) -> None:
        now_ns = self.start_ns + number * SECOND_NS
        gauges = {
            device.GPU_TEMP: float(round(66.0 + 0.15 * number + self.rng.normal(0, 0.5))),
            device.SLOWDOWN_TEMP: 90.0,
            device.POWER_USAGE: 280.0 + float(self.rng.normal(0, 3)),
            device.GPU_UTIL: 97.0,
        }
        devices = [Sample(metric, labels(**GPU), now_ns, value) for metric, value in gauges.items()]
        self.send(DEVICE.name, b"n1", devices)
        self.totals.observe(round(1e6 * (1 + self.rng.normal(0, 0.01))), 100)
        own = {**GPU, "program": "train", "kernel": "saxpy#0badcafe", "kernel_class": "compute"}
        tunable = {
            **GPU,
            "program": "train",
            "tunable": "block",
            "value": "33",
            "allowed": "33,64,128,256",
            "kind": "block_size",
            "scope": "local",
            "granularity": "step",
            "kernel": "saxpy",
            "device_model": "A100",
        }
        self.send(
            KERNELS.name,
            b"train",
            [
                Sample(kernel.DURATION, labels(**own), now_ns, self.totals.copy(), self.start_ns),
                Sample(kernel.LAUNCHES, labels(**own), now_ns, self.totals.count, self.start_ns),
                Sample(kernel.TUNABLE_INFO, labels(**tunable), now_ns, 1),
            ],
        )

    def send(self, topic: str, key: bytes, samples: list[Sample]) -> None:
        for export in encode(EXPORTER, samples, scope="test"):
            self.producer.send(topic, key=key, value=export.body)

    def seconds(self, numbers: range) -> None:
        for number in numbers:
            self.second(number)
        assert self.producer.flush(10) == 0


def read_all(kafka: KafkaSettings, topic: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(kafka, group_id="look")
    partitions = consumer.partitions(topic)
    left = 0
    for partition in partitions:
        low, high = consumer.watermarks(partition)
        partition.offset = low
        left += high - low
    consumer.assign(partitions)
    found = []
    while left > 0:
        messages, _ = consumer.consume(500, 1.0)
        left -= len(messages)
        found += [(message.key() or b"", message.value() or b"") for message in messages]
    consumer.close()
    return found
