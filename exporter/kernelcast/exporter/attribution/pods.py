"""Containers of each GPU, from the kubelet's answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelcast.exporter.attribution.gpu_ids import gpu_of
from kernelcast.exporter.attribution.pod_resources import Allocation, Container, ResourceClaimDevice

NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Use:
    """A container's use of a GPU.

    Attributes:
        container: The container.
        replica: Number of its share of a shared GPU; empty for a whole GPU.
        claim: The resource claim that gave it the GPU; None without one.
    """

    container: Container
    replica: str = ""
    claim: ResourceClaimDevice | None = None

    def labels(self) -> Mapping[str, str]:
        """Return the labels, with dcgm-exporter's names (internal/pkg/transformation/const.go)."""
        found = {**container_labels(self.container), "vgpu": self.replica}
        if self.claim is not None:
            found |= {
                "dra_claim_name": self.claim.name,
                "dra_claim_namespace": self.claim.namespace,
                "dra_driver_name": self.claim.driver,
                "dra_pool_name": self.claim.pool,
                "dra_device_name": self.claim.device,
            }
        return {name: value for name, value in found.items() if value}


class PodUses:
    """The uses of every GPU of the node.

    Args:
        allocations: The kubelet's answer.
    """

    def __init__(self, allocations: Iterable[Allocation] = ()) -> None:
        self._uses: dict[str, list[Use]] = {}
        for allocation in allocations:
            gpu = gpu_of(allocation)
            if gpu is not None:
                use = Use(allocation.container, gpu.replica, allocation.claim)
                self._uses.setdefault(gpu.name, []).append(use)

    def of(self, names: Iterable[str]) -> tuple[Use, ...]:
        """Return the uses of a GPU that has these names; each once."""
        return tuple(dict.fromkeys(use for name in names for use in self._uses.get(name, ())))


def container_labels(container: Container) -> Mapping[str, str]:
    """Return the labels pod, namespace and container; unknown ones are left out."""
    found = {"pod": container.pod, "namespace": container.namespace, "container": container.name}
    return {name: value for name, value in found.items() if value}


def agreed(label_sets: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the labels that all sets have with the same value: those of a GPU that several containers share."""
    sets = list(label_sets)
    if not sets:
        return NO_LABELS
    first, *others = sets
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
