"""Resolves the GPU that a program reports to a device of the node."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kernelcast.wire.errors import DeviceError
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import Device

PSEUDO_CPU = "cpu"

_OLD_MIG: Final = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/\d+", re.IGNORECASE)
"""UUID of a MIG instance in drivers before 470: the GPU's UUID, GPU instance, compute instance."""
_PREFIX: Final = re.compile(r"^(?:gpu|mig)-?")
_UUID: Final = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")


class DeviceResolver:
    """Finds the node's device by the UUID that a program reports, in any form. Safe for several threads.

    Under MIG a program knows a compute instance (`MIG-…`) but not its GPU. Device series have the GPU's UUID and the
    GPU instance, so kernel series need them as well. A device that NVML does not know has the program's values: its
    UUID in NVML's form, and its number, which is empty if the program does not know that of the node.

    Args:
        hostname: The node's name.
        known: Returns the node's present GPUs and MIG instances; empty without NVML.
    """

    def __init__(self, hostname: str, known: Callable[[], Sequence[Device]]) -> None:
        self._hostname = hostname
        self._known = known

    def __call__(self, claim: DeviceClaim) -> Device:
        """Return the reported device.

        Raises:
            DeviceError: The program reports no UUID, and the node does not have exactly one device.
        """
        known = self._known() if claim.uuid != PSEUDO_CPU else ()
        if not claim.uuid:
            return _labelled(_only(known))
        old = _OLD_MIG.fullmatch(claim.uuid)
        uuid, gi_id = (old[1], old[2]) if old else (claim.uuid, claim.gi_id)
        found = _find(known, uuid, gi_id)
        if found is not None:
            return _labelled(found)
        gpu = next((device.gpu for device in known if _digits(device.uuid) == _digits(uuid)), claim.gpu)
        return Device(self._hostname, _canonical(uuid), gpu, model_name=claim.model_name, gi_id=gi_id)


def _only(known: Sequence[Device]) -> Device:
    if len(known) == 1:
        return known[0]
    gpus, instances = len({device.uuid for device in known}), sum(bool(device.gi_id) for device in known)
    counted = f"{gpus} GPU{'s' * (gpus != 1)}" + f" and {instances} MIG instances" * bool(instances)
    raise DeviceError(
        f"a program named no GPU, and this node has {counted}; pass devices= to kernelcast.probe.start, "
        'or source="cpu" where there is none'
    )


def _labelled(device: Device) -> Device:
    """Return the device as in series labels, without its compute instances, which do not distinguish series."""
    return replace(device, mig_uuids=()) if device.mig_uuids else device


def _find(known: Sequence[Device], uuid: str, gi_id: str) -> Device | None:
    digits = _digits(uuid)
    for device in known:
        if digits in map(_digits, device.mig_uuids) or (_digits(device.uuid), device.gi_id) == (digits, gi_id):
            return device
    return None


def _digits(uuid: str) -> str:
    """Return a UUID's hex digits in lower case: some tools omit the prefix `GPU-`, or write capitals."""
    return _PREFIX.sub("", uuid.lower()).replace("-", "")


def _canonical(uuid: str) -> str:
    """Return a UUID as NVML writes it; a name that is no UUID, such as `cpu`, is unchanged."""
    parts = _UUID.fullmatch(_digits(uuid))
    return f"{'MIG' if uuid.lower().startswith('mig') else 'GPU'}-{'-'.join(parts.groups())}" if parts else uuid
