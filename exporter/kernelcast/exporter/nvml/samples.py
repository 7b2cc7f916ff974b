"""A reading as series: the catalogue's rows with dcgm-exporter's labels."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.fields import ROWS
from kernelcast.exporter.nvml.reading import GpuReading, NodeReading
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.identity import LIVE, Device, Labels

DRIVER_VERSION: Final = "DCGM_FI_DRIVER_VERSION"
"""The label that dcgm-exporter's default table gives every row."""

StartOf = Callable[[GpuReading, Metric, float, int], int]


class Users(Protocol):
    """Who uses a GPU; `exporter.attribution` knows."""

    def labels_for(self, gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        """Label sets of a GPU's series; each series stands once for each set, so there is at least one."""
        ...

    def process_labels(self, gpu: GpuReading, pid: int) -> Mapping[str, str]:
        """Labels of a process on a GPU."""
        ...


class Nobody:
    """Where nobody knows who uses a GPU."""

    def labels_for(self, _gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        """One empty set."""
        return ({},)

    def process_labels(self, _gpu: GpuReading, _pid: int) -> Mapping[str, str]:
        """None."""
        return {}


NOBODY: Final = Nobody()


class CounterStarts:
    """Since when each counter runs: since boot, or since it was seen to fall, as it does when the driver reloads.

    Args:
        boot_ns: Since when the driver's counters run, Unix nanoseconds.
    """

    def __init__(self, boot_ns: int) -> None:
        self._boot_ns = boot_ns
        # Kept while a GPU is gone: what it counted is often less when it comes back.
        self._counters: dict[tuple[str, str, Metric], tuple[float, int]] = {}

    def __call__(self, gpu: GpuReading, metric: Metric, value: float, now_ns: int) -> int:
        """The start of a counter that stands at `value`, Unix nanoseconds."""
        key = gpu.uuid, gpu.gi_id, metric
        before, start_ns = self._counters.get(key, (0, min(self._boot_ns, now_ns)))
        if value < before:
            start_ns = now_ns
        self._counters[key] = (value, start_ns)
        return start_ns


def to_samples(
    node: NodeReading, *, hostname: str, start_of: StartOf, users: Users = NOBODY, source: str = LIVE
) -> list[Sample]:
    """Every series of a reading.

    Args:
        node: The reading.
        hostname: The node's name.
        start_of: Since when a counter runs.
        users: Who uses a GPU: pod, namespace, job.
        source: One of `wire.identity.SOURCES`.
    """
    samples: list[Sample] = []
    version = ((DRIVER_VERSION, node.driver_version),) if node.driver_version else ()
    for gpu in node.gpus:
        own = (*device_of(gpu, hostname).device_labels(source), *version)
        for used_by in users.labels_for(gpu):
            samples.extend(_values(gpu, tuple(sorted((*own, *used_by.items()))), node.time_ns, start_of))
    return samples


def device_of(gpu: GpuReading, hostname: str) -> Device:
    """Its labels."""
    return Device(
        hostname,
        gpu.uuid,
        gpu.index,
        gpu.pci_bus_id,
        gpu.device,
        gpu.model_name,
        gpu.gi_id,
        gpu.gi_profile,
        gpu.mig_uuids,
    )


def _values(gpu: GpuReading, labels: Labels, time_ns: int, start_of: StartOf) -> Iterator[Sample]:
    for name, value in gpu.values.items():
        metric = ROWS[name]
        start_ns = start_of(gpu, metric, value, time_ns) if metric.kind is Kind.COUNTER else 0
        yield Sample(metric, labels, time_ns, value, start_ns)
