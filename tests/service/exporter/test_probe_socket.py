"""The probe and the daemon's end of the socket, together over a real Unix socket and with real processes."""

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.service.probe_node import Node
from tests.support.waiting import LONGEST_SECONDS, Stopwatch, eventually, wait_for

from kernelcast.exporter.assembly import assembled
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tunables import Terms
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import load
from kernelcast.tuning.experiment.arms import Rules
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.events import Hint, HintMode, OutcomeState
from kernelcast.wire.frames import (
    MAX_FRAME_BYTES,
    DeviceClaim,
    Hello,
    KernelName,
    KernelRow,
    KernelRows,
    Names,
    Reception,
    decode,
    encode,
)
from kernelcast.wire.histogram import DurationTotals


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "probe.sock")
    yield node
    node.server.close()


def start(node: Node, **settings: object) -> Probe:
    probe = Probe(
        ProbeSettings("training", socket_path=str(node.path), interval_seconds=0.02, **settings)  # type: ignore[arg-type]
    )
    probe.start()
    return probe


def hint(**changes: object) -> Hint:
    facts: dict[str, object] = {
        "hint_id": "h1",
        "program": "training",
        "tunable": "block_size",
        "value": "128",
        "expires_at_ns": time.time_ns() + 60 * 10**9,
        "mode": HintMode.APPLY,
    }
    return Hint(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_daemon_has_the_programs_reported_totals(node: Node) -> None:
    probe = start(node)
    for duration_ns in range(1, 501):
        probe.observe("stencil(float*)", duration_ns, block="48x1x1", grid="7x1x1")
    probe.count("stencil(float*)", 500)
    probe.copy("h2d", 4096, 700, pinned=True)
    probe.sync("stream", 900)
    probe.stop()
    eventually(lambda: node.launches() == 1000)
    series = next(iter(node.aggregator.members.values())).series
    eventually(lambda: node.ended() == 1)
    assert series.key.uuid == "GPU-1"


def test_a_probe_is_connected_only_while_the_daemon_is_there(node: Node) -> None:
    probe = start(node)
    assert not probe.connected
    probe.observe("a", 10)
    eventually(lambda: probe.connected)
    node.server.close()
    eventually(lambda: not probe.connected)
    probe.stop()
    assert not probe.connected


def test_a_restart_of_the_daemon_loses_and_doubles_nothing(node: Node) -> None:
    probe = start(node)
    for _ in range(100):
        probe.observe("a", 10)
    eventually(lambda: node.launches() == 100)
    node.restart()
    for _ in range(11):
        probe.observe("b", 10)
    eventually(lambda: node.launches() == 111)
    probe.stop()
    eventually(lambda: node.ended() == 1)
    assert node.launches() == 111


def test_a_program_that_ends_while_it_waits_to_reconnect_still_sends_everything(node: Node) -> None:
    probe = start(node)
    probe.observe("a", 10)
    eventually(lambda: node.launches() == 1)
    node.server.close()
    probe.observe("a", 10)
    time.sleep(1.0)  # by now it pauses between its attempts for longer than the daemon needs to come back
    node.begin()
    probe.stop()
    eventually(lambda: node.ended() == 1)
    assert node.launches() == 2


def test_a_hint_changes_the_value_at_a_step_boundary_and_its_outcome_comes_back(node: Node) -> None:
    probe = start(node, devices=(DeviceClaim("GPU-1"),))
    block = probe.tunable("block_size", [48, 128], 48, Terms(kind="block_size"))
    probe.step()
    eventually(lambda: bool(node.server.processes() and node.server.processes()[0].tunables))
    assert node.server.deliver(hint()) == 1
    eventually(lambda: OutcomeState.RECEIVED in node.states())
    assert block.value == 48
    probe.step()
    assert block.value == 128
    eventually(lambda: OutcomeState.APPLIED in node.states())
    applied = node.outcomes[-1]
    assert (applied.hostname, applied.uuid, applied.value, applied.previous) == ("node", "GPU-1", "128", "48")
    probe.stop()


def test_a_hint_waits_for_a_program_that_starts_later(node: Node) -> None:
    assert node.server.deliver(hint()) == 0
    probe = start(node)
    probe.tunable("block_size", [48, 128], 48)
    probe.step()
    eventually(lambda: OutcomeState.RECEIVED in node.states())
    probe.stop()


def test_a_value_outside_the_allow_list_and_an_expired_hint_come_back_refused(node: Node) -> None:
    probe = start(node)
    block = probe.tunable("block_size", [48, 128], 48)
    probe.step()
    node.server.deliver(hint(value="100"))
    eventually(lambda: OutcomeState.REJECTED in node.states())
    node.server.deliver(hint(hint_id="h2", expires_at_ns=time.time_ns() + 2 * 10**8))
    eventually(lambda: bool(node.states()) and any(outcome.hint_id == "h2" for outcome in node.outcomes))
    time.sleep(0.25)
    probe.step()
    eventually(lambda: OutcomeState.EXPIRED in node.states())
    assert block.value == 48
    probe.stop()


def test_a_better_value_is_measured_kept_and_reported_with_its_ratio(node: Node) -> None:
    probe = start(node)
    block = probe.tunable("block_size", [48, 128], 48, Terms(kernels=("stencil",)))
    probe.step()
    eventually(lambda: bool(node.server.processes()))
    node.server.deliver(hint(mode=HintMode.CANARY))

    def step() -> bool:
        for _ in range(10):
            probe.observe("stencil", 1000 if block.value == 48 else 600)
            probe.step()
        return OutcomeState.KEPT in node.states()

    eventually(step)
    kept = node.outcomes[-1]
    assert kept.measured_ratio == pytest.approx(0.6)
    assert kept.pairs >= Rules().minimum_blocks  # the order is drawn at random, so the number varies
    assert 0 < kept.candidate_steps <= Rules().maximum_new
    assert block.value == 128
    eventually(lambda: node.server.processes()[0].tunables[0].value == "128")
    assert node.server.processes()[0].tunables[0].device_model == "NVIDIA A100"
    probe.stop()


def test_a_hint_for_another_gpu_model_or_program_is_not_delivered(node: Node) -> None:
    probe = start(node)
    probe.tunable("block_size", [48, 128], 48)
    probe.step()
    eventually(lambda: bool(node.server.processes() and node.server.processes()[0].tunables))
    assert node.server.deliver(hint(device_model="NVIDIA H100")) == 0
    assert node.server.deliver(hint(program="other")) == 0
    assert node.server.deliver(hint(rank="1")) == 0
    assert node.server.deliver(hint(tunable="tile")) == 0
    assert node.server.deliver(hint(expires_at_ns=1)) == 0
    probe.stop()


CHILD = """
import sys, time
from kernelcast import probe
probe.start("training", socket_path=sys.argv[1])
for _ in range(250):
    probe.observe("work", 100)
print("ready", flush=True)
{end}
"""


def child(node: Node, end: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.02"}
    command = [sys.executable, "-c", CHILD.format(end=end), str(node.path)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    assert started.stdout
    assert started.stdout.readline() == "ready\n"
    return started


def end(started: subprocess.Popen[str]) -> None:
    assert started.stdout
    started.wait(LONGEST_SECONDS)
    started.stdout.close()


def test_a_program_that_just_ends_has_sent_everything(node: Node) -> None:
    end(child(node, "pass"))
    eventually(lambda: node.ended() == 1)
    assert node.launches() == 250


def test_the_totals_of_a_killed_program_stay_and_become_final(node: Node) -> None:
    started = child(node, "time.sleep(60)")
    eventually(lambda: node.launches() == 250)
    assert node.server.processes()[0].process.pid == started.pid
    os.kill(started.pid, signal.SIGKILL)
    end(started)
    eventually(lambda: node.ended() == 1)
    assert node.launches() == 250
    assert node.server.processes() == []


def test_a_forked_child_is_silent_until_it_starts_its_own_probe(node: Node) -> None:
    script = """
import os
time.sleep(0.3)
child = os.fork()
if child == 0:
    for _ in range(1000):
        probe.observe("work", 100)
    probe.step()
    grandchild = os.fork()
    if grandchild == 0:
        probe.start("training", socket_path=sys.argv[1])
        probe.observe("work", 100)
    else:
        os.waitpid(grandchild, 0)
    sys.exit(0)
os.waitpid(child, 0)
"""
    end(child(node, script))
    eventually(lambda: node.ended() == 2)
    assert node.launches() == 251


def test_an_exit_is_not_held_up_by_an_exporter_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "probe.sock"))
        listener.listen(1)
        probe = Probe(ProbeSettings("p", socket_path=str(tmp_path / "probe.sock"), interval_seconds=0.02))
        probe.start()
        for number in range(3000):
            probe.observe(f"{'long' * 30} {number}x", 5)
        with Stopwatch() as took:
            probe.stop()
        assert took.seconds < 1.0  # 0.2 s, and room for a busy machine


def raw(node: Node) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_FRAME_BYTES)
    client.settimeout(LONGEST_SECONDS)
    client.connect(str(node.path))
    return client


@pytest.mark.parametrize(
    "packet",
    [
        b"x",
        b"garbage" * 100,
        b"KC\x01\x03\xff",
        b"KC\x01\x01{}",
        b"KC\x01\x01" + b"[" * 5000,
        b"y" * (MAX_FRAME_BYTES + 9),
    ],
)
def test_bad_frames_are_counted_and_too_many_end_the_connection_but_nothing_else(node: Node, packet: bytes) -> None:
    probe = start(node)
    with raw(node) as client:
        for _ in range(ProbeLimits().bad_frames):
            client.send(packet)
        assert refusal(client).startswith(f"{ProbeLimits().bad_frames} bad frames, the last: ")
    assert node.metric("kernelcast_exporter_probe_frames_total", outcome="bad") == ProbeLimits().bad_frames
    assert node.metric("kernelcast_exporter_probe_refused_total", reason="frames") == 1
    probe.observe("a", 1)
    eventually(lambda: node.launches() == 1)
    probe.stop()


def test_users_who_may_not_report_are_turned_away(tmp_path: Path) -> None:
    node = Node(tmp_path / "probe.sock", uids=(os.getuid() + 1,))
    with raw(node) as client:
        assert refusal(client) == f"user {os.getuid()} may not report here"
    assert node.metric("kernelcast_exporter_probe_refused_total", reason="user") == 1
    node.server.close()


def test_the_settings_say_which_users_may_report(tmp_path: Path) -> None:
    flags = {
        "allowed_uids": [os.getuid() + 1],
        "socket_path": str(tmp_path / "probe.sock"),
        "nvml": "off",
        "web.listen_address": "127.0.0.1:0",
        "kafka.bootstrap_servers": "127.0.0.1:1",
    }
    path = tmp_path / "kernelcast.yaml"
    path.write_text("exporter: {state_directory: null}\n")
    settings = load("exporter", ExporterSettings, path=path, flags=flags, environ={})
    with (
        assembled(settings, Shutdown()),
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program,
    ):
        program.settimeout(LONGEST_SECONDS)
        program.connect(str(settings.socket_path))
        assert refusal(program) == f"user {os.getuid()} may not report here"


def test_connections_beyond_the_limit_are_turned_away(tmp_path: Path) -> None:
    node = Node(tmp_path / "probe.sock", limits=ProbeLimits(connections=1))
    with raw(node) as first:
        for packet in encode(Hello("p", "n", 1, 1)):
            first.send(packet)
        eventually(lambda: len(node.server.processes()) == 1)
        with raw(node) as second:
            assert refusal(second) == "1 programs are connected"
        assert node.server.processes()[0].connected
    node.server.close()


def test_without_a_file_left_programs_wait_and_the_daemon_does_not_spin(node: Node) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            program.connect(str(node.path))
            time.sleep(0.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        errors = node.metric("kernelcast_exporter_probe_errors_total")
        assert 1 <= errors <= 10
        eventually(lambda: node.metric("kernelcast_exporter_probe_connections") == 1)


def test_a_stolen_nonce_is_refused(node: Node) -> None:
    started = child(node, "time.sleep(60)")
    eventually(lambda: node.launches() == 250)
    nonce = node.server.processes()[0].process.nonce
    with raw(node) as client:
        for packet in encode(Hello("training", nonce, 1, 1)):
            client.send(packet)
        assert "gave the nonce of process" in refusal(client)
    assert node.metric("kernelcast_exporter_probe_refused_total", reason="foreign") == 1
    started.kill()
    end(started)


def test_a_living_daemon_keeps_its_socket_and_a_dead_ones_is_replaced(node: Node) -> None:
    with pytest.raises(ConfigurationError, match="daemon that is running"):
        Node(node.path)
    stale = node.path.with_name("stale.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(stale))
    other = Node(stale)
    other.server.close()
    assert not stale.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "probe.sock").write_text("mine")
    with pytest.raises(ConfigurationError, match="no socket"):
        Node(tmp_path / "probe.sock")
    assert (tmp_path / "probe.sock").read_text() == "mine"


def refusal(client: socket.socket) -> str:
    """The reason that the exporter gives before it closes a connection."""
    frame = decode(client.recv(MAX_FRAME_BYTES))
    assert isinstance(frame, Reception)
    assert client.recv(1) == b""
    return frame.refusal


def answers(node: Node, hello: Hello, limit: int = 10) -> list[object]:
    """Frames that the exporter sends to a program that has said `Hello` and nothing else."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(2)
        client.connect(str(node.path))
        client.send(next(encode(hello)))
        found: list[object] = []
        while len(found) < limit and (packet := client.recv(MAX_FRAME_BYTES)):
            found.append(decode(packet))
        return found


def test_what_a_program_sent_counts_although_it_was_killed_with_the_answer_unread(node: Node) -> None:
    """The kernel answers the exporter's next read with an error first, and keeps what the program has sent."""
    totals = DurationTotals()
    totals.observe(1_000, 7)
    with raw(node) as client:
        client.send(next(encode(Hello("training", "n1", 1, os.getpid(), devices=(DeviceClaim("GPU-1"),)))))
        eventually(lambda: bool(select.select([client], [], [], 0)[0]))
        with node.server._lock:  # the exporter reads nothing more until the program has ended
            for frame in (Names((KernelName(1, "gemm"),)), KernelRows(0, (KernelRow(1, 7, totals),))):
                for packet in encode(frame):
                    client.send(packet)
            client.close()
    assert wait_for(lambda: node.launches() == 7)


def test_a_program_learns_the_address_of_the_page(node: Node) -> None:
    node.server.page = "http://127.0.0.1:19400/"
    hello = Hello("train", "n1", 1, os.getpid(), devices=(DeviceClaim("GPU-1"),))
    assert answers(node, hello, 1) == [Reception("http://127.0.0.1:19400/")]


def test_a_refused_program_learns_the_reason(tmp_path: Path) -> None:
    node = Node(tmp_path / "full.sock", ProbeLimits(processes=1))
    first = start(node)
    first.observe("conv", 5)
    eventually(lambda: node.launches() == 1)
    hello = Hello("train", "n1", 1, os.getpid(), devices=(DeviceClaim("GPU-1"),))
    assert answers(node, hello) == [Reception(refusal="1 processes are known; raise the limit of processes")]
    first.stop()
    node.server.close()


def test_a_user_who_may_not_report_is_told_before_any_frame(tmp_path: Path) -> None:
    node = Node(tmp_path / "others.sock", uids=(os.getuid() + 1,))
    probe = start(node)
    probe.observe("conv", 5)
    eventually(lambda: bool(probe._sender.reception.refusal))
    assert probe._sender.reception.refusal == f"user {os.getuid()} may not report here"
    probe.stop()
    node.server.close()
