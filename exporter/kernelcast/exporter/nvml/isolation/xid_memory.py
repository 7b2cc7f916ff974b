"""XID counts that continue when the counting process is replaced, or its GPU is lost."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernelcast.exporter.nvml.sampling.reading import LOST, GpuReading, NodeReading, XidTotal
from kernelcast.exporter.nvml.sampling.xid import FELL_OFF_THE_BUS

_Key = tuple[str, str, int]


class XidMemory:
    """Adds the counts of earlier processes to those of the present one, so that an XID's total never falls.

    A GPU with XIDs stays in the readings, without values, where a new process does not list it: after its last GPU
    fell off the bus, a node has a new process that finds none. If all listed GPUs answer, only one that fell off the
    bus stays: the others were taken from the driver in order. A released GPU does not stay. A new number is first given
    as 0: Prometheus sees an increase only over an earlier value.

    `IsolatedSampler` has one. `_before` are the totals when the present process started, `_now` those since, `_gpus`
    the last readings of GPUs.
    """

    def __init__(self) -> None:
        self._before: dict[_Key, XidTotal] = {}
        self._now: dict[_Key, XidTotal] = {}
        self._announced: set[_Key] = set()
        self._gpus: dict[str, GpuReading] = {}

    def restart(self) -> None:
        """Note that a new process counts from zero."""
        self._before, self._now = {**self._before, **self._now}, {}

    def found(self, gpus: Iterable[GpuReading]) -> None:
        """Note the GPUs that a new process lists: it may end before it reads one."""
        self._gpus = {gpu.uuid: gpu for gpu in gpus if not gpu.gi_id} | self._gpus

    def add(self, xids: Iterable[tuple[str, XidTotal]]) -> None:
        """Count XIDs by the present process's totals; it may have ended before it handed them over."""
        for uuid, one in xids:
            self._count((uuid, "", one.xid), one)

    def complete(self, reading: NodeReading) -> NodeReading:
        """Return the reading with the XIDs of all processes since the first one."""
        lost = self._lost(reading)
        gone = [_without_values(gpu) for uuid, gpu in self._gpus.items() if uuid in lost]
        gpus = tuple(self._complete(gpu) for gpu in (*reading.gpus, *gone))
        return replace(reading, gpus=gpus, missing=(*reading.missing, *(gpu.uuid for gpu in gone)))

    def _lost(self, reading: NodeReading) -> set[str]:
        """UUIDs of the GPUs with XIDs that are not listed and should be."""
        last: dict[str, XidTotal] = {}
        for (uuid, _, _), one in {**self._before, **self._now}.items():
            last[uuid] = max(last.get(uuid, one), one, key=lambda total: total.last_ns)
        gone = last.keys() - {gpu.uuid for gpu in reading.gpus} - set(reading.released)
        return {uuid for uuid in gone if not reading.all_answer or last[uuid].xid == FELL_OFF_THE_BUS}

    def _count(self, key: _Key, one: XidTotal) -> None:
        """Count an XID by a total of the present process, which a later total may have been ahead of."""
        before, now = self._before.get(key), self._now.get(key)
        total = one if before is None else replace(one, count=before.count + one.count)
        if now is None or now.count <= total.count:
            self._now[key] = total

    def _complete(self, gpu: GpuReading) -> GpuReading:
        for one in gpu.xids:
            self._count((gpu.uuid, gpu.gi_id, one.xid), one)
        known = {**self._before, **self._now}
        own = {key: total for key, total in known.items() if key[:2] == (gpu.uuid, gpu.gi_id)}
        if not gpu.gi_id:
            self._gpus[gpu.uuid] = gpu
        return replace(gpu, xids=tuple(self._given(own)))

    def _given(self, own: dict[_Key, XidTotal]) -> Iterator[XidTotal]:
        for key, total in sorted(own.items()):
            yield total if key in self._announced else replace(total, count=0)
            self._announced.add(key)


def _without_values(gpu: GpuReading) -> GpuReading:
    absent = dict.fromkeys((*gpu.values, *gpu.absent), LOST)
    return replace(gpu, values={}, absent=absent, processes=(), xids=(), peers={}, links=())
