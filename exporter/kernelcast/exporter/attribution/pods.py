"""Containers of each GPU, from the kubelet's answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelcast.exporter.attribution.gpu_ids import gpu_of
from kernelcast.exporter.attribution.pod_resources import Allocation, Container, DeviceKey, ResourceClaimDevice
from kernelcast.exporter.attribution.resource_slices import DRA_DRIVER, NO_DEVICES, SliceDevice, SliceDevices

NO_LABELS: Mapping[str, str] = {}
UNKNOWN_DEVICE = SliceDevice()
MIG_NAME = "-mig-"
"""In the names of MIG devices by NVIDIA's resource driver; a whole GPU's name has its number."""


@dataclass(frozen=True, slots=True)
class Use:
    """A container's use of a GPU.

    Attributes:
        container: The container.
        replica: Number of its share of a shared GPU; empty for a whole GPU.
        claim: The resource claim that gave it the GPU; None without one.
        device: What the ResourceSlices say of the claim's device.
    """

    container: Container
    replica: str = ""
    claim: ResourceClaimDevice | None = None
    device: SliceDevice = UNKNOWN_DEVICE

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
                "dra_mig_profile": self.device.profile,
                "dra_mig_device_uuid": self.device.uuid if self.device.profile else "",
            }
        return {name: value for name, value in found.items() if value}


class PodUses:
    """The uses of every GPU of the node.

    Args:
        allocations: The kubelet's answer.
        devices: Devices of resource claims, from the ResourceSlices.

    Attributes:
        unknown: A device of NVIDIA's resource driver that the ResourceSlices do not explain; empty where none is left.
    """

    def __init__(self, allocations: Iterable[Allocation] = (), devices: SliceDevices = NO_DEVICES) -> None:
        self.unknown = ""
        self._uses: dict[str, list[Use]] = {}
        self._by_profile: dict[str, dict[DeviceKey, list[Use]]] = {}
        for allocation in allocations:
            claim = allocation.claim
            device = devices.get(claim.key) if claim is not None else None
            if claim is not None and claim.driver == DRA_DRIVER and device is None and MIG_NAME in claim.device:
                self.unknown = claim.device
            gpu = gpu_of(allocation, devices)
            if gpu is not None:
                use = Use(allocation.container, gpu.replica, claim, device or UNKNOWN_DEVICE)
                if gpu.name:
                    self._uses.setdefault(gpu.name, []).append(use)
                if claim is not None and gpu.profile:
                    self._by_profile.setdefault(gpu.profile, {}).setdefault(claim.key, []).append(use)

    def of(self, names: Iterable[str]) -> tuple[Use, ...]:
        """Return the uses of a GPU that has these names; each once."""
        return tuple(dict.fromkeys(use for name in names for use in self._uses.get(name, ())))

    def of_only_device(self, profile: str) -> tuple[Use, ...]:
        """Return the uses of the one device with a profile, such as `GPU-…/1g.12gb`; none where several have it."""
        devices = tuple(self._by_profile.get(profile, {}).values())
        return tuple(dict.fromkeys(devices[0])) if len(devices) == 1 else ()


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
