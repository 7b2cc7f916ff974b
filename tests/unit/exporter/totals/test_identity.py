"""Identity: instances, processes, ranks, pods and restarts, from frames on a connection to their series."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.registry import ProbeRegistry
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.frames import Bye, DeviceClaim, Hello, KernelRows, Names, Status, decode, encode
from kernelcast.wire.identity import Device

SECOND_NS = 1_000_000_000
INSTANCES = (
    Device("node1", "GPU-a", "0", gi_id="3", gi_profile="1g.18gb", mig_uuids=("MIG-3",)),
    Device("node1", "GPU-a", "0", gi_id="5", gi_profile="1g.18gb", mig_uuids=("MIG-5",)),
)
GPUS = (Device("node1", "GPU-b", "1"), Device("node1", "GPU-c", "2"))

Series = tuple[str, str, str, str]
"""UUID, GPU_I_ID, program, rank."""


@dataclass
class Process:
    """A program's process: its recorder goes on counting whatever becomes of connections and of the daemon."""

    nonce: str
    rank: str = ""
    program: str = "train"
    pid: int = 1
    uuid: str = "GPU-b"
    recorder: Recorder = field(default_factory=Recorder)
    launched: int = 0

    def launch(self, times: int = 1) -> None:
        for _ in range(times):
            self.recorder.observe("gemm", 1000)
            self.recorder.sync("stream", 10)
        self.launched += times

    def hello(self) -> Hello:
        claims = (DeviceClaim(self.uuid),)
        return Hello(self.program, self.nonce, SECOND_NS, self.pid, rank=self.rank, devices=claims, version="1")

    def tell(self, session: ProbeSession) -> None:
        """Everything once more, as after a new connection; through bytes, as on the socket."""
        for device in self.recorder.devices():
            cells = self.recorder.cells(device)
            names, rows = Names(tuple(cell.name() for cell in cells)), tuple(map(self.recorder.take, cells))
            reports = (names, KernelRows(device, rows), self.recorder.counters(device, dropped_frames=0))
            for packet in (packet for frame in reports for packet in encode(frame)):
                session.take(decode(packet))


class Node:
    """The daemon: registry and aggregator; a test ends pids of the node's own namespace."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.aggregator = Aggregator()
        self.registry = self.start()
        self.now_ns = 10 * SECOND_NS
        self.connections = 0

    def start(self) -> ProbeRegistry:
        resolver = DeviceResolver("node1", lambda: (*INSTANCES, *GPUS))
        counts = ProbeCounts(CollectorRegistry())
        return ProbeRegistry(resolver, ProbeLimits(), counts, lambda pid: pid in self.gone)

    def connect(self, process: Process, *, host_pid: int) -> ProbeSession:
        self.connections += 1
        session = self.registry.join(process.hello(), Peer(host_pid, 1000), self.connections)
        assert isinstance(session, ProbeSession)
        process.tell(session)
        return session

    def interval(self) -> None:
        self.now_ns += SECOND_NS
        for report in self.registry.reports(self.now_ns):
            self.aggregator.report(report)

    def launches(self) -> dict[Series, int]:
        found: dict[Series, int] = {}
        for group in self.aggregator.samples(self.now_ns):
            for sample in group.samples:
                if sample.metric is kernel.LAUNCHES:
                    own = dict(sample.attributes)
                    key = (own["UUID"], own.get("GPU_I_ID", ""), own["program"], own.get("rank", ""))
                    assert key not in found, "a series is shown twice"
                    found[key] = int(str(sample.value))
        return found


def test_mig_instances_of_one_gpu_are_series_of_their_own_under_their_gpus_uuid() -> None:
    node = Node()
    for number, uuid in enumerate(("MIG-3", "MIG-5"), 1):
        process = Process(f"n{number}", uuid=uuid)
        process.launch(number)
        node.connect(process, host_pid=100 + number)
    node.interval()
    assert node.launches() == {("GPU-a", "3", "train", ""): 1, ("GPU-a", "5", "train", ""): 2}


def test_processes_that_share_a_gpu_and_a_program_are_one_series() -> None:
    node = Node()
    for number in range(1, 4):
        process = Process(f"n{number}")
        process.launch(number)
        node.connect(process, host_pid=100 + number)
    node.interval()
    assert node.launches() == {("GPU-b", "", "train", ""): 6}


def test_ranks_of_one_program_on_one_gpu_or_two_are_series_of_their_own() -> None:
    node = Node()
    for rank, uuid in (("0", "GPU-b"), ("1", "GPU-b"), ("2", "GPU-c")):
        process = Process(f"n{rank}", rank=rank, uuid=uuid)
        process.launch(1 + int(rank))
        node.connect(process, host_pid=100 + int(rank))
    node.interval()
    assert node.launches() == {
        ("GPU-b", "", "train", "0"): 1,
        ("GPU-b", "", "train", "1"): 2,
        ("GPU-c", "", "train", "2"): 3,
    }


@pytest.mark.parametrize("host_pids", [(4001, 4002), (0, 0)], ids=["seen from the host", "not visible"])
def test_pods_that_are_each_pid_1_are_distinguished_and_end_separately(host_pids: tuple[int, int]) -> None:
    node = Node()
    pods = [Process("pod-a", pid=1), Process("pod-b", pid=1)]
    for pod, host_pid in zip(pods, host_pids, strict=True):
        pod.launch(2)
        node.connect(pod, host_pid=host_pid)
    node.interval()
    assert node.launches() == {("GPU-b", "", "train", ""): 4}
    node.registry.leave(1, node.now_ns)
    node.gone.add(4001)
    pods[1].launch(3)
    node.connect(pods[1], host_pid=host_pids[1])
    node.interval()
    assert node.launches() == {("GPU-b", "", "train", ""): 7}


def test_a_killed_process_keeps_its_totals_and_its_successor_adds_to_them() -> None:
    node = Node()
    killed = Process("n1")
    killed.launch(5)
    session = node.connect(killed, host_pid=101)
    session.take(Status("event", "active"))
    node.interval()
    node.registry.leave(1, node.now_ns)
    node.gone.add(101)
    successor = Process("n2")
    successor.launch(2)
    node.connect(successor, host_pid=102)
    node.interval()
    assert node.launches() == {("GPU-b", "", "train", ""): 7}
    states = [one for group in node.aggregator.samples(node.now_ns) for one in group.samples]
    assert not [one for one in states if one.metric is kernel.PROBE_STATE]


def test_a_nonce_identifies_the_process_with_any_pid_and_connection() -> None:
    node = Node()
    process = Process("n1")
    process.launch(5)
    node.connect(process, host_pid=101)
    node.interval()
    node.registry.leave(1, node.now_ns)
    process.launch(1)
    node.connect(process, host_pid=101)
    node.interval()
    assert node.launches() == {("GPU-b", "", "train", ""): 6}


events = st.lists(
    st.tuples(
        st.sampled_from(["launch", "tell", "kill", "bye", "reconnect", "interval"]),
        st.integers(0, 3),
    ),
    max_size=40,
)
PLACES = (("GPU-b", ""), ("GPU-b", ""), ("GPU-c", "1"), ("MIG-3", ""))
SERIES = (
    ("GPU-b", "", "train", ""),
    ("GPU-b", "", "train", ""),
    ("GPU-c", "", "train", "1"),
    ("GPU-a", "3", "train", ""),
)


class History:
    """Four places where processes come and go; each is pid 1 in its own pod."""

    def __init__(self) -> None:
        self.node = Node()
        self.pids = 100
        self.truth: dict[Series, int] = {}
        self.processes: list[tuple[Process, int]] = []
        self.sessions: list[tuple[ProbeSession, int]] = []
        for place in range(len(PLACES)):
            self.processes.append(self.born(place))
            self.sessions.append(self.joined(place))

    def born(self, place: int) -> tuple[Process, int]:
        self.pids += 1
        uuid, rank = PLACES[place]
        process = Process(f"nonce{self.pids}", rank=rank, uuid=uuid)
        process.launch()
        return process, self.pids

    def joined(self, place: int) -> tuple[ProbeSession, int]:
        process, pid = self.processes[place]
        return self.node.connect(process, host_pid=pid), self.node.connections

    def launch(self, place: int) -> None:
        self.processes[place][0].launch()

    def tell(self, place: int) -> None:
        self.processes[place][0].tell(self.sessions[place][0])

    def reconnect(self, place: int) -> None:
        self.node.registry.leave(self.sessions[place][1], self.node.now_ns)
        self.sessions[place] = self.joined(place)

    def bye(self, place: int) -> None:
        self.tell(place)
        self.sessions[place][0].take(Bye())
        self.replace(place)

    def kill(self, place: int) -> None:
        """Launches after its last report are lost with it."""
        self.tell(place)
        self.node.gone.add(self.processes[place][1])
        self.replace(place)

    def replace(self, place: int) -> None:
        self.node.registry.leave(self.sessions[place][1], self.node.now_ns)
        series = SERIES[place]
        self.truth[series] = self.truth.get(series, 0) + self.processes[place][0].launched
        self.processes[place] = self.born(place)
        self.sessions[place] = self.joined(place)

    def interval(self, _place: int = 0) -> None:
        self.node.interval()
        self.node.launches()

    def expected(self) -> dict[Series, int]:
        found = dict(self.truth)
        for place, (process, _) in enumerate(self.processes):
            found[SERIES[place]] = found.get(SERIES[place], 0) + process.launched
        return found


@given(events)
def test_every_launch_is_counted_once_in_any_order_of_starts_and_ends(steps: list[tuple[str, int]]) -> None:
    history = History()
    for name, place in steps:
        getattr(history, name)(place)
    for place in range(len(PLACES)):
        history.tell(place)
    history.interval()
    assert history.node.launches() == history.expected()
