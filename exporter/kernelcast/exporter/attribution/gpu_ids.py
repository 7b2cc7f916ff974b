"""The names under which device plugins know a GPU, and those under which it can be asked for here.

A GPU has several names, and so has a MIG instance; both sides are reduced to the same few forms:
`GPU-…`, `MIG-…` (UUIDs), `nvidia0` (device file), `nvidia0/gi3`, `GPU-…/gi3` (MIG instance of a GPU).

Sources: NVIDIA k8s-device-plugin (UUIDs, `::` before the number of a replica), GKE's device plugin (`nvidia0`,
`nvidia0/gi3`, `/vgpu` before the number of a replica), drivers before 470 (`MIG-GPU-…/3/0`), NVIDIA k8s-dra-driver-gpu
(`gpu-0` is the GPU of that minor number).
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kernelcast.exporter.attribution.pod_resources import Allocation

NVIDIA: Final = "nvidia.com/"
DRA_DRIVER: Final = "gpu.nvidia.com"

_REPLICA: Final = re.compile(r"(?:::|/vgpu)(\d+)$")
_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Fa-f-]{8,}")
_OLD_MIG: Final = re.compile(r"MIG-(GPU-[0-9A-Fa-f-]{8,})/(\d+)/\d+")
_BY_NUMBER: Final = re.compile(r"(?:nvidia|gpu)(\d+)(?:/gi(\d+))?")
_DRA_GPU: Final = re.compile(r"gpu-(\d+)")


class GpuId(NamedTuple):
    """A GPU or MIG instance that was given to a container.

    Attributes:
        name: In one of the forms above.
        replica: Which share of a shared GPU; empty where it was given as a whole.
    """

    name: str
    replica: str = ""


def gpu_of(allocation: Allocation) -> GpuId | None:
    """The GPU of an allocation; None for a device that is no NVIDIA GPU.

    A UUID is taken under any resource name (sites rename resources); a number only under NVIDIA's, as other vendors
    count theirs too.
    """
    claim = allocation.claim
    if claim is not None:
        found = _DRA_GPU.fullmatch(claim.device) if claim.driver == DRA_DRIVER else None
        return GpuId(f"nvidia{found[1]}") if found else None
    replica = _REPLICA.search(allocation.device_id)
    device_id = allocation.device_id[: replica.start()] if replica else allocation.device_id
    name = _canonical(device_id, numbered=allocation.resource.startswith(NVIDIA))
    return GpuId(name, replica[1] if replica else "") if name else None


def names_of(uuid: str, device: str, index: str, *, gi_id: str = "", mig_uuids: tuple[str, ...] = ()) -> Iterator[str]:
    """Every name of a GPU or MIG instance, in the forms above.

    Args:
        uuid: The physical GPU's.
        device: Its device file, such as `nvidia0`; empty where there is none.
        index: NVML's.
        gi_id: The GPU instance of MIG; empty for a whole GPU.
        mig_uuids: Of the instance.
    """
    file = device or f"nvidia{index}"
    if not gi_id:
        yield uuid
        yield file
        return
    yield from mig_uuids
    yield f"{file}/gi{gi_id}"
    yield f"{uuid}/gi{gi_id}"


def _canonical(device_id: str, *, numbered: bool) -> str:
    if _UUID.fullmatch(device_id):
        return device_id
    if old := _OLD_MIG.fullmatch(device_id):
        return f"{old[1]}/gi{old[2]}"
    found = _BY_NUMBER.fullmatch(device_id) if numbered else None
    if not found:
        return ""
    return f"nvidia{found[1]}/gi{found[2]}" if found[2] else f"nvidia{found[1]}"
