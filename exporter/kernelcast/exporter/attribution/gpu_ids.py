"""Names of GPUs and MIG instances, in forms by which device plugins' devices are matched with NVML's.

The forms are `GPU-…`, `MIG-…` (UUIDs), `nvidia0` (device file), `nvidia0/gi3`, `GPU-…/gi3` (MIG instance of a GPU),
`nvidia0/mig19-0` (MIG instance of profile 19 at placement 0), `GPU-…/1g.12gb` (one of the instances of that profile).
The kubelet reports a device under the name that its device plugin gave it; `gpu_of` converts this name to one of the
forms. A GPU of NVML has several names; `names_of` yields each of them. `PodUses` finds the containers of a GPU by them.

Sources: NVIDIA k8s-device-plugin (UUIDs, `::` before the number of a replica), GKE's device plugin (`nvidia0`,
`nvidia0/gi3`, `/vgpu` before the number of a replica), drivers before 470 (`MIG-GPU-…/3/0`),
kubernetes-sigs/dra-driver-nvidia-gpu (`gpu-0` is the GPU of that minor number, `gpu-0-mig-1g12gb-19-0` its MIG instance
of profile 19 at placement 0; cmd/gpu-kubelet-plugin/mig.go).
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kernelcast.exporter.attribution.pod_resources import Allocation, ResourceClaimDevice
from kernelcast.exporter.attribution.resource_slices import DRA_DRIVER, NO_DEVICES, SliceDevice, SliceDevices

NVIDIA: Final = "nvidia.com/"

_REPLICA: Final = re.compile(r"(?:::|/vgpu)(\d+)$")
_DIGITS: Final = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID: Final = re.compile(rf"(?:GPU|MIG)-{_DIGITS}")
"""Not `GPU-…-3`, as HAMi and Volcano name the shares that they offer to the kubelet."""
_OLD_MIG: Final = re.compile(rf"MIG-(GPU-{_DIGITS})/(\d+)/\d+")
_BY_NUMBER: Final = re.compile(r"(?:nvidia|gpu)(\d+)(?:/gi(\d+))?")
_DRA_GPU: Final = re.compile(r"gpu-(\d+)")
_DRA_MIG: Final = re.compile(r"gpu-(\d+)-mig-[0-9a-z]*g[0-9]+gb[a-z-]*-(\d+)-(\d+)")


class GpuId(NamedTuple):
    """A GPU or MIG instance that was given to a container.

    Attributes:
        name: Its name, in one of the forms above; empty if only `profile` is known.
        replica: Number of the share, for a GPU that the device plugin shares; empty for a whole one.
        profile: Of a MIG instance that a resource driver made on demand: the form `GPU-…/1g.12gb`.
    """

    name: str
    replica: str = ""
    profile: str = ""


def gpu_of(allocation: Allocation, devices: SliceDevices = NO_DEVICES) -> GpuId | None:
    """Return the GPU of an allocation; None for a device that is not an NVIDIA GPU.

    Args:
        allocation: Of the kubelet.
        devices: Devices of resource claims, as far as the ResourceSlices are read.

    A UUID is accepted with any resource name, because sites rename resources. A name with a number, such as `nvidia0`
    or `gpu0`, is accepted only if the resource name begins with `nvidia.com/`: other vendors number their devices too.
    """
    claim = allocation.claim
    if claim is not None:
        return _of_claim(claim, devices.get(claim.key)) if claim.driver == DRA_DRIVER else None
    replica = _REPLICA.search(allocation.device_id)
    device_id = allocation.device_id[: replica.start()] if replica else allocation.device_id
    name = _canonical(device_id, numbered=allocation.resource.startswith(NVIDIA))
    return GpuId(name, replica[1] if replica else "") if name else None


def names_of(
    uuid: str,
    device: str,
    index: str,
    *,
    gi_id: str = "",
    mig_uuids: tuple[str, ...] = (),
    placement: str = "",
) -> Iterator[str]:
    """Yield every name of a GPU or MIG instance, in the forms above but the last.

    Args:
        uuid: UUID of the physical GPU.
        device: Name of the physical GPU's device file, such as `nvidia0`; empty if it has none.
        index: NVML's index of the physical GPU; used in place of the device file's number if there is no file.
        gi_id: Id of the MIG GPU instance; empty for a whole GPU.
        mig_uuids: UUIDs of the MIG devices in that GPU instance.
        placement: Numbers of its profile and of its first memory slice, such as `19-0`; empty where NVML does not say.
    """
    file = device or f"nvidia{index}"
    if not gi_id:
        yield uuid
        yield file
        return
    yield from mig_uuids
    yield f"{file}/gi{gi_id}"
    yield f"{uuid}/gi{gi_id}"
    if placement:
        yield f"{file}/mig{placement}"


def _of_claim(claim: ResourceClaimDevice, device: SliceDevice | None) -> GpuId | None:
    """The GPU of a claim's device: by its ResourceSlice, else by the numbers in its name."""
    if device is not None and device.uuid:
        return GpuId(device.uuid)
    if found := _DRA_GPU.fullmatch(claim.device):
        return GpuId(f"nvidia{found[1]}")
    found = _DRA_MIG.fullmatch(claim.device)
    name = f"nvidia{found[1]}/mig{found[2]}-{found[3]}" if found else ""
    profile = f"{device.parent_uuid}/{device.profile}" if device is not None and device.profile else ""
    return GpuId(name, profile=profile) if name or profile else None


def _canonical(device_id: str, *, numbered: bool) -> str:
    """Return a device plugin's name in one of the forms above; empty if it is not the name of a GPU.

    Args:
        device_id: The name, without the number of a replica.
        numbered: Whether names with a number are accepted.
    """
    if _UUID.fullmatch(device_id):
        return device_id
    if old := _OLD_MIG.fullmatch(device_id):
        return f"{old[1]}/gi{old[2]}"
    found = _BY_NUMBER.fullmatch(device_id) if numbered else None
    if not found:
        return ""
    return f"nvidia{found[1]}/gi{found[2]}" if found[2] else f"nvidia{found[1]}"
