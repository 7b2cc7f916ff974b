"""Findings of other nodes, from the exporter to the searches of a program."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.probe.tuned.test_search_reports import Conv

from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.registry import MAX_EXPERIENCES, ProbeRegistry
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.events import Outcome, OutcomeState, to_event
from kernelcast.wire.frames import DeviceClaim, Hello, HintFrame, OutcomeFrame, TunableClaim, Tunables, decode
from kernelcast.wire.identity import Device
from kernelcast.wire.tuning.approvals import Approval, approval_event, approval_from, search_id
from kernelcast.wire.tuning.experience import Experience, KeptElsewhere, experience_event, experience_from

GPU = Device("node2", "GPU-0", "0", model_name="A100")
FOUND = Experience("hpc", "conv.run", "A100", "v1", ("[96]",), (KeptElsewhere("[128]", 1, "node2"),))


def registry(prometheus: CollectorRegistry | None = None) -> ProbeRegistry:
    counts = ProbeCounts(prometheus or CollectorRegistry())
    return ProbeRegistry(DeviceResolver("node2", lambda: (GPU,)), ProbeLimits(), counts, lambda _pid: False)


def join(node: ProbeRegistry, program: str = "hpc", version: str = "v1", connection: int = 5) -> ProbeSession:
    hello = Hello(program, f"n{connection}", 1, 99, devices=(DeviceClaim("GPU-0"),), code_version=version)
    joined = node.join(hello, Peer(4711, 1000), connection)
    assert isinstance(joined, ProbeSession)
    return joined


def received(session: ProbeSession) -> list[Experience]:
    found = []
    while (packet := session.outbox.next_packet) is not None:
        frame = decode(packet)
        assert isinstance(frame, HintFrame)
        found.append(experience_from(frame.event))
        session.outbox.packet_sent()
    return found


def test_findings_reach_programs_that_run_and_those_that_start_later() -> None:
    node = registry()
    early, other, newer = join(node), join(node, "serve", connection=6), join(node, version="v2", connection=7)
    assert node.teach(FOUND, 1) == [5]
    late = join(node, connection=8)
    assert received(early) == received(late) == [FOUND]
    assert received(other) == received(newer) == []


def test_a_configuration_that_another_node_is_to_prove_is_held_back() -> None:
    node = registry()
    session = join(node)
    node.teach(Experience("hpc", "conv.run", "A100", "v1", (), (KeptElsewhere("[128]", 1, "node3"),)), 1)
    assert [one.kept for one in received(session)] == [()]


def test_findings_are_bounded_and_those_beyond_a_programs_queue_are_counted() -> None:
    prometheus = CollectorRegistry()
    node = registry(prometheus)
    for number in range(MAX_EXPERIENCES + 3):
        node.teach(Experience("hpc", f"s{number}", "A100", "v1"), 1)
    session = join(node)
    assert len(received(session)) == ProbeLimits().hints
    dropped = prometheus.get_sample_value("kernelcast_exporter_probe_hints_total", {"outcome": "dropped"})
    assert dropped == MAX_EXPERIENCES - ProbeLimits().hints


def test_a_search_never_runs_what_failed_elsewhere_and_begins_with_what_was_kept() -> None:
    conv = Conv()
    conv.calls.learn(FOUND)
    for _ in range(3000):
        conv.run()
    assert 96 not in conv.launched
    others = [block for block in dict.fromkeys(conv.launched) if block != 16]
    assert others[0] == 128
    assert conv.run() == 192, "the search goes on beyond it"


def test_a_program_gives_findings_to_its_searches_whichever_comes_first(tmp_path: Path) -> None:
    settings = ProbeSettings("hpc", socket_path=str(tmp_path / "none"), devices=(DeviceClaim("cpu"),))
    probe = Probe(settings)
    ran: list[int] = []

    def launch(configuration: object) -> None:
        ran.append(configuration.block)  # type: ignore[attr-defined]

    def about(space: str) -> Experience:
        return Experience("hpc", space, failed=("[32]",))

    event = experience_event(about("early.launch"), source="/test", time_ns=1)
    probe._receiver.receive(event)
    early = probe.space("early", {"block": [16, 32]}, start={"block": 16}).tuned(launch)
    late = probe.space("late", {"block": [16, 32]}, start={"block": 16}).tuned(launch)
    probe._receiver.receive(experience_event(about("late.launch"), source="/test", time_ns=1))
    probe._receiver.receive({**event, "data": {"failed": 5}})
    for _ in range(20):
        early()
        late()
    assert set(ran) == {16}
    assert probe._receiver.malformed == 1
    probe.abandon()


@pytest.mark.parametrize(("tunable", "said", "granularity"), [("lr", "", "restart"), ("conv.run", "call", "call")])
def test_an_outcome_says_when_its_value_may_change(tunable: str, said: str, granularity: str) -> None:
    """The announcement of a tunable says it; a search says it itself."""
    session = join(registry())
    session.take(Tunables((TunableClaim("lr", "1", ("1", "2"), granularity="restart"),)))
    outcome = Outcome("search-1", "hpc", tunable, OutcomeState.KEPT, granularity=said)
    relayed = session.take(OutcomeFrame(to_event(outcome, source="/test", time_ns=1)))
    assert relayed is not None
    assert relayed.outcome.granularity == granularity


def test_findings_too_long_for_a_frame_are_counted_and_stop_neither_the_reading_of_kafka_nor_the_program() -> None:
    prometheus = CollectorRegistry()
    node = registry(prometheus)
    early = join(node)
    # Another writer's event can be within the limit where ours, whose subject repeats the space, is not.
    event = experience_event(Experience("hpc", "s" * 40_000, "A100", "v1"), source="/x", time_ns=1)
    found = experience_from(decode_event(encode_event({**event, "subject": "s"})))
    assert node.teach(found, 1) == []
    late = join(node, connection=6)
    assert received(early) == received(late) == []
    dropped = prometheus.get_sample_value("kernelcast_exporter_probe_hints_total", {"outcome": "dropped"})
    assert dropped == 2


def test_an_approval_too_long_for_a_frame_stops_neither_the_reading_of_kafka_nor_the_program() -> None:
    node = registry()
    early = join(node)
    answer = Approval(search_id("hpc", "s" * 22_000), "hpc", "s" * 22_000, "", expires_at_ns=9)
    approval = approval_from(decode_event(encode_event({**approval_event(answer, source="/x"), "subject": "s"})))
    assert node.approve([approval], 1) == []
    late = join(node, connection=6)
    assert early.outbox.next_packet is late.outbox.next_packet is None
