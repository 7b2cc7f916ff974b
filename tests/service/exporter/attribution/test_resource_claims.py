"""Pods of MIG instances that resource claims gave them: the kubelet's claim joined with the node's ResourceSlices.

Names, UUIDs and attributes are those of public reports:

* NVIDIA/dcgm-exporter, pull request 664: an A30's instance, made beforehand, with its page
* NVIDIA/dcgm-exporter, issue 714: an H100 NVL's instance, made on demand, whose slice has no UUID
* kubernetes-sigs/dra-driver-nvidia-gpu, issue 933: instances, profiles and placements of an H100
* kubernetes-sigs/dra-driver-nvidia-gpu, issue 744 (v1beta1, whose attributes are below `basic`) and 719 (v1)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from structlog.testing import capture_logs
from tests.support.exporter.api_server_double import FakeApiServer
from tests.support.exporter.gpus import SomeGpu
from tests.support.exporter.kubelet_double import FakeKubelet, claim, container, pod

from kernelcast.exporter.attribution import Attribution, AttributionSettings
from kernelcast.exporter.attribution.api_server import ApiServer, ApiServerError
from kernelcast.exporter.attribution.pod_resources import DeviceKey
from kernelcast.exporter.attribution.resource_slices import ResourceSliceReader, SliceDevice
from kernelcast.exporter.nvml.sampling.codes import Codes
from kernelcast.exporter.nvml.sampling.inventory import find

NODE, POOL = "nim-operator-72q5r53", "node-pool"
A30, A30_MIG = "GPU-e04ce2a0-21a4-b68c-854a-f5c0d26bfc0b", "MIG-c73ab1c4-6cb7-59b6-be7e-21c4ac35c3b6"
H100 = "GPU-a15aaed3-d4e7-dde0-adcd-4432a8caf752"
WHOLE = "GPU-13719f71-412c-d11e-b236-a262f530a4fc"
TRAIN = {"pod": "train-0", "namespace": "ml", "container": "ctr0"}
TEXTS = ("uuid", "parentUUID", "profile", "type", "productName")


def device(name: str, **attributes: str | None) -> dict[str, Any]:
    """A device, with the attributes of other types that the driver gives besides."""
    made: dict[str, Any] = {"cudaComputeCapability": {"version": "9.0.0"}, "minor": {"int": 0}}
    made |= {key: None if value is None else {"string": value} for key, value in attributes.items()}
    return {"name": name, "attributes": made, "capacity": {"memory": {"value": "12Gi"}}}


STATIC = device("gpu-1-mig-1g6gb-14-0", uuid=A30_MIG, parentUUID=A30, profile="1g.6gb", type="mig")
DYNAMIC = device("gpu-0-mig-1g12gb-19-0", uuid=None, parentUUID=H100, profile="1g.12gb", type="mig")
DYNAMIC_MEDIA = device("gpu-0-mig-1g24gb-me-20-5", parentUUID=H100, profile="1g.24gb+me", type="mig")
GPU = device("gpu-1", uuid=WHOLE, type="gpu", productName="NVIDIA A100 80GB PCIe")


def a_slice(*devices: Mapping[str, Any], generation: int = 1, node: str = NODE, pool: str = POOL) -> dict[str, Any]:
    own = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": "gpu.nvidia.com", "nodeName": node, "pool": own, "devices": list(devices)}}


def of_v1beta1(made: dict[str, Any]) -> dict[str, Any]:
    nested = [
        {"name": one["name"], "basic": {k: v for k, v in one.items() if k != "name"}} for one in made["spec"]["devices"]
    ]
    return {"spec": {**made["spec"], "devices": nested}}


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    made = FakeApiServer()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("the-token\n")
    return tmp_path


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakeKubelet]:
    double = FakeKubelet(tmp_path / "kubelet.sock").start()
    yield double
    double.stop()


@pytest.fixture
def users(api: FakeApiServer, account: Path, kubelet: FakeKubelet, tmp_path: Path) -> Attribution:
    return attribution(tmp_path, kubelet, api_server=ApiServer(NODE, api.url, account), slices=True)


def attribution(tmp_path: Path, kubelet: FakeKubelet, **settings: Any) -> Attribution:
    (tmp_path / "log" / "pods").mkdir(parents=True)
    (tmp_path / "passwd").touch()
    settings |= {"socket": kubelet.socket, "logs": tmp_path / "log", "passwd": tmp_path / "passwd"}
    return Attribution(AttributionSettings(kubernetes="on", **settings), on_error=lambda _source: None)


def claimed(kubelet: FakeKubelet, *devices: str) -> None:
    """One pod after the other claims a device."""
    kubelet.answer = b"".join(
        pod(f"train-{number}", "ml", container("ctr0", claims=claim(f"claim-{number}", name)))
        for number, name in enumerate(devices)
    )


def shown(users: Attribution, gpu: SomeGpu) -> dict[str, str]:
    users.refresh()
    (labels,) = users.labels_for(gpu)
    return dict(labels)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_an_instance_that_exists_has_the_pod_whose_claim_names_it(
    version: str, api: FakeApiServer, kubelet: FakeKubelet, users: Attribution
) -> None:
    made = a_slice(GPU, STATIC)
    api.slices[version] = [of_v1beta1(made) if version == "v1beta1" else made, a_slice(DYNAMIC, node="another")]
    claimed(kubelet, "gpu-1-mig-1g6gb-14-0")
    assert shown(users, SomeGpu(A30, "1", "nvidia1", "3", "1g.6gb", (A30_MIG,))) == {
        **TRAIN,
        "dra_claim_name": "claim-0",
        "dra_claim_namespace": "claims",
        "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": POOL,
        "dra_device_name": "gpu-1-mig-1g6gb-14-0",
        "dra_mig_profile": "1g.6gb",
        "dra_mig_device_uuid": A30_MIG,
    }
    assert shown(users, SomeGpu(A30, "1", "nvidia1", "4", "1g.6gb", ("MIG-another",))) == {}
    assert shown(users, SomeGpu(A30, "1", "nvidia1")) == {}, "the GPU itself was given to nobody"


def test_a_whole_gpu_has_the_uuid_of_its_slice_also_where_its_number_is_another_gpus_now(
    api: FakeApiServer, kubelet: FakeKubelet, users: Attribution
) -> None:
    api.slices["v1"] = [a_slice(GPU)]
    claimed(kubelet, "gpu-1")
    assert shown(users, SomeGpu(WHOLE, "0", "nvidia0")).items() >= TRAIN.items()
    assert shown(users, SomeGpu(A30, "1", "nvidia1")) == {}


def test_an_instance_made_on_demand_is_found_by_its_profile_where_it_is_the_only_one(
    api: FakeApiServer, kubelet: FakeKubelet, users: Attribution
) -> None:
    api.slices["v1"] = [a_slice(DYNAMIC, DYNAMIC_MEDIA)]
    claimed(kubelet, "gpu-0-mig-1g24gb-me-20-5", "gpu-0-mig-1g12gb-19-0")
    media = SomeGpu(H100, gi_id="13", gi_profile="1g.24gb+me", mig_uuids=("MIG-of-now",), gi_alone=True)
    labels = shown(users, media)
    assert labels.items() >= {**TRAIN, "dra_mig_profile": "1g.24gb+me"}.items()
    assert "dra_mig_device_uuid" not in labels, "the slice knows none"
    assert shown(users, SomeGpu(H100, gi_id="7", gi_profile="1g.12gb", gi_alone=True))["pod"] == "train-1"
    assert shown(users, SomeGpu(A30, gi_id="7", gi_profile="1g.12gb", gi_alone=True)) == {}, "another GPU's"


def test_of_several_instances_of_a_profile_none_gets_a_pod_that_may_be_anothers(
    api: FakeApiServer, kubelet: FakeKubelet, users: Attribution
) -> None:
    second = device("gpu-0-mig-1g12gb-19-1", parentUUID=H100, profile="1g.12gb", type="mig")
    api.slices["v1"] = [a_slice(DYNAMIC, second)]
    claimed(kubelet, "gpu-0-mig-1g12gb-19-0")
    assert shown(users, SomeGpu(H100, gi_id="7", gi_profile="1g.12gb")) == {}, "two instances, one claim"
    claimed(kubelet, "gpu-0-mig-1g12gb-19-0", "gpu-0-mig-1g12gb-19-1")
    assert shown(users, SomeGpu(H100, gi_id="7", gi_profile="1g.12gb", gi_alone=True)) == {}, "two claims, one instance"


def test_where_nvml_tells_the_placement_the_claims_name_is_enough(kubelet: FakeKubelet, tmp_path: Path) -> None:
    users = attribution(tmp_path, kubelet)
    claimed(kubelet, *(f"gpu-3-mig-1g10gb-19-{start}" for start in (0, 1, 5)), "gpu-0-mig-19-0-1", "gpu-vfio-3")
    placed = {"7": "19-0", "8": "19-1", "12": "19-5", "9": "19-2"}
    pods = {
        gi_id: shown(users, SomeGpu(H100, "3", "nvidia3", gi_id, "1g.10gb", gi_placement=placement)).get("pod")
        for gi_id, placement in placed.items()
    }
    assert pods == {"7": "train-0", "8": "train-1", "12": "train-2", "9": None}
    assert shown(users, SomeGpu(A30, "0", "nvidia0", "1", "1g.6gb", gi_placement="0-1")) == {}, "an older driver's name"


def test_only_the_newest_generation_of_a_pool_counts(api: FakeApiServer, account: Path) -> None:
    old, new = (device(f"gpu-{number}", uuid=f"GPU-{number}", type="gpu") for number in (0, 1))
    other = device("gpu-0", uuid="GPU-of-pool-2", type="gpu")
    api.slices["v1"] = [
        a_slice(old, generation=1),
        a_slice(new, generation=2),
        a_slice(old, generation=1),
        a_slice(DYNAMIC, generation=2),
        a_slice(other, pool="second"),
        {"spec": {**a_slice()["spec"], "devices": None, "sharedCounters": []}},
    ]
    assert ResourceSliceReader(ApiServer(NODE, api.url, account)).read() == {
        DeviceKey("gpu.nvidia.com", POOL, "gpu-1"): SliceDevice("GPU-1"),
        DeviceKey("gpu.nvidia.com", POOL, "gpu-0-mig-1g12gb-19-0"): SliceDevice("", H100, "1g.12gb"),
        DeviceKey("gpu.nvidia.com", "second", "gpu-0"): SliceDevice("GPU-of-pool-2"),
    }
    assert api.asked[0]["fieldSelector"] == [f"spec.nodeName={NODE},spec.driver=gpu.nvidia.com"]
    assert api.asked[0]["resourceVersion"] == ["0"]


def test_the_version_that_the_server_has_is_asked_for_first_from_then_on(api: FakeApiServer, account: Path) -> None:
    reader = ResourceSliceReader(ApiServer(NODE, api.url, account))
    api.slices["v1beta1"] = [of_v1beta1(a_slice(GPU))]
    assert len(reader.read()) == len(reader.read()) == 1
    assert [path.split("/")[3] for path in api.paths] == ["v1", "v1beta2", "v1beta1", "v1beta1"]
    api.slices = {"v1": [a_slice(GPU)]}
    assert len(reader.read()) == 1, "an upgrade of the cluster"


def test_a_server_without_the_resource_is_named(api: FakeApiServer, account: Path) -> None:
    with pytest.raises(ApiServerError, match=r"none of the versions v1, v1beta2, v1beta1; it needs Kubernetes 1\.32"):
        ResourceSliceReader(ApiServer(NODE, api.url, account)).read()


@pytest.mark.parametrize(
    "item", [{}, {"spec": {"driver": "gpu.nvidia.com"}}, 5, {"spec": {**a_slice()["spec"], "pool": 1}}]
)
def test_an_answer_that_is_no_list_of_slices_is_an_error_with_its_reason(
    item: Any, api: FakeApiServer, account: Path
) -> None:
    api.slices["v1"] = []
    api.body = b'{"items": [%s]}' % str(item).replace("'", '"').encode()
    with pytest.raises(ApiServerError, match="no list of resourceslices"):
        ResourceSliceReader(ApiServer(NODE, api.url, account)).read()


def test_without_the_right_one_sentence_has_the_remedy_and_whole_gpus_keep_their_pods(
    api: FakeApiServer, kubelet: FakeKubelet, users: Attribution
) -> None:
    api.slices["v1"], api.status = [], 403
    claimed(kubelet, "gpu-1", "gpu-0-mig-1g24gb-me-20-5")
    with capture_logs() as logs:
        for _ in range(3):
            assert shown(users, SomeGpu(WHOLE, "1", "nvidia1"))["pod"] == "train-0"
    (line,) = logs
    assert "has to be allowed to list resourceslices" in line["reason"]


def test_without_the_setting_one_sentence_names_it(kubelet: FakeKubelet, tmp_path: Path) -> None:
    users = attribution(tmp_path, kubelet)
    claimed(kubelet, "gpu-1", "gpu-0-mig-1g24gb-me-20-5")
    with capture_logs() as logs:
        for _ in range(3):
            assert shown(users, SomeGpu(WHOLE, "1", "nvidia1"))["pod"] == "train-0"
    (line,) = logs
    assert "set exporter.kubernetes_resource_slices" in line["event"]
    assert line["device"] == "gpu-0-mig-1g24gb-me-20-5"


class Divided:
    """An NVML with one GPU of three instances, of which a privileged user learns the placement."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *, privileged: bool) -> None:
        self._privileged = privileged

    def __getattr__(self, name: str) -> Any:
        placed = {7: (19, 0), 8: (19, 1), 12: (20, 5)}
        ids = tuple(placed)
        answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: H100 if handle == 0 else f"MIG-{handle}",
            "nvmlDeviceGetPciInfo": lambda _handle: SimpleNamespace(busId="00000000:01:00.0"),
            "nvmlDeviceGetMinorNumber": lambda _handle: 3,
            "nvmlDeviceGetName": lambda handle: f"NVIDIA H100 MIG 1g.10gb{'+me' if handle == ids[2] else ''}",
            "nvmlDeviceGetMigMode": lambda _handle: (1, 1),
            "nvmlDeviceGetMaxMigDeviceCount": lambda _handle: len(ids),
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda _handle, index: ids[index],
            "nvmlDeviceGetGpuInstanceId": lambda handle: handle,
            "nvmlDeviceGetGpuInstanceById": self._instance,
            "nvmlGpuInstanceGetInfo": lambda gi_id: SimpleNamespace(
                profileId=placed[gi_id][0], placement=SimpleNamespace(start=placed[gi_id][1], size=1)
            ),
        }
        return answers[name] if name in answers else getattr(pynvml, name)

    def _instance(self, _handle: object, gi_id: int) -> int:
        if not self._privileged:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        return gi_id


@pytest.mark.parametrize(("privileged", "placements"), [(True, ["19-0", "19-1", "20-5"]), (False, ["", "", ""])])
def test_nvml_tells_placements_to_a_privileged_user_and_profiles_to_everyone(
    privileged: bool,  # noqa: FBT001  a parameter of the test
    placements: list[str],
) -> None:
    nvml = Divided(privileged=privileged)
    _, *instances = find(nvml, Codes(nvml), 0)
    assert [one.gi_placement for one in instances] == placements
    assert [(one.gi_profile, one.gi_alone) for one in instances] == [
        ("1g.10gb", False),
        ("1g.10gb", False),
        ("1g.10gb+me", True),
    ]
