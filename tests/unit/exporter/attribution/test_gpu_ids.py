"""Names of device plugins that are, and are not, a GPU's."""

import pytest
from tests.support.exporter.gpus import MIG_0, UUID_0

from kernelcast.exporter.attribution.gpu_ids import GpuId, gpu_of
from kernelcast.exporter.attribution.pod_resources import Allocation, Container


def of(device_id: str) -> GpuId | None:
    return gpu_of(Allocation(Container("ml", "train-0", "torch"), "nvidia.com/gpu", device_id))


@pytest.mark.parametrize(
    ("device_id", "gpu"),
    [
        (UUID_0, GpuId(UUID_0)),
        (f"{UUID_0}::3", GpuId(UUID_0, "3")),
        (MIG_0, GpuId(MIG_0)),
        (f"MIG-{UUID_0}/3/0", GpuId(f"{UUID_0}/gi3")),
    ],
)
def test_a_uuid_is_a_gpus_name(device_id: str, gpu: GpuId) -> None:
    assert of(device_id) == gpu


@pytest.mark.parametrize(
    "device_id",
    [f"{UUID_0}-3", f"{UUID_0}-3::1", f"{MIG_0}-0", UUID_0[:-1], "GPU-11111111", f"MIG-{UUID_0}-3/3/0", "GPU---------"],
)
def test_a_share_of_hami_or_volcano_and_other_text_is_no_gpus_name(device_id: str) -> None:
    assert of(device_id) is None
