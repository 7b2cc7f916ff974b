"""The points of a fleet: one message a node and tick, 30 metrics of 8 GPUs, 8 labels each; OTLP, or InfluxDB's lines.

A message is made from a template in which the node's number, the times and the values are replaced, so that filling a
topic takes little of the machine that the measured process will need.
"""

import struct
import time
from functools import cache
from typing import Final, Protocol

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import Kind, Metric

METRICS: Final = 30
GPUS: Final = 8
POINTS: Final = METRICS * GPUS
"""Points of one message."""
PARTITIONS: Final = 4
FAMILY: Final = "BENCH"
"""Prefix of the metrics' names."""
NODE: Final = "_____"
"""Placeholder in a template for the node's five digits."""
TIME: Final = 0x0123_4567_89AB_CDEF
"""Placeholder in a template for a time; its eight bytes occur nowhere else."""
VALUE: Final = struct.unpack("<d", bytes(range(0x41, 0x49)))[0]
"""Placeholder in a template for a value; its eight bytes occur nowhere else."""
FLUSH_SECONDS: Final = 300.0


def labels(gpu: int) -> dict[str, str]:
    """The labels of one GPU's metrics, in a template."""
    return {
        "Hostname": f"node{NODE}",
        "UUID": f"GPU-{NODE}{gpu:03d}-aaaa-bbbb-cccc-dddddddddddd",
        "device": f"nvidia{gpu}",
        "gpu": str(gpu),
        "modelName": "NVIDIA H200",
        "namespace": "training",
        "pci_bus_id": f"00000000:{gpu:02X}:00.0",
        "pod": f"trainer-{NODE}",
    }


class Encoding(Protocol):
    """The encoding of a node's points."""

    def message(self, node: int, time_ns: int, values: np.ndarray) -> bytes:
        """One node's message; values of shape (METRICS, GPUS)."""


class Otlp:
    """OTLP's ExportMetricsServiceRequest in protobuf, for kernelcast and the Collector."""

    def __init__(self) -> None:
        self._template = _otlp_template()
        self._times = _places(self._template, TIME.to_bytes(8, "little"))
        self._values = _places(self._template, struct.pack("<d", VALUE))

    def message(self, node: int, time_ns: int, values: np.ndarray) -> bytes:
        """One node's message; values of shape (METRICS, GPUS)."""
        body = np.frombuffer(bytearray(self._template), np.uint8)
        body[self._times] = np.frombuffer(time_ns.to_bytes(8, "little"), np.uint8)
        body[self._values] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
        return body.tobytes().replace(NODE.encode(), b"%05d" % node)


def _places(template: bytes, marker: bytes) -> np.ndarray:
    """Indices of every byte of every occurrence, shape (occurrences, 8)."""
    found, at = [], template.find(marker)
    while at >= 0:
        found.append(at)
        at = template.find(marker, at + 8)
    assert len(found) == POINTS, f"{len(found)} markers for {POINTS} points"
    return np.array(found)[:, None] + np.arange(8)


@cache
def _otlp_template() -> bytes:
    rows = [Metric(f"{FAMILY}_{i}", Kind.GAUGE, "A metric.", f"{FAMILY}_{i}") for i in range(METRICS)]
    samples = [Sample(row, tuple(labels(gpu).items()), TIME, VALUE) for row in rows for gpu in range(GPUS)]
    resource = Resource((("service.instance.id", f"node{NODE}"), ("service.name", "bench")))
    [export] = encode(resource, samples, scope="")
    return export.body


class Influx:
    """InfluxDB's line protocol, one line a GPU with a field a metric: the form that Telegraf is made for."""

    def message(self, node: int, time_ns: int, values: np.ndarray) -> bytes:
        """One node's message; values of shape (METRICS, GPUS)."""
        lines = []
        for gpu, own in enumerate(values.T.tolist()):
            tags = {"job": "bench", "instance": f"node{NODE}", **labels(gpu)}
            head = ",".join([FAMILY, *(f"{key}={value.replace(' ', chr(92) + ' ')}" for key, value in tags.items())])
            fields = ",".join(f"{i}={value!r}" for i, value in enumerate(own))
            lines.append(f"{head} {fields} {time_ns}\n")
        return "".join(lines).replace(NODE, f"{node:05d}").encode()


class Topic:
    """A topic with the points of a number of nodes.

    Attributes:
        name: The topic's name.
        nodes: How many send.
        ticks: How often each has sent.
    """

    def __init__(self, bootstrap_servers: str, name: str, *, nodes: int, encoding: Encoding) -> None:
        """Make it; Kafka stamps its messages."""
        self.name, self.nodes, self.ticks = name, nodes, 0
        self._encoding = encoding
        self._next = 0
        self._random = np.random.default_rng(0)
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        config = {"message.timestamp.type": "LogAppendTime"}
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(30)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": "lz4",
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )

    @property
    def series(self) -> int:
        """Number of series of the nodes."""
        return self.nodes * POINTS

    def delete(self) -> None:
        """Remove it with its data."""
        self._admin.delete_topics([self.name])[self.name].result(30)

    def send(self, ticks: int, *, nodes: int | None = None) -> int:
        """Sends more messages of the nodes, or of the first of them; returns the number of points."""
        sending = self.nodes if nodes is None else nodes
        for _ in range(ticks):
            self.ticks += 1
            for node in range(sending):
                self._produce(f"node{node:05d}", self._message(node))
        left = self._producer.flush(FLUSH_SECONDS)
        assert left == 0, f"Kafka has not acknowledged {left} messages in {FLUSH_SECONDS} s"
        return ticks * sending * POINTS

    def send_next(self, messages: int) -> int:
        """Let the next nodes in turn send one message each, and do not wait for Kafka; how many points that is."""
        for _ in range(messages):
            self._produce(f"node{self._next:05d}", self._message(self._next))
            self._next += 1
            if self._next == self.nodes:
                self._next = 0
                self.ticks += 1
        return messages * POINTS

    def _message(self, node: int) -> bytes:
        """The first metric of the first GPU holds the tick, so that a page shows the position of its process."""
        values = self._random.random((METRICS, GPUS)) * 100
        values[0, 0] = self.ticks
        return self._encoding.message(node, time.time_ns(), values)

    def _produce(self, key: str, body: bytes) -> None:
        while True:
            try:
                self._producer.produce(self.name, body, key=key)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return
