"""The probe and the daemon's end of the socket, together over a real Unix socket."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kernelcast.exporter.aggregate import Aggregator
from kernelcast.exporter.probe_devices import DeviceResolver
from kernelcast.exporter.probe_limits import ProbeLimits
from kernelcast.exporter.probe_server import ProbeServer
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tunables import Terms
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState
from kernelcast.wire.identity import Device

GPU = Device("node", "GPU-1", "0", model_name="NVIDIA A100")
PATIENCE_SECONDS = 20.0


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


class Node:
    """A daemon's end with an aggregator behind it, as the exporter has; can be restarted."""

    def __init__(self, path: Path, limits: ProbeLimits | None = None, uids: tuple[int, ...] | None = None) -> None:
        self.path = path
        self.limits = limits
        self.uids = uids
        self.totals: dict[str, tuple[int, int, int]] = {}
        self.outcomes: list[Outcome] = []
        self.finals = 0
        self.begin()

    def begin(self) -> None:
        self.registry = CollectorRegistry()
        self.aggregator = Aggregator(max_kernels=None)
        self.server = ProbeServer(
            self.path,
            clock=time.time_ns,
            registry=self.registry,
            devices=DeviceResolver("node", lambda: (GPU,)),
            allowed_uids=self.uids,
            limits=self.limits,
        )
        self.server.start()

    def restart(self) -> None:
        self.server.close()
        self.begin()

    def turn(self) -> None:
        for report in self.server.poll(time.time_ns()).reports:
            self.finals += report.final
            self.aggregator.report(report)
        self.outcomes += self.server.outcomes()

    def launches(self) -> int:
        self.turn()
        return self.aggregator.counts.launches

    def ended(self) -> int:
        self.turn()
        return self.finals

    def states(self) -> list[OutcomeState]:
        self.turn()
        return [outcome.state for outcome in self.outcomes]

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


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


def test_what_the_program_reported_is_what_the_daemon_has(node: Node) -> None:
    probe = start(node)
    for duration_ns in range(1, 501):
        probe.observe("stencil(float*)", duration_ns, block="48x1x1", grid="7x1x1")
    probe.count("stencil(float*)", 500)
    probe.copy("h2d", 4096, 700, pinned=True)
    probe.sync("stream", 900)
    probe.stop()
    eventually(lambda: node.launches() == 1000)
    series = next(iter(node.aggregator.members.values())).series
    assert node.ended() == 1
    assert series.key.uuid == "GPU-1"


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


def test_a_hint_changes_the_value_at_a_step_boundary_and_its_outcome_comes_back(node: Node) -> None:
    probe = start(node)
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
