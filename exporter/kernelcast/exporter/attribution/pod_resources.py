"""Devices of containers, from the kubelet's pod-resources API, v1, over the socket in the node's file system.

Field numbers: Kubernetes, staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from kernelcast.exporter.grpc.client import UnaryClient
from kernelcast.exporter.grpc.messages import Field, Messages

SERVICE: Final = "v1.PodResourcesLister"
TIMEOUT_SECONDS: Final = 10.0
"""dcgm-exporter's time-out; a kubelet that starts is slow, and only the thread for this call waits."""
MAX_DEVICES: Final = 65_536
"""Limit of devices of the node: time-slicing may make hundreds of one GPU, and the limit bounds an answer's cost."""

_MESSAGES: Final[Messages] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (Field("pod_resources", 1, "PodResources", repeated=True),),
    "PodResources": (
        Field("name", 1, "string"),
        Field("namespace", 2, "string"),
        Field("containers", 3, "ContainerResources", repeated=True),
    ),
    "ContainerResources": (
        Field("name", 1, "string"),
        Field("devices", 2, "ContainerDevices", repeated=True),
        Field("dynamic_resources", 5, "DynamicResource", repeated=True),
    ),
    "ContainerDevices": (
        Field("resource_name", 1, "string"),
        Field("device_ids", 2, "string", repeated=True),
    ),
    "DynamicResource": (
        Field("claim_name", 2, "string"),
        Field("claim_namespace", 3, "string"),
        Field("claim_resources", 4, "ClaimResource", repeated=True),
    ),
    "ClaimResource": (
        Field("driver_name", 2, "string"),
        Field("pool_name", 3, "string"),
        Field("device_name", 4, "string"),
    ),
}


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as Kubernetes names it."""

    namespace: str
    pod: str
    name: str


class DeviceKey(NamedTuple):
    """A device of dynamic resource allocation, as the kubelet and the ResourceSlices name it."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class ResourceClaimDevice:
    """One device of a resource claim (dynamic resource allocation)."""

    name: str
    namespace: str
    driver: str
    pool: str
    device: str

    @property
    def key(self) -> DeviceKey:
        """The device, whoever claims it."""
        return DeviceKey(self.driver, self.pool, self.device)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device that a container was given.

    Attributes:
        container: The container that has the device.
        resource: The requested resource, such as `nvidia.com/gpu`; empty for a claim.
        device_id: The device plugin's name of the device; empty for a claim.
        claim: The claim's device; None for a device plugin's.
    """

    container: Container
    resource: str = ""
    device_id: str = ""
    claim: ResourceClaimDevice | None = None


class PodResources:
    """Client of the kubelet.

    Args:
        socket: The kubelet's socket.
        timeout_seconds: Time limit of one call.

    Raises:
        MissingExtraError: grpcio is not installed.
    """

    def __init__(self, socket: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._client = UnaryClient(f"unix:{socket}", SERVICE, _MESSAGES, timeout_seconds=timeout_seconds)

    def allocations(self) -> tuple[Allocation, ...]:
        """Return every device of every container on this node.

        Raises:
            ServiceError: The kubelet is absent, refuses the call, or exceeds the time limit.
        """
        answer = self._client.call("List", "ListPodResourcesRequest", "ListPodResourcesResponse")
        found: list[Allocation] = []
        for allocation in _allocations(answer):
            if len(found) >= MAX_DEVICES:
                break
            found.append(allocation)
        return tuple(found)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _allocations(answer: Any) -> Iterator[Allocation]:
    for pod in answer.pod_resources:
        for resources in pod.containers:
            container = Container(pod.namespace, pod.name, resources.name)
            for devices in resources.devices:
                for device_id in devices.device_ids:
                    yield Allocation(container, devices.resource_name, device_id)
            for dynamic in resources.dynamic_resources:
                for one in dynamic.claim_resources:
                    claim = ResourceClaimDevice(
                        dynamic.claim_name, dynamic.claim_namespace, one.driver_name, one.pool_name, one.device_name
                    )
                    yield Allocation(container, claim=claim)
