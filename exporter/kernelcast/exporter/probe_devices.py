"""Completes a program's idea of its GPU with what the node knows."""

from collections.abc import Callable, Sequence

from kernelcast.wire.errors import DeviceError
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import Device

PSEUDO_CPU = "cpu"


class DeviceResolver:
    """Finds the node's device for a claim.

    Args:
        hostname: The node's name.
        known: The node's GPUs and MIG instances, as they are now; empty where NVML is not there.
    """

    def __init__(self, hostname: str, known: Callable[[], Sequence[Device]]) -> None:
        self._hostname = hostname
        self._known = known

    def __call__(self, claim: DeviceClaim) -> Device:
        """The device that is meant.

        Raises:
            DeviceError: The claim names none, and the node has not exactly one.
        """
        known = self._known() if claim.uuid != PSEUDO_CPU else ()
        for device in known:
            if device.uuid == claim.uuid:
                return device
        if claim.uuid:
            return Device(self._hostname, claim.uuid, claim.gpu, model_name=claim.model_name, gi_id=claim.gi_id)
        if len(known) == 1:
            return known[0]
        raise DeviceError(
            f"a program named no GPU, and this node has {len(known)}; pass devices= to kernelcast.probe.start, "
            'or source="simulated" where there is none'
        )
