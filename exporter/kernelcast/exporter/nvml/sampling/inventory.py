"""Lists the node's GPUs and MIG instances."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kernelcast.exporter.nvml.sampling.codes import Codes

GPUS: Final = Path("/proc/driver/nvidia/gpus")
"""Has a directory for each GPU of the driver, also for one that was added after NVML was initialised."""
COMPUTE_SLICE: Final = re.compile(r"^\d+c\.")
"""Prefix of a compute instance's name before its GPU instance's profile, as in `1c.3g.40gb`."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG GPU instance.

    Attributes:
        handle: NVML's; of an instance, that of its first compute instance.
        parent: The whole GPU's handle.
        uuid, index, pci_bus_id, device, model_name, gi_id, gi_profile: As in a reading.
        mig_uuids: UUIDs of its compute instances.
        gi_placement, gi_alone: As in a reading.
        mig_handles: Their handles, in the same order.
        mig_mode: A whole GPU that is divided.
    """

    handle: Any
    parent: Any
    uuid: str
    index: str
    pci_bus_id: str = ""
    device: str = ""
    model_name: str = ""
    gi_id: str = ""
    gi_profile: str = ""
    mig_uuids: tuple[str, ...] = ()
    gi_placement: str = ""
    gi_alone: bool = False
    mig_handles: tuple[Any, ...] = ()
    mig_mode: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Its key on the node: UUID and GPU instance."""
        return self.uuid, self.gi_id

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything but the handles."""
        placed = self.gi_placement, self.gi_alone
        return self.key, self.index, self.gi_profile, self.mig_uuids, self.mig_mode, placed


def find(nvml: Any, codes: Codes, place: int | str) -> list[Gpu]:
    """The GPU at an index or a PCI address, followed by its MIG instances.

    NVML opens a GPU when its handle is asked for, and keeps it open until it is shut down. Source: NVML API reference,
    nvmlInit_v2 and nvmlDeviceGetHandleByPciBusId.

    Raises:
        NVMLError: It does not answer.
    """
    if isinstance(place, str):
        handle = nvml.nvmlDeviceGetHandleByPciBusId(place)
        index = nvml.nvmlDeviceGetIndex(handle)
    else:
        handle, index = nvml.nvmlDeviceGetHandleByIndex(place), place
    gpu = Gpu(
        handle,
        handle,
        _text(nvml.nvmlDeviceGetUUID(handle)),
        str(index),
        pci_bus_id=_text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        device=_device_file(nvml, codes, handle),
        model_name=_text(nvml.nvmlDeviceGetName(handle)),
    )
    mode, count = _mig(nvml, handle)
    return [replace(gpu, mig_mode=mode), *_instances(nvml, gpu, count)]


def is_bound(pci_bus_id: str, gpus: Path = GPUS) -> bool:
    """Return whether the driver has the GPU at this address; False where the kernel does not list its GPUs."""
    # NVML writes the domain with eight digits, the kernel with at least four. A container may keep the directory of a
    # GPU that is gone, without the file.
    domain, _, rest = pci_bus_id.partition(":")
    return (gpus / f"{domain[-8:].lstrip('0'):0>4}:{rest}".lower() / "information").exists()


def _device_file(nvml: Any, codes: Codes, handle: Any) -> str:
    """The device file's name; empty where there is none, as under WSL."""
    try:
        return f"nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}"
    except nvml.NVMLError as error:
        if codes.expected(error.value):
            return ""
        raise


def _mig(nvml: Any, handle: Any) -> tuple[bool, int]:
    """Whether a GPU is divided, and into how many compute instances at most."""
    try:
        mode, _pending = nvml.nvmlDeviceGetMigMode(handle)
        return bool(mode), nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if mode else 0
    except nvml.NVMLError:
        return False, 0


def _instances(nvml: Any, parent: Gpu, count: int) -> Iterator[Gpu]:
    """The GPU instances of a divided GPU; compute instances share their memory, so each stands once."""
    found: dict[str, Gpu] = {}
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent.handle, index)
            gi_id = str(nvml.nvmlDeviceGetGpuInstanceId(handle))
            profile = COMPUTE_SLICE.sub("", _text(nvml.nvmlDeviceGetName(handle)).rpartition("MIG ")[2])
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError:
            continue
        known = found.get(gi_id)
        if known is None:
            placement = _placement(nvml, parent.handle, int(gi_id))
            known = replace(parent, handle=handle, gi_id=gi_id, gi_profile=profile, gi_placement=placement)
        found[gi_id] = replace(known, mig_uuids=(*known.mig_uuids, uuid), mig_handles=(*known.mig_handles, handle))
    profiles = Counter(one.gi_profile for one in found.values())
    yield from (replace(one, gi_alone=profiles[one.gi_profile] == 1) for one in found.values())


def _placement(nvml: Any, parent: Any, gi_id: int) -> str:
    """Numbers of a GPU instance's profile and first memory slice; empty where this user may not ask."""
    try:
        info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(parent, gi_id))
    except (nvml.NVMLError, AttributeError):
        return ""
    return f"{info.profileId}-{info.placement.start}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
