"""Publishes samples to Kafka: kernels keyed by program, device metrics keyed by host."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kernelcast.columnar import EndedSeries, Resource, Sample, encode
from kernelcast.exporter.totals.aggregate import ProgramSamples
from kernelcast.runtime.kafka.clients import Sender
from kernelcast.wire.identity import Labels
from kernelcast.wire.resource import BOOT_ID
from kernelcast.wire.topics import DEVICE, KERNELS

SERVICE_NAME: Final = "kernelcast-exporter"
SCOPE: Final = "kernelcast.exporter"
HOSTNAME_LABEL: Final = "Hostname"

ProgramOnHost = tuple[str, str]
"""Host name and program."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of sent messages and points, which `replay` and `simulate` print at the end.

    Attributes:
        messages: Kafka messages.
        points: Data points in them.
        size_bytes: Their values' length.
        kernels: Kernel launches that were added up.
        copies: Copies that were added up.
    """

    messages: int = 0
    points: int = 0
    size_bytes: int = 0
    kernels: int = 0
    copies: int = 0


class SamplePublisher:
    """Encodes samples and passes them to a producer. Only the daemon's thread uses it.

    Args:
        producer: Sends the messages.
        hostname_label: A label that has the host in messages beside `Hostname`: dcgm-exporter has `hostname` after
            4.8.2, and dashboards of either kind must work.
        boot_id: This machine's boot id; empty if the samples are not of this machine, or it cannot be read. It
            distinguishes two machines with one host name, since `service.instance.id` is the host name.

    Attributes:
        messages, points, size_bytes: Sums of sent messages since the start.
    """

    def __init__(self, producer: Sender, *, hostname_label: str = HOSTNAME_LABEL, boot_id: str = "") -> None:
        self._producer, self._boot_id = producer, boot_id
        self._hostname_label = hostname_label
        self._ended: EndedSeries[ProgramOnHost] = EndedSeries()
        self.messages = 0
        self.points = 0
        self.size_bytes = 0

    def kernels(self, group: ProgramSamples) -> None:
        """Send the samples of one program on one host, and end the series that it no longer has."""
        samples = self._ended.complete((group.hostname, group.program), group.samples, group.time_ns)
        self._send(KERNELS.name, group.program, group.hostname, samples)

    def ended(self, written: Container[ProgramOnHost], time_ns: int) -> list[ProgramSamples]:
        """Return a group without samples for each program that is no longer written; `kernels` ends its series."""
        return [ProgramSamples(*group, (), time_ns) for group in self._ended.groups if group not in written]

    def devices(self, samples: Iterable[Sample]) -> None:
        """Send device samples; each host has its own key."""
        hosts: dict[str, list[Sample]] = {}
        # A GPU's samples share one labels object, so most hosts are found by the identity of the last object.
        last, own = None, []
        for sample in samples:
            if sample.attributes is not last:
                last, own = sample.attributes, hosts.setdefault(hostname_of(sample), [])
            own.append(sample)
        for hostname, own in hosts.items():
            self._send(DEVICE.name, hostname, hostname, own)

    def _send(self, topic: str, key: str, hostname: str, samples: Iterable[Sample]) -> None:
        if self._hostname_label != HOSTNAME_LABEL:
            samples = [named_host(sample, self._hostname_label) for sample in samples]
        for export in encode(resource_of(hostname, self._boot_id), samples, scope=SCOPE):
            self._producer.send(topic, key=key.encode(), value=export.body)
            self.messages += 1
            self.points += export.points
            self.size_bytes += len(export.body)


def resource_of(hostname: str, boot_id: str = "") -> Resource:
    """Return the resource that writes the series of a host."""
    boot = ((BOOT_ID, boot_id),) if boot_id else ()
    return Resource((("host.name", hostname), *boot, ("service.instance.id", hostname), ("service.name", SERVICE_NAME)))


def hostname_of(sample: Sample) -> str:
    """Return the host of a sample; empty without such a label."""
    return next((value for name, value in sample.attributes if name == HOSTNAME_LABEL), "")


def named_host(sample: Sample, label: str) -> Sample:
    """Return the sample with the host under this label as well; ours stays, which rules and dashboards read."""
    if label == HOSTNAME_LABEL:
        return sample
    return sample._replace(attributes=_named_host(sample.attributes, label))


@lru_cache(maxsize=4_096)  # a GPU's samples share one object of labels, and still do so afterwards
def _named_host(attributes: Labels, label: str) -> Labels:
    own = ((label, value) for name, value in attributes if name == HOSTNAME_LABEL)
    return tuple(sorted((*attributes, *own)))
