"""GPUs behind the devices of resource claims (dynamic resource allocation), from this node's ResourceSlices.

The kubelet names a claim's device as its driver does, such as `gpu-0-mig-1g12gb-19-0`; only the driver's ResourceSlices
say which GPU that is. A MIG device that exists has a UUID there; one that the driver makes on demand has its GPU's UUID
and its profile alone (NVIDIA/dcgm-exporter, issue 714).

Format: Kubernetes, staging/src/k8s.io/api/resource/v1, v1beta2 and v1beta1 (which has `basic` around the attributes):
only the slices of the highest generation of a pool count. Attributes: kubernetes-sigs/dra-driver-nvidia-gpu,
cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go. `Attribution` calls `read` on a thread that may wait.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.exporter.attribution.api_server import ApiServer, ApiServerError, NodeList, NoSuchListError
from kernelcast.exporter.attribution.pod_resources import DeviceKey

DRA_DRIVER: Final = "gpu.nvidia.com"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Newest first: from Kubernetes 1.34, 1.33 and 1.32 on."""


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device of a ResourceSlice; what a slice does not say is empty.

    Attributes:
        uuid: Of the GPU, or of the MIG device where it exists.
        parent_uuid: Of a MIG device's GPU.
        profile: Of a MIG device, such as `1g.24gb+me`.
    """

    uuid: str = ""
    parent_uuid: str = ""
    profile: str = ""


SliceDevices = Mapping[DeviceKey, SliceDevice]
NO_DEVICES: Final[SliceDevices] = {}


class ResourceSliceReader:
    """Reads the devices of NVIDIA's driver on this node. For one thread.

    Args:
        server: Address and credentials of the API server.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._lists = tuple(
            NodeList(f"/apis/resource.k8s.io/{version}/resourceslices", selector=f"spec.driver={DRA_DRIVER}")
            for version in VERSIONS
        )

    def read(self) -> SliceDevices:
        """Return every device, by the newest version of the API that the server has.

        Raises:
            ApiServerError: The API server has no usable address, no ResourceSlices, refuses, or answers without a list.
            OSError: It does not answer, or not in time, or the token cannot be read.
            ValueError: Its address or the token is malformed.
        """
        for number, slices in enumerate(self._lists):
            try:
                devices = _devices(slices, self._server)
            except NoSuchListError:
                continue
            self._lists = self._lists[number:] + self._lists[:number]  # asked first from now on
            return devices
        raise ApiServerError(
            f"the API server has resource.k8s.io in none of the versions {', '.join(VERSIONS)}; it needs Kubernetes "
            "1.32, or exporter.kubernetes_resource_slices off"
        )


def _devices(slices: NodeList, server: ApiServer) -> SliceDevices:
    pools: dict[str, tuple[int, dict[DeviceKey, SliceDevice]]] = {}
    for page in slices.pages(server):
        try:
            for item in page.get("items") or ():
                _add(item["spec"], pools)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise slices.malformed(error) from error
    return {key: device for _, devices in pools.values() for key, device in devices.items()}


def _add(spec: Mapping[str, Any], pools: dict[str, tuple[int, dict[DeviceKey, SliceDevice]]]) -> None:
    """Add a slice's devices to those of its pool, unless the pool has a newer generation."""
    if spec.get("driver") != DRA_DRIVER:
        return
    pool = str(spec["pool"]["name"])
    generation = int(spec["pool"].get("generation") or 0)
    newest, devices = pools.get(pool, (generation, {}))
    if generation > newest:
        devices = {}
    if generation >= newest:
        devices.update((DeviceKey(DRA_DRIVER, pool, name), device) for name, device in _of_slice(spec))
        pools[pool] = generation, devices


def _of_slice(spec: Mapping[str, Any]) -> Iterator[tuple[str, SliceDevice]]:
    for device in spec.get("devices") or ():
        attributes = (device.get("basic") or device).get("attributes") or {}
        uuid, parent, profile = (_text(attributes, name) for name in ("uuid", "parentUUID", "profile"))
        yield str(device["name"]), SliceDevice(uuid, parent, profile)


def _text(attributes: Mapping[str, Any], name: str) -> str:
    """An attribute's text; a name without a domain is the driver's."""
    value = attributes.get(name) or attributes.get(f"{DRA_DRIVER}/{name}") or {}
    return str(value.get("string") or "")
