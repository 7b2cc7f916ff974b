"""Converts a reading of the GPUs to samples: the catalogue's rows with dcgm-exporter's labels.

`NvmlSource.poll` calls `to_samples` once an interval on the daemon's thread, as the simulated node does.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Protocol

from kernelcast.columnar import Sample
from kernelcast.exporter.counter_starts import KeyedStarts
from kernelcast.exporter.nvml.accelerators import accelerator_samples
from kernelcast.exporter.nvml.counters_file import CounterTable
from kernelcast.exporter.nvml.sampling.fields import CLOCK_EVENTS, ROWS, SOURCE_ROWS
from kernelcast.exporter.nvml.sampling.peers import STATUS_NAMES, UNKNOWN
from kernelcast.exporter.nvml.sampling.processes import OTHER, OTHER_PID
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, ProcessUse
from kernelcast.exporter.nvml.xid_names import xid_name
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.catalogue.devices import dcgm_exporter, device, gpu, health, nvlink
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import LIVE, Device, Labels, labels

RATIO_PER_PERCENT: Final = 0.01
HEALTH_ROWS: Final = MappingProxyType({row.otlp_name: row for row in health.ROWS})
ALL_ROWS: Final = CounterTable(ROWS)
MAX_JOINED: Final = 4_096
"""Label sets of one GPU that are kept; its processes come and go."""
StartOf = Callable[[GpuReading, str, float, int], int]
"""Start of a counter, given the GPU, the counter's name and labels, its value and the time."""


class Users(Protocol):
    """Users of GPUs; `exporter.attribution` implements it."""

    def labels_for(self, gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        """Return the label sets of a GPU, at least one: each of its series is written once with each set."""
        ...

    def owners_of(self, gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        """Return the label sets of a GPU's owners that stand on series of their own."""
        ...

    def process_labels(self, gpu: GpuReading, pid: int) -> Mapping[str, str]:
        """Labels of a process on a GPU."""
        ...


class NoAttribution:
    """Attribution that knows no users."""

    def labels_for(self, _gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        """One empty set."""
        return ({},)

    def owners_of(self, _gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        """None."""
        return ()

    def process_labels(self, _gpu: GpuReading, _pid: int) -> Mapping[str, str]:
        """None."""
        return {}


NO_ATTRIBUTION: Final = NoAttribution()


class CounterStarts:
    """Start times of counters: boot, or the time at which the counter was seen to fall, as when the driver reloads.

    Args:
        boot_ns: Since when the driver's counters run, Unix nanoseconds.
    """

    def __init__(self, boot_ns: int) -> None:
        # A counter stays known while its GPU is gone: its value is often lower when the GPU comes back.
        self._starts = KeyedStarts(boot_ns)

    def __call__(self, one: GpuReading, counter: str, value: float, now_ns: int) -> int:
        """The start of a counter that is at `value` now, Unix nanoseconds."""
        return self._starts((one.uuid, one.gi_id, counter), value, now_ns)


def to_samples(
    node: NodeReading,
    *,
    hostname: str,
    start_of: StartOf,
    users: Users = NO_ATTRIBUTION,
    source: str = LIVE,
    table: CounterTable = ALL_ROWS,
) -> list[Sample]:
    """Return every sample of a reading.

    Args:
        node: The reading.
        hostname: The node's name.
        start_of: Start times of counters.
        users: Users of GPUs: pod, namespace, job.
        source: One of `wire.identity.SOURCES`.
        table: The counters table; its names and help may differ from the catalogue's.
    """
    samples: list[Sample] = []
    version = {device.DRIVER_VERSION_LABEL: node.driver_version} if node.driver_version else {}
    for one in node.gpus:
        more = ((table.labels.get(name, name), value) for name, value in (*version.items(), *one.labels.items()))
        own = (*device_of(one, hostname).device_labels(source), *more)
        for used_by in users.labels_for(one):
            samples.extend(_GpuSamples(one, (*own, *used_by.items()), node.time_ns, start_of).of_the_gpu(table))
        joined = labels(**device_of(one, hostname).join_labels(source))
        owners = (tuple(sorted((*joined, *owner.items()))) for owner in users.owners_of(one))
        samples.extend(Sample(gpu.OWNER, owner, node.time_ns, 1) for owner in owners)
        plain = _GpuSamples(one, own, node.time_ns, start_of)
        samples.extend(plain.absent(table))
        # By pid: in an order that values change, no interval would have the series of the last one.
        for use in sorted(one.processes, key=attrgetter("pid")):
            samples.extend(plain.of_a_process(use, users.process_labels(one, use.pid)))
    samples.extend(accelerator_samples(node, hostname=hostname, used_by=users.labels_for, source=source))
    return samples


def device_of(one: GpuReading, hostname: str) -> Device:
    """Return the identity of a GPU or MIG instance, which has its labels."""
    return Device(
        hostname,
        one.uuid,
        one.index,
        one.pci_bus_id,
        one.device,
        one.model_name,
        one.gi_id,
        one.gi_profile,
        one.mig_uuids,
    )


@lru_cache(maxsize=256)
def _known(labels: Labels) -> tuple[Labels, dict[Labels, Labels]]:
    """The labels as one object for all intervals, which need not be hashed to be compared, and those with more."""
    return labels, {}


class _GpuSamples:
    """The series of one GPU or instance at one moment."""

    def __init__(self, one: GpuReading, labels: Labels, time_ns: int, start_of: StartOf) -> None:
        self._gpu = one
        self._labels, self._joined = _known(tuple(sorted(labels)))
        self._time_ns = time_ns
        self._start_of = start_of

    def of_the_gpu(self, table: CounterTable) -> Iterator[Sample]:
        """The GPU's own samples."""
        rows, hidden = table.rows, table.hidden
        for name, value in self._gpu.values.items():
            if name in hidden:
                continue
            row = rows.get(name, ROWS[name])
            if name == device.XID_ERRORS.otlp_name:
                yield self._sample(row, value, err_code=str(value), err_msg=xid_name(int(value)))
            else:
                yield self._sample(row, value)
        if device.CLOCK_EVENT_REASONS.otlp_name not in hidden:
            yield from self._clock_events()
        yield from self._xids()
        yield from self._computed(rows)
        yield from self._links()
        for one in self._gpu.health:
            yield self._sample(HEALTH_ROWS[one.row], one.value, **one.labels)

    def absent(self, table: CounterTable) -> Iterator[Sample]:
        """Samples of absent rows, with their reasons."""
        rows, hidden = table.rows, table.hidden
        computed = {source: name for name, source in SOURCE_ROWS.items() if name in rows}
        for name, reason in self._gpu.absent.items():
            missing = [one for one in (name, computed.get(name)) if one and one not in hidden]
            for one in missing:
                yield self._sample(
                    gpu.FIELD_ABSENT,
                    1,
                    field=(rows.get(one) or ROWS.get(one) or HEALTH_ROWS[one]).prometheus_name,
                    reason=reason,
                )

    def of_a_process(self, use: ProcessUse, known: Mapping[str, str]) -> Iterator[Sample]:
        """Samples of a process's use; `known` are the process's own labels."""
        pid = OTHER if use.pid == OTHER_PID else str(use.pid)
        more = {**known, "pid": pid, "process_name": use.name, "type": use.type}
        labels = self._with(more)
        for metric, value in _measured(use):
            yield Sample(metric, labels, self._time_ns, value)

    def _sample(self, metric: Metric, value: float, **more: str) -> Sample:
        labels = self._with(more) if more else self._labels
        start_ns = 0
        if metric.kind is Kind.COUNTER:
            counter = " ".join((metric.otlp_name, *more.values()))
            start_ns = self._start_of(self._gpu, counter, value, self._time_ns)
        return Sample(metric, labels, self._time_ns, value, start_ns)

    def _with(self, more: Mapping[str, str]) -> Labels:
        key = tuple(more.items())
        joined = self._joined.get(key)
        if joined is None:
            if len(self._joined) >= MAX_JOINED:
                self._joined.clear()
            joined = self._joined[key] = tuple(sorted((*self._labels, *(pair for pair in key if pair[1]))))
        return joined

    def _computed(self, rows: Mapping[str, Metric]) -> Iterator[Sample]:
        """The rows that dcgm-exporter computes itself."""
        for event in self._gpu.events:
            if event.row in rows:
                yield self._sample(rows[event.row], event.count, **event.labels)
        row = rows.get(dcgm_exporter.P2P_STATUS.otlp_name)
        if row is not None:
            for index, status in self._gpu.peers.items():
                yield self._sample(row, status, peer_gpu=index, link_status=STATUS_NAMES.get(status, UNKNOWN))

    def _links(self) -> Iterator[Sample]:
        for one in self._gpu.links:
            link = str(one.link)
            if one.up is not None:
                yield self._sample(nvlink.UP, int(one.up), link=link)
            for direction, size_bytes in one.traffic_bytes.items():
                yield self._sample(nvlink.IO, size_bytes, link=link, direction=direction)
            for error, count in one.errors.items():
                yield self._sample(nvlink.ERRORS, count, link=link, error=error)

    def _clock_events(self) -> Iterator[Sample]:
        mask = self._gpu.values.get(device.CLOCK_EVENT_REASONS.otlp_name)
        if mask is not None:
            for bit, reason in enumerate(CLOCK_EVENTS):
                yield self._sample(gpu.CLOCK_EVENT, int(mask) >> bit & 1, reason=reason)

    def _xids(self) -> Iterator[Sample]:
        for total in self._gpu.xids:
            more = {"xid": str(total.xid), "err_msg": xid_name(total.xid)}
            yield self._sample(gpu.XID_ERRORS, total.count, **more)
            yield self._sample(gpu.XID_LAST, total.last_ns / NANOSECONDS_PER_SECOND, **more)


def _measured(use: ProcessUse) -> Iterator[tuple[Metric, float]]:
    """The known values of a process's use."""
    if use.memory_bytes is not None:
        yield gpu.PROCESS_MEMORY, use.memory_bytes
    shares = (
        (gpu.PROCESS_SM, use.sm_percent),
        (gpu.PROCESS_MEMORY_UTILIZATION, use.memory_percent),
        (gpu.PROCESS_ENCODER, use.enc_percent),
        (gpu.PROCESS_DECODER, use.dec_percent),
    )
    for metric, percent in shares:
        if percent is not None:
            yield metric, percent * RATIO_PER_PERCENT
