"""Pods, jobs and users of the programs that report through the probe, as a series to join with."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kernelcast.columnar import Sample
from kernelcast.exporter.attribution.attribution import AttributedGpu
from kernelcast.exporter.attribution.pods import agreed
from kernelcast.exporter.programs.process import ProbeProcess
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.identity import Device, Labels, labels


@dataclass(frozen=True, slots=True)
class _ProgramGpu:
    """A program's device, with the attributes of `AttributedGpu`."""

    uuid: str
    index: str
    device: str
    gi_id: str
    gi_profile: str
    mig_uuids: tuple[str, ...] = ()
    gi_placement: str = ""
    gi_alone: bool = False


class ProgramUsers:
    """A source of one info series for each program, rank and GPU.

    The processes of one program on one GPU share one series of kernels, so the info series has their common labels.

    Args:
        processes: Returns the processes that report now.
        labels_of: Returns the labels of a process on a GPU, by its pid in this daemon's namespace.
    """

    def __init__(
        self,
        processes: Callable[[], Iterable[ProbeProcess]],
        labels_of: Callable[[AttributedGpu, int], Mapping[str, str]],
    ) -> None:
        self._processes = processes
        self._labels_of = labels_of

    def poll(self, now_ns: int) -> SourceBatch:
        """Return a sample for each program that has a known label."""
        found: dict[Labels, list[Mapping[str, str]]] = {}
        for one in self._processes():
            for device in one.devices:
                # A pid of 0 lies in another pid namespace, where the program's own number means another process here.
                known = self._labels_of(_on_node(device), one.peer_pid) if one.peer_pid else {}
                found.setdefault(_identity(one, device), []).append(known)
        samples = (
            Sample(kernel.PROBE_USER, tuple(sorted((*identity, *who.items()))), now_ns, 1)
            for identity, sets in found.items()
            if (who := agreed(sets))
        )
        return SourceBatch(samples=tuple(samples))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _on_node(device: Device) -> _ProgramGpu:
    return _ProgramGpu(device.uuid, device.gpu, device.device, device.gi_id, device.gi_profile)


def _identity(one: ProbeProcess, device: Device) -> Labels:
    process = one.process
    return labels(**device.join_labels(process.source), program=process.program, rank=process.rank)
