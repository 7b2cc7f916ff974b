"""Turns the state of a simulated fleet into the answers of its nodes' drivers, and those into device samples.

`SimulatedFleet.poll` calls `samples` once, after the last step of the poll.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.sampling import reading
from kernelcast.exporter.nvml.sampling.fields import ROWS, SOURCE_ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading, ProcessUse
from kernelcast.exporter.simulate.fleet_settings import BoolArray, SimulationSettings
from kernelcast.exporter.simulate.nodes import readings
from kernelcast.exporter.simulate.nodes.health import DeviceHealth, XidTotals
from kernelcast.exporter.simulate.nodes.kernel_log import SimulatedLog
from kernelcast.exporter.simulate.nodes.node import SimulatedNode, described
from kernelcast.exporter.simulate.nodes.owners import SimulatedOwners
from kernelcast.exporter.simulate.physics import Gpus
from kernelcast.exporter.simulate.process import RankPlacement, SimulatedProcess
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

_COMPUTE: Final = "compute"
_PROCESS_NAME: Final = "python3"
_BYTES_PER_MEBIBYTE: Final = 2**20
_ABSENT: Final = {row.otlp_name: reason for row, reason in readings.ABSENT.items()}
_LOST: Final = dict.fromkeys(sorted(ROWS.keys() - SOURCE_ROWS.keys()), reading.LOST)
_NVLINK_OK: Final = 0


class Monitor:
    """The nodes of a fleet, with the state that describes their GPUs.

    Args:
        settings: Size of the fleet.
        places: Node and GPU of each rank.
        start_ns: When counters begin, Unix nanoseconds.
    """

    def __init__(self, settings: SimulationSettings, places: Sequence[RankPlacement], start_ns: int) -> None:
        self._settings = settings
        self._places = places
        self._described = [described(place.device) for place in places]
        self._logs = [SimulatedLog() for _ in range(settings.nodes)]
        self._nodes = [self._node(number, start_ns) for number in range(settings.nodes)]
        self._xids = XidTotals()
        self._logged = 0

    def samples(
        self, gpus: Gpus, health: DeviceHealth, processes: Sequence[SimulatedProcess], time_ns: int
    ) -> Iterator[Sample]:
        """Every device sample of the fleet at a moment, Unix nanoseconds."""
        self._log(health)
        values = readings.columns(gpus, health)
        own = [self._reading(number, values, gpus, health, processes[number]) for number in range(len(self._places))]
        for number, node in enumerate(self._nodes):
            where = self._on_node(number)
            uuids = [place.device.uuid for place in self._places[where]]
            node.state.gpus = tuple(own[where])
            node.state.missing = _chosen(uuids, health.lost[where])
            node.state.silent = frozenset(_chosen(uuids, gpus.silent[where]))
            node.state.hung = bool(health.hung[where].any())
            node.state.processes = tuple(one.reporting for one in processes[where])
            ahead_ns = round(float(health.ahead_seconds[where].max()) * NANOSECONDS_PER_SECOND)
            yield from node.poll(time_ns + ahead_ns)

    def _node(self, number: int, start_ns: int) -> SimulatedNode:
        where = self._on_node(number)
        places = self._places[where]
        pods = {place.device.uuid: f"{place.program}-{place.rank or 0}" for place in places}
        return SimulatedNode(
            places[0].device.hostname, self._described[where], SimulatedOwners(pods), self._logs[number], start_ns
        )

    def _on_node(self, number: int) -> slice:
        """The GPUs of a node."""
        return slice(number * self._settings.gpus, (number + 1) * self._settings.gpus)

    def _log(self, health: DeviceHealth) -> None:
        for one in health.xids[self._logged :]:
            log = self._logs[one.gpu // self._settings.gpus]
            log.write(self._places[one.gpu].device.pci_bus_id, one.xid, one.time_ns)
        self._logged = len(health.xids)

    def _reading(
        self, number: int, values: readings.Columns, gpus: Gpus, health: DeviceHealth, process: SimulatedProcess
    ) -> GpuReading:
        known = self._described[number]
        xids = self._xids.of(number, health.xids_of.get(number, []))
        if health.lost[number]:
            return replace(known, absent=_LOST, xids=xids)
        own = {name: _plain(column[number]) for name, column in values.items()}
        own[device.XID_ERRORS.otlp_name] = health.last_xid(number)
        node = self._places[self._on_node(number // self._settings.gpus)]
        peers = {place.device.gpu: _NVLINK_OK for place in node if place.device.gpu != known.index}
        return replace(
            known,
            values=own,
            absent=_ABSENT,
            processes=(_use(number, gpus, process),),
            xids=xids,
            peers=peers,
            links=readings.links(health, number),
        )


def _use(number: int, gpus: Gpus, process: SimulatedProcess) -> ProcessUse:
    busy = gpus.busy_ratio[number]
    return ProcessUse(
        pid=process.process.pid,
        type=_COMPUTE,
        memory_bytes=round(float(gpus.used_mib[number])) * _BYTES_PER_MEBIBYTE,
        sm_percent=round(100 * float(busy)),
        memory_percent=round(100 * float(gpus.copy_ratio[number])),
        enc_percent=0,
        dec_percent=0,
        name=_PROCESS_NAME,
    )


def _plain(value: float) -> int | float:
    """A whole number as an integer, as NVML gives it."""
    return int(value) if value.is_integer() else value


def _chosen(uuids: Sequence[str], mask: BoolArray) -> tuple[str, ...]:
    return tuple(uuid for uuid, is_chosen in zip(uuids, mask.tolist(), strict=True) if is_chosen)
