"""One simulated node: the exporter's own sources, given simulated readings in place of a driver and a kernel.

Names, labels and types of the series come from the code that a real node runs, so they cannot differ from it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from kernelcast.columnar import Sample
from kernelcast.exporter.attribution.programs import ProgramUsers
from kernelcast.exporter.kernel_log.source import KernelLogSource, LogCounts, NodeGpus
from kernelcast.exporter.nvml.counters_file import CountersFile, CounterTable
from kernelcast.exporter.nvml.devices import KnownGpus
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.programs.process import ProbeProcess
from kernelcast.exporter.simulate.nodes.kernel_log import SimulatedLog, SimulatedPosition
from kernelcast.exporter.simulate.nodes.owners import SimulatedOwners
from kernelcast.exporter.simulate.process import DRIVER_VERSION
from kernelcast.wire.identity import SIMULATED, Device


@dataclass(slots=True)
class NodeState:
    """Answers of a node's drivers; the fleet sets them before each poll.

    Attributes:
        gpus: Readings of its GPUs; of one that fell off the bus only its XIDs.
        missing: UUIDs of the GPUs that fell off the bus.
        silent: UUIDs of GPUs whose samples are missing.
        hung: Whether NVML hangs.
        processes: The programs' processes.
    """

    gpus: tuple[GpuReading, ...] = ()
    missing: tuple[str, ...] = ()
    silent: frozenset[str] = frozenset()
    hung: bool = False
    processes: tuple[ProbeProcess, ...] = ()


class _StateSampler:
    """Replaces a `Sampler`: gives the node's state to the exporter's NVML source."""

    def __init__(self, state: NodeState, found: Sequence[GpuReading]) -> None:
        self._state = state
        self._found = found

    def start(self) -> Self:
        return self

    def found(self) -> Sequence[GpuReading]:
        return self._found

    def sample(self, time_ns: int) -> NodeReading | None:
        if self._state.hung:
            return None
        return NodeReading(time_ns, DRIVER_VERSION, gpus=self._state.gpus, missing=self._state.missing)

    def change(self, options: SamplerOptions) -> None:
        """The rows of a simulated node never change."""

    def close(self) -> None:
        """Nothing is held open."""


class SimulatedNode:
    """The sources of one node.

    Args:
        hostname: The node's name.
        gpus: Its GPUs, without values.
        owners: Pods and users of the GPUs.
        log: The kernel's log.
        start_ns: When its counters began, Unix nanoseconds.

    Attributes:
        state: What its drivers answer at the next poll.
    """

    def __init__(
        self, hostname: str, gpus: Sequence[GpuReading], owners: SimulatedOwners, log: SimulatedLog, start_ns: int
    ) -> None:
        self.state = NodeState()
        self._hostname = hostname
        self._log = log
        counters = CountersFile()
        counters.table = CounterTable(rows=ROWS)
        nvml = NvmlSource(
            _StateSampler(self.state, gpus), hostname=hostname, boot_ns=start_ns, source=SIMULATED, counters=counters
        ).start()
        nvml.users = owners
        self._gpus = KnownGpus(nvml, lambda: True)
        self._kernel_log = KernelLogSource(
            log,
            SimulatedPosition(),
            gpus=NodeGpus(hostname, lambda: nvml.devices, SIMULATED),
            counts=LogCounts(_nothing, _nothing),
        )
        self._programs = ProgramUsers(lambda: self.state.processes, owners.labels_of_pid)

    def poll(self, now_ns: int) -> Iterable[Sample]:
        """Every sample of the node at a moment of its own clock, Unix nanoseconds."""
        self._log.now_ns = now_ns
        self._kernel_log.refresh()
        batches = [self._gpus.poll(now_ns), self._kernel_log.poll(now_ns), self._programs.poll(now_ns)]
        silent = self.state.silent
        for batch in batches:
            if silent:
                yield from (one for one in batch.samples if dict(one.attributes).get("UUID") not in silent)
            else:
                yield from batch.samples


def described(device: Device) -> GpuReading:
    """A GPU without values."""
    return GpuReading(
        uuid=device.uuid,
        index=device.gpu,
        pci_bus_id=device.pci_bus_id,
        device=device.device,
        model_name=device.model_name,
    )


def _nothing(_what: object) -> None:
    """Nothing goes wrong with a simulated log."""
