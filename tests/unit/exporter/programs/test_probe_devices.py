"""A program's GPU is found under every name that CUDA, old drivers and people give it."""

import pytest
from tests.support.exporter.gpus import MIG_0, MIG_0B, UUID_0, UUID_1

from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.wire.errors import DeviceError
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import Device

WHOLE = Device("node", UUID_0, "0", device="nvidia0", model_name="NVIDIA H100")
INSTANCE = Device("node", UUID_0, "0", "", "nvidia0", "NVIDIA H100", "3", "1g.10gb", (MIG_0, MIG_0B))
SECOND = Device("node", UUID_1, "1", device="nvidia1", model_name="NVIDIA H100")


def resolve(claim: DeviceClaim) -> Device:
    return DeviceResolver("node", lambda: (WHOLE, INSTANCE, SECOND))(claim)


@pytest.mark.parametrize(
    "uuid",
    [MIG_0, MIG_0B, MIG_0.upper(), MIG_0.removeprefix("MIG-"), MIG_0.replace("MIG", "GPU"), f"MIG-{UUID_0}/3/0"],
)
def test_a_program_on_a_mig_instance_is_joined_with_its_gpus_uuid_and_instance(uuid: str) -> None:
    found = resolve(DeviceClaim(uuid, "0", "NVIDIA H100 MIG 1g.10gb"))
    assert (found.uuid, found.gpu, found.gi_id, found.gi_profile) == (UUID_0, "0", "3", "1g.10gb")
    assert found.join_labels() == INSTANCE.join_labels()


def test_an_instance_is_the_same_device_whichever_of_its_compute_instances_claims_it() -> None:
    assert resolve(DeviceClaim(MIG_0)) == resolve(DeviceClaim(MIG_0B)) == resolve(DeviceClaim(UUID_0, gi_id="3"))


def test_the_label_gpu_is_the_nodes_number_and_not_the_programs() -> None:
    """CUDA_VISIBLE_DEVICES=1 or 1,0: the program's device 0 is the node's GPU 1."""
    assert resolve(DeviceClaim(UUID_1, "0")).gpu == "1"
    assert resolve(DeviceClaim(UUID_0, "1")).gpu == "0"


@pytest.mark.parametrize("uuid", [UUID_1.removeprefix("GPU-"), UUID_1.upper(), UUID_1.replace("-", "")])
def test_a_uuid_without_its_prefix_or_hyphens_is_understood(uuid: str) -> None:
    assert resolve(DeviceClaim(uuid)) is SECOND


def test_an_instance_that_the_node_does_not_know_keeps_its_own_name() -> None:
    unknown = "MIG-ffffffff-2222-3333-4444-000000000000"
    assert resolve(DeviceClaim(unknown, "0", "NVIDIA H100 MIG 1g.10gb")).uuid == unknown


@pytest.mark.parametrize("uuid", [UUID_1, UUID_1.removeprefix("GPU-"), UUID_1.upper(), UUID_1.replace("-", "")])
def test_without_nvml_a_uuid_has_the_form_that_nvml_gives_it(uuid: str) -> None:
    assert DeviceResolver("node", lambda: ())(DeviceClaim(uuid, "1")) == Device("node", UUID_1, "1")


def test_without_nvml_the_old_name_of_a_mig_instance_gives_its_gpu_and_number() -> None:
    found = DeviceResolver("node", lambda: ())(DeviceClaim(f"MIG-{UUID_0}/3/0", ""))
    assert (found.uuid, found.gi_id) == (UUID_0, "3")


def test_an_instance_that_nvml_has_not_found_yet_has_the_nodes_number_of_its_gpu() -> None:
    found = resolve(DeviceClaim(f"MIG-{UUID_1}/5/0", "0"))
    assert (found.uuid, found.gi_id, found.gpu) == (UUID_1, "5", "1")


def test_a_program_that_names_no_gpu_is_refused_with_the_number_of_gpus_and_of_instances() -> None:
    instances = [Device("node", UUID_0, "0", gi_id=str(number)) for number in range(7)]
    with pytest.raises(DeviceError, match="this node has 1 GPU and 7 MIG instances"):
        DeviceResolver("node", lambda: instances)(DeviceClaim(""))
    with pytest.raises(DeviceError, match="this node has 2 GPUs;"):
        DeviceResolver("node", lambda: (WHOLE, SECOND))(DeviceClaim(""))
