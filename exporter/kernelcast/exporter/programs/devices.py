"""Completes a program's claim of its GPU with the node's data."""

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


class DeviceResolver:
    """Finds the node's device for a program's claim, in any form of the UUID.

    Under MIG a program knows a compute instance (`MIG-…`) but not its GPU. Device series have the GPU's UUID and the
    GPU instance, so kernel series need them as well. The number in a claim is the program's own, after
    CUDA_VISIBLE_DEVICES; the label `gpu` is the node's number.

    Args:
        hostname: The node's name.
        known: Returns the node's present GPUs and MIG instances; empty without NVML.
    """

    def __init__(self, hostname: str, known: Callable[[], Sequence[Device]]) -> None:
        self._hostname = hostname
        self._known = known

    def __call__(self, claim: DeviceClaim) -> Device:
        """Return the claimed device.

        Raises:
            DeviceError: The claim names no device, and the node does not have exactly one.
        """
        known = self._known() if claim.uuid != PSEUDO_CPU else ()
        found = _find(known, claim)
        if found is not None:
            return _labelled(found)
        if claim.uuid:
            return Device(self._hostname, claim.uuid, claim.gpu, model_name=claim.model_name, gi_id=claim.gi_id)
        if len(known) == 1:
            return _labelled(known[0])
        raise DeviceError(
            f"a program named no GPU, and this node has {len(known)}; pass devices= to kernelcast.probe.start, "
            'or source="cpu" where there is none'
        )


def _labelled(device: Device) -> Device:
    """Return the device as in series labels, without its compute instances, which do not distinguish series."""
    return replace(device, mig_uuids=()) if device.mig_uuids else device


def _find(known: Sequence[Device], claim: DeviceClaim) -> Device | None:
    old = _OLD_MIG.fullmatch(claim.uuid)
    uuid, gi_id = (_digits(old[1]), old[2]) if old else (_digits(claim.uuid), claim.gi_id)
    for device in known:
        if uuid in map(_digits, device.mig_uuids) or (_digits(device.uuid), device.gi_id) == (uuid, gi_id):
            return device
    return None


def _digits(uuid: str) -> str:
    """Return a UUID's hex digits in lower case: some tools omit the prefix `GPU-`, or write capitals."""
    return re.sub(r"^(?:gpu|mig)-?|-", "", uuid.lower())
