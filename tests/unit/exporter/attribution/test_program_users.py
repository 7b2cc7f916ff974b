"""Owners of programs: pods that are each pid 1, ranks, restarts, MIG; through the registry, as from the socket."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.exporter.cgroup_node import FLAT, ID, OUTER, STATIC, Node
from tests.support.exporter.gpus import MIG_0, UUID_0

from kernelcast.columnar import Sample
from kernelcast.exporter.attribution.programs import ProgramUsers
from kernelcast.exporter.nvml.samples import CounterStarts, to_samples
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, ProcessUse
from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.process import ProbeProcess
from kernelcast.exporter.programs.registry import ProbeRegistry, RejectedProcess
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import gpu
from kernelcast.wire.frames import Bye, DeviceClaim, Hello, KernelName, KernelRow, KernelRows, Names
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device

NOW_NS = 10**18
WHOLE = Device("n", UUID_0, "0", device="nvidia0")
INSTANCE = Device("n", UUID_0, "0", "", "nvidia0", "", "3", "1g.10gb", (MIG_0,))
WHO: tuple[str, ...] = ("pod", "namespace", "container", "hpc_job", "user")
IN_TRAIN = f"/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope"
IN_SERVE = f"/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{OUTER}.scope"


class Host:
    """A node with a registry of programs, and an aggregator behind it."""

    def __init__(self, tmp_path: Path, *devices: Device) -> None:
        self.node = Node(tmp_path)
        self.ended: set[int] = set()
        self.registry = ProbeRegistry(
            DeviceResolver("n", lambda: devices or (WHOLE,)),
            ProbeLimits(),
            ProbeCounts(CollectorRegistry()),
            ended=lambda pid: pid in self.ended,
        )
        self.aggregator = Aggregator()
        self.connections = 0
        self.users = ProgramUsers(
            lambda: map(ProbeProcess.of, self.registry.entries()), self.node.attribution.labels_of_pid
        )

    def pods(self) -> None:
        """Two pods on the node."""
        self.node.log_of("train-0", "ml", "torch", ID)
        self.node.log_of("serve-0", "ml", "vllm", OUTER, uid=STATIC)
        self.node.attribution.refresh()

    def join(self, nonce: str, pid: int, *, program: str = "train", rank: str = "", uuid: str = UUID_0) -> ProbeSession:
        """A process that calls itself pid 1, as in a pod, and is `pid` to the kernel."""
        self.connections += 1
        hello = Hello(program, nonce, 1, 1, rank, devices=(DeviceClaim(uuid),))
        joined = self.registry.join(hello, Peer(pid, 0), self.connections)
        assert not isinstance(joined, RejectedProcess)
        return joined

    def launch(self, session: ProbeSession, launches: int) -> None:
        durations = DurationTotals()
        durations.observe(1_000, launches)
        session.take(Names((KernelName(1, "axpy"),)))
        session.take(KernelRows(0, (KernelRow(1, launches, durations),)))

    def launches(self) -> dict[tuple[str, str, str], float]:
        """(program, rank, GPU instance) to launches."""
        for report in self.registry.reports(NOW_NS):
            self.aggregator.report(report)
        found: dict[tuple[str, str, str], float] = {}
        for group in self.aggregator.samples(NOW_NS):
            for sample in group.samples:
                if sample.metric is kernel.LAUNCHES:
                    own = dict(sample.attributes)
                    key = own["program"], own.get("rank", ""), own.get("GPU_I_ID", "")
                    assert key not in found, "each series stands once"
                    assert isinstance(sample.value, int)
                    found[key] = sample.value
        return found

    def who(self) -> dict[tuple[str, str], dict[str, str]]:
        """(program, rank) to its labels."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for sample in self.users.poll(NOW_NS).samples:
            own = dict(sample.attributes)
            who = {name: own[name] for name in WHO if name in own}
            found[own["program"], own.get("rank", "")] = who
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_two_pods_that_are_each_pid_1_are_two_programs_with_their_own_pods(host: Host) -> None:
    host.node.process(4001, IN_TRAIN)
    host.node.process(4002, IN_SERVE)
    host.pods()
    host.launch(host.join("a", 4001, program="train"), 3)
    host.launch(host.join("b", 4002, program="serve"), 5)
    assert host.launches() == {("train", "", ""): 3, ("serve", "", ""): 5}
    assert host.who() == {
        ("train", ""): {"pod": "train-0", "namespace": "ml", "container": "torch"},
        ("serve", ""): {"pod": "serve-0", "namespace": "ml", "container": "vllm"},
    }


def test_two_pods_of_one_program_are_summed_and_have_their_common_labels(host: Host) -> None:
    host.node.process(4001, IN_TRAIN)
    host.node.process(4002, IN_SERVE)
    host.pods()
    host.launch(host.join("a", 4001), 3)
    host.launch(host.join("b", 4002), 5)
    assert host.launches() == {("train", "", ""): 8}
    assert host.who() == {("train", ""): {"namespace": "ml"}}


def test_a_pod_that_restarts_continues_its_totals(host: Host) -> None:
    host.node.process(4001, IN_TRAIN)
    host.node.process(4003, IN_TRAIN)
    host.pods()
    first = host.join("a", 4001)
    host.launch(first, 3)
    assert host.launches() == {("train", "", ""): 3}
    host.registry.leave(1, NOW_NS)
    host.ended.add(4001)
    host.launch(host.join("a2", 4003), 2)
    assert host.launches() == {("train", "", ""): 5}
    host.launch(host.join("a2", 4003), 4)
    assert host.launches() == {("train", "", ""): 7}, "4 since its start, of which 2 were counted"
    assert host.who()["train", ""]["pod"] == "train-0"


def test_ranks_on_one_node_and_one_gpu_stay_apart_and_their_ends_too(host: Host) -> None:
    host.node.process(4001, "/slurm/uid_1000/job_42/step_0")
    host.node.process(4002, "/slurm/uid_1000/job_42/step_0")
    host.pods()
    zero, one = host.join("a", 4001, rank="0"), host.join("b", 4002, rank="1")
    host.launch(zero, 3)
    host.launch(one, 5)
    assert host.launches() == {("train", "0", ""): 3, ("train", "1", ""): 5}
    assert {key: labels["hpc_job"] for key, labels in host.who().items()} == {
        ("train", "0"): "42",
        ("train", "1"): "42",
    }
    one.take(Bye())
    assert host.launches() == {("train", "0", ""): 3, ("train", "1", ""): 5}
    assert set(host.who()) == {("train", "0")}


def test_programs_on_a_mig_instance_and_on_a_whole_gpu_are_different_series(tmp_path: Path) -> None:
    host = Host(tmp_path, WHOLE, INSTANCE)
    host.launch(host.join("a", 4001), 3)
    host.launch(host.join("b", 4002, uuid=MIG_0), 5)
    assert host.launches() == {("train", "", ""): 3, ("train", "", "3"): 5}


def test_a_program_outside_our_pid_namespace_has_no_labels_instead_of_those_of_our_pid_1(host: Host) -> None:
    host.node.process(1, IN_TRAIN)
    host.pods()
    host.join("a", 0)
    assert host.who() == {}


def test_processes_on_a_time_sliced_gpu_carry_the_pod_that_each_belongs_to(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.node.process(4001, IN_TRAIN)
    host.node.process(4002, IN_SERVE)
    host.pods()
    uses = (ProcessUse(4001, "compute", 2**30, 40), ProcessUse(4002, "compute", 2**31, 10))
    reading = NodeReading(NOW_NS, gpus=(GpuReading(UUID_0, "0", device="nvidia0", processes=uses),))
    samples = to_samples(reading, hostname="n", start_of=CounterStarts(1), users=host.node.attribution)
    assert by_pod(samples, gpu.PROCESS_MEMORY.prometheus_name) == {"train-0": 2**30, "serve-0": 2**31}
    assert by_pod(samples, gpu.PROCESS_SM.prometheus_name) == {"train-0": 0.4, "serve-0": 0.1}


def by_pod(samples: list[Sample], name: str) -> Mapping[str, object]:
    rows = [sample for sample in samples if sample.metric.prometheus_name == name]
    return {dict(sample.attributes)["pod"]: sample.value for sample in rows}


def test_the_image_of_a_programs_container_is_asked_for_until_it_is_known_and_never_again(host: Host) -> None:
    asked: list[int] = []
    images = {4001: ""}

    def image_of(pid: int) -> str:
        asked.append(pid)
        return images[pid]

    host.registry.image_of = image_of
    session = host.join("a", 4001)

    def shown() -> list[str]:
        host.launch(session, len(asked) + 1)
        host.launches()
        samples = [sample for group in host.aggregator.samples(NOW_NS) for sample in group.samples]
        return [dict(one.attributes)["image"] for one in samples if one.metric is kernel.PROGRAM_INFO]

    assert shown() == []
    images[4001] = "train:1@0123456789ab"
    assert shown() == ["train:1@0123456789ab"]
    images[4001] = ""
    assert shown() == ["train:1@0123456789ab"]
    assert asked == [4001, 4001]


def test_the_image_that_a_program_names_itself_wins(host: Host) -> None:
    host.registry.image_of = lambda _pid: "from the API server"
    hello = Hello("train", "a", 1, 1, image="named:1", devices=(DeviceClaim(UUID_0),))
    joined = host.registry.join(hello, Peer(4001, 0), 1)
    assert not isinstance(joined, RejectedProcess)
    host.launch(joined, 1)
    assert [report.versions.image for report in host.registry.reports(NOW_NS)] == ["named:1"]
