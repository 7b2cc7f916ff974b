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
class _OnNode:
    """A program's device, as attribution asks for GPUs."""

    uuid: str
    index: str
    device: str
    gi_id: str
    mig_uuids: tuple[str, ...] = ()


class ProgramUsers:
    """A source of one info series for each program, rank and GPU.

    The processes of one program on one GPU are one series of kernels, so what stands here is what all of them agree on.

    Args:
        processes: Those that report here now.
        labels_of: Labels of a process on a GPU, by its pid as this daemon sees it.
    """

    def __init__(
        self,
        processes: Callable[[], Iterable[ProbeProcess]],
        labels_of: Callable[[AttributedGpu, int], Mapping[str, str]],
    ) -> None:
        self._processes = processes
        self._labels_of = labels_of

    def poll(self, now_ns: int) -> SourceBatch:
        """Every program of which anything is known."""
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
        """Nothing is held."""


def _on_node(device: Device) -> _OnNode:
    return _OnNode(device.uuid, device.gpu, device.device, device.gi_id)


def _identity(one: ProbeProcess, device: Device) -> Labels:
    process = one.process
    return labels(**device.join_labels(process.source), program=process.program, rank=process.rank)
