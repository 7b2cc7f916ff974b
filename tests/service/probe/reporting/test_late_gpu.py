"""A program that steps before it uses a GPU: it reports without one, and joins again with all its steps."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.service.probe_node import GPU, Node

from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.process import driver
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import LIVE

pytestmark = pytest.mark.service
DEADLINE_SECONDS = 10.0


def steps(node: Node) -> dict[str, float]:
    node.turn()
    return {
        dict(sample.attributes)["UUID"]: float(sample.value)
        for group in node.aggregator.samples(time.time_ns())
        for sample in group.samples
        if sample.metric is kernel.STEPS and isinstance(sample.value, int | float)
    }


def wait_for(node: Node, expected: dict[str, float]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := steps(node)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_steps_before_the_first_context_are_carried_over_to_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "probe.sock")
    contexts: list[int] = []

    def claims(source: str) -> tuple[DeviceClaim, ...]:
        return (DeviceClaim(GPU.uuid),) if source == LIVE else driver.claims(source)

    monkeypatch.setattr("kernelcast.probe.probe.claims", claims)
    settings = ProbeSettings("train", socket_path=str(node.path), interval_seconds=0.05, method="auto")
    probe = Probe(settings, {})
    selection = probe.selection
    monkeypatch.setattr(selection, "_environment", replace(selection._environment, contexts=lambda: tuple(contexts)))
    probe.start()
    for _ in range(3):
        probe.step()
    wait_for(node, {"cpu": 3})
    contexts.append(0)
    for _ in range(2):
        probe.step()
    wait_for(node, {"cpu": 3, GPU.uuid: 5})
    probe.stop()
    node.server.close()
