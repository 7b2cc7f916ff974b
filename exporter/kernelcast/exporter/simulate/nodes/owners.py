"""Users of simulated GPUs: the pod of each rank, as the kubelet of a node would name it."""

from collections.abc import Mapping
from typing import Final

from kernelcast.exporter.attribution.attribution import AttributedGpu

NAMESPACE: Final = "training"
CONTAINER: Final = "trainer"
USER: Final = "researcher"


class SimulatedOwners:
    """Pods of one node's GPUs, by the GPUs' UUIDs.

    Args:
        pods: Name of the pod that has each GPU.
    """

    def __init__(self, pods: Mapping[str, str]) -> None:
        self._labels = {
            uuid: {"pod": pod, "namespace": NAMESPACE, "container": CONTAINER} for uuid, pod in pods.items()
        }

    def labels_for(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """Labels of a GPU's series: one set, because one pod has it."""
        return (self._labels[gpu.uuid],)

    def owners_of(self, _gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """None on series of their own: those of the GPU have their labels."""
        return ()

    def process_labels(self, gpu: AttributedGpu, _pid: int) -> Mapping[str, str]:
        """Labels of a process on a GPU."""
        return self._labels[gpu.uuid]

    def labels_of_pid(self, gpu: AttributedGpu, _pid: int) -> Mapping[str, str]:
        """Labels of a program on a GPU: its pod and its user."""
        return {**self._labels[gpu.uuid], "user": USER}
