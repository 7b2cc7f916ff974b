"""Whatever one program sends, the other programs of the node and the daemon go on."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.hints.outcomes import OutcomeRelay
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.registry import ProbeRegistry
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import FrameError
from kernelcast.wire.events import SEARCH_PREFIX, Hint, Outcome, OutcomeState, hint_from, outcome_from, to_event
from kernelcast.wire.frames import (
    HEADER,
    MAGIC,
    PROTOCOL_VERSION,
    Hello,
    KernelName,
    KernelRow,
    KernelRows,
    Names,
    OutcomeFrame,
    OutcomesConfirmed,
    TunableClaim,
    Tunables,
    decode,
)
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device
from kernelcast.wire.topics import KERNELS, OUTCOMES

HUGE = 10**400


class Node:
    """The daemon's part from the probes' registry to Kafka's client, which takes everything at once."""

    def __init__(self) -> None:
        self.aggregator = Aggregator()
        self.metrics = CollectorRegistry()
        self.registry = ProbeRegistry(
            lambda _claim: Device("node", "GPU-1", "0"),
            ProbeLimits(),
            ProbeCounts(self.metrics),
            lambda _pid: False,
        )
        self.published: list[str] = []
        self.results: list[str] = []
        self.relayed: list[str] = []
        relay = OutcomeRelay(self, self.aggregator, self, hostname="node", count=self.results.append)
        self.pipeline = Pipeline([self], self.aggregator, SamplePublisher(self), relay_outcomes=relay.relay)

    def start(self, program: str, connection: int) -> ProbeSession:
        """Connect a program that has launched one kernel."""
        hello = Hello(program, f"n{connection}", 1, 1)
        session = self.registry.join(hello, Peer(connection, 1000), connection)
        assert isinstance(session, ProbeSession)
        totals = DurationTotals()
        totals.observe(1_000)
        for frame in (Names((KernelName(1, "gemm"),)), KernelRows(0, (KernelRow(1, 1, totals),))):
            self.registry.take(session, frame, 1)
        return session

    def outcome(self, session: ProbeSession, event_id: str = "e1", **data: Any) -> None:
        """Send an outcome of the program's own search, with these fields in place of right ones."""
        right = Outcome(f"{SEARCH_PREFIX}1", "", "tile", OutcomeState.KEPT, measured_ratio=0.7)
        event = to_event(right, source="/probe", time_ns=1, event_id=event_id)
        event["data"] |= data
        packet = HEADER.pack(MAGIC, PROTOCOL_VERSION, OutcomeFrame.TYPE) + json.dumps({"event": event}).encode()
        self.registry.take(session, decode(packet), 1)

    def tick(self) -> list[str]:
        """Complete an interval; returns the programs that were published."""
        self.published.clear()
        self.pipeline.tick(10**18)
        return sorted(self.published)

    def poll(self, now_ns: int) -> SourceBatch:
        return SourceBatch(self.registry.reports(now_ns))

    def close(self) -> None:
        """Nothing is held."""

    def outcomes(self) -> list[ReceivedOutcome]:
        return self.registry.outcomes()

    def confirm(self, outcomes: Iterable[ReceivedOutcome]) -> None:
        self.registry.confirm(outcomes)

    def send(self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: Any = None) -> None:
        if topic == KERNELS.name:
            self.published.append((key or b"").decode())
        if topic == OUTCOMES.name:
            self.relayed.append(outcome_from(decode_event(value or b"")).program)
            on_delivery(None)


@pytest.mark.parametrize(
    "data",
    [
        {"measured_ratio": "abc"},
        {"measured_ratio": [1]},
        pytest.param({"measured_ratio": HUGE}, id="401 digits"),
        {"measured_ratio": float("nan")},
        {"step_time_ratio": {"a": 1}},
        {"device_time_ratio": float("inf")},
        {"measured_interval": [0, float("nan")]},
        pytest.param({"measured_interval": [0, HUGE]}, id="interval of 401 digits"),
        pytest.param({"pairs": HUGE}, id="pairs of 401 digits"),
    ],
)
def test_an_outcome_with_an_impossible_value_is_a_bad_frame_and_costs_others_nothing(data: dict[str, Any]) -> None:
    node = Node()
    bad, good = node.start("bad", 7), node.start("good", 8)
    with pytest.raises(FrameError):
        node.outcome(bad, **data)
    node.outcome(good)
    assert node.tick() == ["bad", "good"]
    assert (node.relayed, node.results) == (["good"], ["published"])
    assert node.tick() == ["bad", "good"]


def test_a_program_whose_samples_cannot_be_written_costs_no_other_program_its_series() -> None:
    node = Node()
    node.start("bad", 7)
    node.start("good", 8)
    assert node.tick() == ["bad", "good"]
    spoilt: Any = {"tile": "abc"}
    next(one.series for one in node.aggregator.members.values() if one.series.key.program == "bad").measured = spoilt
    assert node.tick() == ["good"]
    assert node.aggregator.counts.refused == 1, "it is counted"


def test_an_outcome_of_a_tunable_with_an_endless_name_reaches_kafka_but_has_no_series() -> None:
    node = Node()
    node.outcome(node.start("bad", 7), tunable="t" * 40_000)
    assert node.tick() == ["bad"]
    assert node.relayed == ["bad"]
    (member,) = node.aggregator.members.values()
    assert (member.series.outcomes, member.series.measured) == ({}, {})


def test_a_hint_that_grows_beyond_a_frame_by_its_defaults_is_dropped_and_counted() -> None:
    node = Node()
    session = node.start("train", 7)
    node.registry.take(session, Tunables((TunableClaim("tile", "8", ("8", "16")),)), 1)
    event = to_event(Hint("h1", "train", "tile", "16", 2), source="/s", time_ns=1)
    event["data"]["evidence"] = [{"rule": "", "field": "", "value": ""}] * 1_420
    hint = hint_from(decode_event(json.dumps(event, separators=(",", ":")).encode()))
    assert node.registry.deliver(hint, 1) == []
    assert node.metrics.get_sample_value("kernelcast_exporter_probe_hints_total", {"outcome": "dropped"}) == 1


def test_256_ids_of_any_characters_are_confirmed() -> None:
    node = Node()
    session = node.start("train", 7)
    ids = {f"{number:03d}" + "\x01" * 61 for number in range(256)}
    for event_id in ids:
        node.outcome(session, event_id)
    node.tick()
    node.tick()
    confirmed: set[str] = set()
    while (packet := session.outbox.next_packet) is not None:
        frame = decode(packet)
        if isinstance(frame, OutcomesConfirmed):
            confirmed |= set(frame.event_ids)
        session.outbox.packet_sent()
    assert confirmed == ids
