"""Users of the GPU from a kubelet that answers real gRPC: every form of names, and failures."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.support.exporter.gpus import GPU_0, GPU_1, INSTANCE, MIG_0, MIG_0B, UUID_0, UUID_1, SomeGpu
from tests.support.exporter.kubelet_double import FakeKubelet, claim, container, pod
from tests.support.exporter.nvml_double import gpu, node, playing
from tests.support.exporter.tpu_double import FakeRuntime, gauge, of_device
from tests.support.waiting import LONGEST_SECONDS, Stopwatch, eventually

from kernelcast.exporter import assembly
from kernelcast.exporter.attribution import Attribution, AttributionSettings
from kernelcast.exporter.attribution.pod_resources import PodResources
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import MissingExtraError, ServiceError

TRAIN = {"pod": "train-0", "namespace": "ml", "container": "torch"}
SERVE = {"pod": "serve-0", "namespace": "ml", "container": "vllm"}


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakeKubelet]:
    double = FakeKubelet(tmp_path / "kubelet.sock").start()
    yield double
    double.stop()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


class Node:
    """The attribution of one node, and its errors."""

    def __init__(self, tmp_path: Path, **settings: object) -> None:
        self.errors: list[str] = []
        (tmp_path / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        places = {
            "kubernetes": "on",
            "socket": tmp_path / "kubelet.sock",
            "logs": tmp_path / "log",
            "passwd": tmp_path / "passwd",
            "proc": tmp_path / "proc",
        }
        (tmp_path / "log" / "pods").mkdir(parents=True, exist_ok=True)
        self.attribution = Attribution(AttributionSettings(**(places | settings)), on_error=self.errors.append)  # type: ignore[arg-type]

    def labels(self, gpu: SomeGpu) -> tuple[dict[str, str], ...]:
        return tuple(dict(labels) for labels in self.attribution.labels_for(gpu))


def given(kubelet: FakeKubelet, *devices: tuple[str, str]) -> None:
    kubelet.answer = pod("train-0", "ml", container("torch", *devices))


@pytest.mark.parametrize(
    ("gpu", "device_id"),
    [
        (GPU_0, UUID_0),
        (GPU_0, "nvidia0"),
        (GPU_0, f"{UUID_0}::0"),
        (GPU_0, f"{UUID_0}::11"),
        (GPU_0, "nvidia0/vgpu1"),
        (GPU_0, "gpu0/vgpu1"),
        (INSTANCE, MIG_0),
        (INSTANCE, MIG_0B),
        (INSTANCE, f"{MIG_0}::1"),
        (INSTANCE, "nvidia0/gi3"),
        (INSTANCE, "nvidia0/gi3/vgpu2"),
        (INSTANCE, f"MIG-{UUID_0}/3/0"),
    ],
)
def test_a_gpu_under_any_of_its_names_carries_its_pods_labels(
    kubelet: FakeKubelet, tmp_path: Path, gpu: SomeGpu, device_id: str
) -> None:
    given(kubelet, ("nvidia.com/mig-1g.5gb" if gpu.gi_id else "nvidia.com/gpu", device_id))
    node = Node(tmp_path)
    node.attribution.refresh()
    (labels,) = node.labels(gpu)
    assert TRAIN.items() <= labels.items()
    others = [other for other in (GPU_0, GPU_1, INSTANCE) if other is not gpu]
    assert all(node.labels(other) == ({},) for other in others), "no other GPU has labels"
    assert node.errors == []


def test_a_renamed_resource_is_taken_by_its_uuid_and_another_vendors_number_is_not(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    given(kubelet, ("example.com/shared-gpu", UUID_0), ("other.com/fpga", "nvidia1"), ("cpu.com/x", "gpu1"))
    node = Node(tmp_path)
    node.attribution.refresh()
    assert node.labels(GPU_0) == (TRAIN,)
    assert node.labels(GPU_1) == ({},)


def test_a_gpu_that_pods_share_keeps_only_the_labels_on_which_they_agree(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.answer = pod("train-0", "ml", container("torch", ("nvidia.com/gpu.shared", f"{UUID_0}::0"))) + pod(
        "serve-0", "ml", container("vllm", ("nvidia.com/gpu.shared", f"{UUID_0}::1"))
    )
    node = Node(tmp_path)
    node.attribution.refresh()
    assert node.labels(GPU_0) == ({"namespace": "ml"},)


def test_with_shared_gpus_each_series_is_written_once_for_each_container_and_its_share(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    kubelet.answer = pod("train-0", "ml", container("torch", ("nvidia.com/gpu", f"{UUID_0}::0"))) + pod(
        "serve-0", "ml", container("vllm", ("nvidia.com/gpu", f"{UUID_0}::1"))
    )
    node = Node(tmp_path, shared_gpus=True)
    node.attribution.refresh()
    assert node.labels(GPU_0) == ({**TRAIN, "vgpu": "0"}, {**SERVE, "vgpu": "1"})
    assert node.labels(GPU_1) == ({},), "a GPU without a pod is still written"


def test_a_gpu_by_resource_claim_carries_the_claim_too(kubelet: FakeKubelet, tmp_path: Path) -> None:
    claims = claim("train-gpu", "gpu-1") + claim("nic", "gpu-0", driver="other.example.com")
    kubelet.answer = pod("train-0", "ml", container("torch", claims=claims))
    node = Node(tmp_path)
    node.attribution.refresh()
    (labels,) = node.labels(GPU_1)
    assert labels == {
        **TRAIN,
        "dra_claim_name": "train-gpu",
        "dra_claim_namespace": "claims",
        "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": "node-pool",
        "dra_device_name": "gpu-1",
    }
    assert node.labels(GPU_0) == ({},)


def test_the_last_answer_is_used_while_the_kubelet_restarts_and_the_failure_is_counted(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    given(kubelet, ("nvidia.com/gpu", UUID_0))
    node = Node(tmp_path)
    node.attribution.refresh()
    kubelet.stop()
    node.attribution.refresh()
    assert node.errors == ["kubelet"]
    assert node.labels(GPU_0) == (TRAIN,)
    kubelet.start()
    kubelet.answer = pod("serve-0", "ml", container("vllm", ("nvidia.com/gpu", UUID_0)))

    def renewed() -> bool:
        node.attribution.refresh()
        return node.labels(GPU_0) == (SERVE,)

    eventually(renewed)


def test_a_kubelet_that_refuses_is_counted_with_grpcs_reason(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.status = grpc.StatusCode.PERMISSION_DENIED
    client = PodResources(kubelet.socket)
    with pytest.raises(ServiceError, match="set to refuse") as refused:
        client.allocations()
    client.close()
    assert refused.value.reason == "permission_denied"


def test_an_answer_that_is_no_answer_is_an_error_and_changes_nothing(kubelet: FakeKubelet, tmp_path: Path) -> None:
    given(kubelet, ("nvidia.com/gpu", UUID_0))
    node = Node(tmp_path)
    node.attribution.refresh()
    kubelet.answer = b"\xff\xff\xff"
    node.attribution.refresh()
    assert node.errors == ["kubelet"]
    assert node.labels(GPU_0) == (TRAIN,)


def test_no_interval_waits_for_a_slow_kubelet(kubelet: FakeKubelet, tmp_path: Path) -> None:
    given(kubelet, ("nvidia.com/gpu", UUID_0))
    kubelet.may_answer.clear()
    with Node(tmp_path).attribution as attribution:
        eventually(lambda: kubelet.calls == 1)
        with Stopwatch() as took:
            assert attribution.labels_for(GPU_0) == ({},)
        assert took.seconds < 0.1
        kubelet.may_answer.set()
        eventually(lambda: attribution.labels_for(GPU_0) == (TRAIN,))


def test_a_node_without_a_kubelet_is_no_error_and_one_that_comes_later_is_found(tmp_path: Path) -> None:
    node = Node(tmp_path, kubernetes="auto")
    node.attribution.refresh()
    assert node.labels(GPU_1) == ({},)
    assert node.errors == []
    kubelet = FakeKubelet(tmp_path / "kubelet.sock").start()
    try:
        given(kubelet, ("nvidia.com/gpu", UUID_1))
        node.attribution.refresh()
        assert node.labels(GPU_1) == (TRAIN,)
    finally:
        kubelet.stop()


def test_turned_off_the_kubelet_is_never_asked(kubelet: FakeKubelet, tmp_path: Path) -> None:
    given(kubelet, ("nvidia.com/gpu", UUID_0))
    node = Node(tmp_path, kubernetes="off")
    node.attribution.refresh()
    assert (kubelet.calls, node.labels(GPU_0)) == (0, ({},))


class Daemon:
    """A whole daemon with two GPUs, beside a kubelet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kubelet: FakeKubelet, broker: EmbeddedBroker) -> None:
        gpus = node(gpu(UUID_0, **{"nvmlDeviceGetTemperature:0": 40}), gpu(UUID_1, 1))
        nvml = NvmlSource(Sampler(playing(gpus)), hostname="n", boot_ns=1)
        monkeypatch.setattr(assembly, "open_nvml", lambda *_, **__: nvml.start())
        self.flags: dict[str, object] = {
            "pod_resources_socket": kubelet.socket,
            "web": {"listen_address": "127.0.0.1:0"},
            "device_metrics": "on",
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
        }

    def page(self, directory: Path, **more: object) -> list[str]:
        """The lines of its page after an interval."""
        places = {"socket_path": directory / "probe.sock", "state_directory": directory / "state"}
        settings = load("exporter", ExporterSettings, path=None, flags=self.flags | places | more, environ={})
        with assembly.assembled(settings, Shutdown()) as (daemon, web, _):
            daemon.interval()
            with urllib.request.urlopen(f"{web.url}/metrics", timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own page
                return str(answer.read().decode()).splitlines()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, kubelet: FakeKubelet, broker: EmbeddedBroker) -> Daemon:
    given(kubelet, ("nvidia.com/gpu", UUID_1))
    return Daemon(monkeypatch, kubelet, broker)


def test_the_daemons_page_shows_the_pod_of_each_gpu_and_gpus_and_tpus_side_by_side(
    daemon: Daemon, tmp_path: Path
) -> None:
    runtime = FakeRuntime(**{"tpu.runtime.hbm.memory.usage.bytes": gauge(of_device(0), 2**33)}).start()
    page = daemon.page(tmp_path, tpu="on", tpu_ports=[runtime.port])
    runtime.stop()
    used = [line for line in page if line.startswith("kernelcast_accelerator_memory_used_bytes{")]
    assert [line[line.index('accelerator="') :].split('"')[1] for line in used] == ["gpu", "gpu", "tpu"]
    assert used[2].endswith(f" {2**33}")
    lines = [line for line in page if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
    assert [("pod=" in line, line.rpartition(" ")[2]) for line in lines] == [(False, "40"), (True, "41")]
    assert 'container="torch"' in lines[1]
    assert 'namespace="ml"' in lines[1]
    assert 'pod="train-0"' in lines[1]
    assert 'kernelcast_exporter_attribution_errors_total{source="kubelet"} 0.0' in page
    assert any(line.startswith('kernelcast_exporter_attribution_age_seconds{source="kubelet"}') for line in page)


def test_the_gpus_of_a_recording_have_no_users_here(daemon: Daemon, tmp_path: Path) -> None:
    page = daemon.page(tmp_path, nvml_recording=tmp_path / "elsewhere.json")
    lines = [line for line in page if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
    assert [line.rpartition(" ")[2] for line in lines] == ["40", "41"]
    assert not any("pod=" in line for line in lines)


IMPORTED = """
import sys
import kernelcast.exporter.assembly
print(sorted(name for name in ("grpc", "google.protobuf") if name in sys.modules))
"""


def test_a_node_without_a_kubelet_or_tpu_pays_neither_for_grpc_nor_for_protobuf() -> None:
    command = [sys.executable, "-c", IMPORTED]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout == "[]\n"


def test_without_grpcio_on_is_refused_with_a_remedy_and_auto_continues(
    kubelet: FakeKubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtraError, match=r"grpcio is not installed; pip install 'kernelcast\[exporter,grpc\]'"):
        Node(tmp_path)
    node = Node(tmp_path, kubernetes="auto")
    node.attribution.refresh()
    assert node.errors == ["kubelet"]
    assert node.labels(GPU_0) == ({},)
