"""XID counts that continue when the counting process is replaced."""

from dataclasses import replace

from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, XidTotal

_Key = tuple[str, str, int]


class XidMemory:
    """Adds the counts of earlier processes to those of the present one, so that an XID's total never falls.

    `IsolatedSampler` has one. `_before` are the totals when the present process started, `_now` those since.
    """

    def __init__(self) -> None:
        self._before: dict[_Key, XidTotal] = {}
        self._now: dict[_Key, XidTotal] = {}

    def restart(self) -> None:
        """Note that a new process counts from zero."""
        self._before, self._now = {**self._before, **self._now}, {}

    def complete(self, reading: NodeReading) -> NodeReading:
        """Return the reading with the XIDs of all processes since the first one."""
        return replace(reading, gpus=tuple(self._complete(gpu) for gpu in reading.gpus))

    def _complete(self, gpu: GpuReading) -> GpuReading:
        for one in gpu.xids:
            key = (gpu.uuid, gpu.gi_id, one.xid)
            before = self._before.get(key)
            self._now[key] = one if before is None else replace(one, count=before.count + one.count)
        known = {**self._before, **self._now}
        own = [total for key, total in known.items() if key[:2] == (gpu.uuid, gpu.gi_id)]
        return replace(gpu, xids=tuple(sorted(own, key=lambda total: total.xid)))
