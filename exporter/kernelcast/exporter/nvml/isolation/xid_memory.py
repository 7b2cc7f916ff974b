"""XID counts that continue when the counting process is replaced, or its GPU is lost."""

from collections.abc import Iterator
from dataclasses import replace

from kernelcast.exporter.nvml.sampling.reading import LOST, GpuReading, NodeReading, XidTotal

_Key = tuple[str, str, int]


class XidMemory:
    """Adds the counts of earlier processes to those of the present one, so that an XID's total never falls.

    A GPU with XIDs stays in the readings, without values, where a new process does not list it: after its last GPU
    fell off the bus, a node has a new process that finds none. A new number is first given as 0: Prometheus sees an
    increase only over an earlier value.

    `IsolatedSampler` has one. `_before` are the totals when the present process started, `_now` those since, `_gpus`
    the last readings of GPUs with XIDs.
    """

    def __init__(self) -> None:
        self._before: dict[_Key, XidTotal] = {}
        self._now: dict[_Key, XidTotal] = {}
        self._announced: set[_Key] = set()
        self._gpus: dict[str, GpuReading] = {}

    def restart(self) -> None:
        """Note that a new process counts from zero."""
        self._before, self._now = {**self._before, **self._now}, {}

    def complete(self, reading: NodeReading) -> NodeReading:
        """Return the reading with the XIDs of all processes since the first one."""
        listed = {gpu.uuid for gpu in reading.gpus}
        lost = [_without_values(gpu) for uuid, gpu in self._gpus.items() if uuid not in listed]
        gpus = tuple(self._complete(gpu) for gpu in (*reading.gpus, *lost))
        return replace(reading, gpus=gpus, missing=(*reading.missing, *(gpu.uuid for gpu in lost)))

    def _complete(self, gpu: GpuReading) -> GpuReading:
        for one in gpu.xids:
            key = (gpu.uuid, gpu.gi_id, one.xid)
            before = self._before.get(key)
            self._now[key] = one if before is None else replace(one, count=before.count + one.count)
        known = {**self._before, **self._now}
        own = {key: total for key, total in known.items() if key[:2] == (gpu.uuid, gpu.gi_id)}
        if own:
            self._gpus[gpu.uuid] = gpu
        return replace(gpu, xids=tuple(self._given(own)))

    def _given(self, own: dict[_Key, XidTotal]) -> Iterator[XidTotal]:
        for key, total in sorted(own.items()):
            yield total if key in self._announced else replace(total, count=0)
            self._announced.add(key)


def _without_values(gpu: GpuReading) -> GpuReading:
    absent = dict.fromkeys((*gpu.values, *gpu.absent), LOST)
    return replace(gpu, values={}, absent=absent, processes=(), xids=(), peers={}, links=())
