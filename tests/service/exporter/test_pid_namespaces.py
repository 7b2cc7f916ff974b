"""Programs that are each pid 1, as in pods: real pid namespaces, a real socket, the kernel's own word for who it is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.service.probe_node import Node
from tests.support.waiting import LONGEST_SECONDS, eventually

from kernelcast.exporter.attribution.attribution import AttributedGpu
from kernelcast.exporter.attribution.cgroup import membership
from kernelcast.exporter.attribution.programs import ProgramUsers

PROGRAM = """
import os, sys, time
from kernelcast import probe
assert os.getpid() == 1
probe.start(sys.argv[2], socket_path=sys.argv[1])
for _ in range(int(sys.argv[3])):
    probe.observe("axpy", 1_000)
print("ready", flush=True)
time.sleep(60)
"""


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_unshare(), reason="this user may not make pid namespaces")


class Pod:
    """A program that is pid 1 in a namespace of its own."""

    def __init__(self, node: Node, program: str, launches: int) -> None:
        environ = {**os.environ, "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.02"}
        command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", PROGRAM]
        arguments = [str(node.path), program, str(launches)]
        self.started = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=environ)
        assert self.started.stdout
        assert self.started.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self.started.pid}/task/{self.started.pid}/children").read_text().split()
        self.pid = int(children[0])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.started.wait(LONGEST_SECONDS)
        assert self.started.stdout
        self.started.stdout.close()


@contextmanager
def pods(node: Node, **launches: int) -> Iterator[dict[str, Pod]]:
    running: dict[str, Pod] = {}
    try:
        for program, number in launches.items():
            running[program] = Pod(node, program, number)
        yield running
    finally:
        for pod in running.values():
            if pod.started.poll() is None:
                pod.kill()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "probe.sock")
    yield made
    made.server.close()


def test_two_pods_that_are_each_pid_1_are_known_by_the_hosts_pids(node: Node) -> None:
    asked: dict[int, object] = {}

    def labels_of(_gpu: AttributedGpu, pid: int) -> Mapping[str, str]:
        asked[pid] = membership(pid)
        return {"pod": f"pod-of-{pid}"}

    with pods(node, train=3, serve=5) as running:
        eventually(lambda: node.launches() == 8)
        samples = ProgramUsers(node.server.processes, labels_of).poll(1).samples
        found = {dict(one.attributes)["program"]: dict(one.attributes)["pod"] for one in samples}
        assert found == {program: f"pod-of-{pod.pid}" for program, pod in running.items()}
        assert asked == {pod.pid: membership(os.getpid()) for pod in running.values()}, "their cgroups can be read"


def test_a_pod_that_is_killed_and_started_again_is_another_process_with_the_same_pid_inside(node: Node) -> None:
    with pods(node, train=3) as running:
        eventually(lambda: node.launches() == 3)
        running["train"].kill()
        eventually(lambda: node.ended() == 1)
        running["again"] = Pod(node, "train", 4)
        eventually(lambda: node.launches() == 7)
        assert [one.peer_pid for one in node.server.processes()] == [running["again"].pid]


def test_a_daemon_that_is_not_in_the_hosts_pid_namespace_knows_it() -> None:
    asked = "from kernelcast.exporter.attribution.cgroup import sees_host_pids; print(sees_host_pids())"
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", asked]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    assert answer == "False\n"
