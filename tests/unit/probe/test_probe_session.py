"""The daemon's sessions of programs, frame by frame, without a socket."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.hints.receivers import HintReceivers
from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.registry import MAX_HINTS, ProbeRegistry, RejectedProcess
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer, has_ended
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.errors import DeviceError, FrameError
from kernelcast.wire.events import SEARCH_PREFIX, Hint, Outcome, OutcomeState, to_event, withdrawn_key
from kernelcast.wire.frames import (
    Bye,
    Counters,
    DeviceClaim,
    Hello,
    HintFrame,
    KernelName,
    KernelRow,
    KernelRows,
    Names,
    OutcomeFrame,
    OutcomesConfirmed,
    Status,
    TunableClaim,
    Tunables,
    VariantRow,
    VariantRows,
    decode,
)
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device

NOW_NS = 1000 * NANOSECONDS
PEER = Peer(4711, 1000)
GPUS = (Device("node", "GPU-0", "0", model_name="NVIDIA A100"), Device("node", "GPU-1", "1", model_name="NVIDIA A100"))


class Node:
    """A registry whose processes a test ends."""

    def __init__(self, limits: ProbeLimits | None = None) -> None:
        self.gone: set[int] = set()
        self.prometheus = CollectorRegistry()
        self.registry = ProbeRegistry(
            DeviceResolver("node", lambda: GPUS),
            limits or ProbeLimits(),
            ProbeCounts(self.prometheus),
            lambda pid: pid in self.gone,
        )

    def try_to_join(
        self, nonce: str = "n1", *, connection: int = 5, peer: Peer = PEER, **changes: Any
    ) -> ProbeSession | RejectedProcess:
        claims = (DeviceClaim("GPU-0"), DeviceClaim("GPU-1"))
        facts = {"devices": claims, "rank": "0", **changes}
        return self.registry.join(Hello("training", nonce, 1, 99, **facts), peer, connection)

    def join(self, nonce: str = "n1", *, connection: int = 5, peer: Peer = PEER, **changes: Any) -> ProbeSession:
        joined = self.try_to_join(nonce, connection=connection, peer=peer, **changes)
        assert isinstance(joined, ProbeSession)
        return joined


def named(*kernels: int) -> Names:
    return Names(tuple(KernelName(kernel, f"kernel {kernel}") for kernel in kernels))


def rows(device: int, *kernels: int, launches: int = 1, buckets: int = 1) -> KernelRows:
    histogram = dict.fromkeys(range(buckets), 1)
    totals = DurationTotals(buckets, 10 * buckets, 100, 0, histogram)
    return KernelRows(device, tuple(KernelRow(kernel, max(launches, buckets), totals) for kernel in kernels))


def waiting(session: ProbeSession) -> bool:
    return session.outbox.next_packet is not None


def test_each_device_gets_the_names_its_rows_need_once() -> None:
    session = Node().join()
    session.take(named(1, 2))
    session.take(rows(0, 1))
    first = session.reports()
    session.take(rows(1, 1, 2))
    session.take(rows(0, 1, launches=2))
    second = session.reports()
    assert [[name.kernel for name in report.names] for report in first] == [[1]]
    assert [[name.kernel for name in report.names] for report in second] == [[], [1, 2]]
    assert [report.device.uuid for report in second] == ["GPU-0", "GPU-1"]


def test_of_two_totals_between_polls_the_later_counts() -> None:
    session = Node().join()
    session.take(named(1))
    session.take(rows(0, 1, launches=5))
    session.take(rows(0, 1, launches=9))
    (report,) = session.reports()
    assert [row.launches for row in report.rows] == [9]
    assert session.reports() == []


def test_the_pid_is_the_one_the_kernel_knows() -> None:
    assert Node().join().process.pid == PEER.pid
    assert Node().join(peer=Peer(0, 1000)).process.pid == 99


def test_tunables_are_reported_for_every_device_in_use_with_its_model() -> None:
    session = Node().join()
    session.take(named(1))
    session.take(rows(0, 1))
    session.take(rows(1, 1))
    session.reports()
    session.take(Tunables((TunableClaim("block", "48", ("48", "64")),)))
    reports = session.reports()
    assert [report.tunables[0].device_model for report in reports if report.tunables] == ["NVIDIA A100"] * 2


def test_a_device_used_later_gets_the_tunables_with_its_first_report_and_an_unused_one_none() -> None:
    session = Node().join()
    session.take(Tunables((TunableClaim("block", "48", ("48", "64")),)))
    assert session.reports() == []
    session.take(named(1))
    session.take(rows(1, 1))
    (report,) = session.reports()
    assert report.device.uuid == "GPU-1"
    assert report.tunables
    session.take(rows(1, 1, launches=2))
    (report,) = session.reports()
    assert report.tunables is None


def test_bye_makes_the_last_report_final_once() -> None:
    node = Node()
    session = node.join()
    session.take(named(1))
    session.take(rows(0, 1))
    session.take(Bye())
    (report,) = node.registry.reports(NOW_NS)
    assert report.final
    assert node.registry.reports(NOW_NS) == ()
    with pytest.raises(FrameError, match="after Bye"):
        session.take(rows(0, 1))


def test_a_broken_connection_is_no_end_while_the_process_lives() -> None:
    node = Node()
    session = node.join()
    session.take(named(1))
    session.take(rows(0, 1))
    node.registry.leave(5, NOW_NS)
    assert [report.final for report in node.registry.reports(NOW_NS)] == [False]
    assert node.join(connection=6) is session
    node.registry.leave(6, NOW_NS)
    node.gone.add(PEER.pid)
    assert [report.final for report in node.registry.reports(NOW_NS + 1)] == [True]


def test_a_process_that_stays_away_too_long_is_final() -> None:
    node = Node()
    session = node.join()
    session.take(Counters(0))
    node.registry.leave(5, NOW_NS)
    node.registry.reports(NOW_NS)
    assert node.registry.reports(NOW_NS + 59 * NANOSECONDS) == ()
    assert [report.final for report in node.registry.reports(NOW_NS + 60 * NANOSECONDS)] == [True]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (rows(0, 7), "without a name"),
        (rows(2, 1), "device 2"),
        (KernelRows(0, (KernelRow(1, 1, DurationTotals(2)),)), "1 launches but 2 timed"),
        (Counters(9), "device 9"),
        (Counters(0, memcpy=(("h2d", 1),)), "shape"),  # type: ignore[arg-type]
        (Counters(0, memcpy=(("h2d", "", True, 1, 1),)), "shape"),
        (Counters(0, sync=(("stream", 1, -1),)), "between 0 and"),
        (Counters(0, sync=tuple((str(n), 1, 1) for n in range(100))), "100 rows"),
        (Counters(0, sync={"a": 1}), "not a list"),  # type: ignore[arg-type]
        (Counters(0, overhead_ns=-1), "between 0 and"),
        (Counters(0, sync=(("stream", 1),)), "shape"),  # type: ignore[arg-type]
        (Counters(0, pools=(("device", "used", -1),)), "between 0 and"),
        (Counters(0, regions=tuple((str(n), 1, 1, 1) for n in range(34))), "34 rows of regions"),
        (Counters(0, unseen=(("x" * 300, 1),)), "limit is 256"),
        (Counters(0, dropped_records=-1), "between 0 and"),
        (Counters(0, dropped_outcomes=-1), "between 0 and"),
        (Counters(0, malformed_hints=-1), "between 0 and"),
        (Counters(0, untimed_records=-1), "between 0 and"),
        (Counters(0, launch_gaps=DurationTotals(500, 500, 500, 0, dict.fromkeys(range(500), 1))), "500 buckets"),
        (Counters(0, launch_gaps=DurationTotals(1, 1, 1, 0, {2**20: 1})), "indices of 16 bits"),
        (Counters(0, launch_gaps=DurationTotals(1, 1, 5, 0, {0: 1})), "squares"),
        (Counters(0, launch_gaps=DurationTotals(1, 2**64, 5, 0, {0: 1})), "between 0 and"),
        (KernelRows(0, (KernelRow(1, 1, DurationTotals(), 2),)), "2 queue delays"),
        (KernelRows(0, (KernelRow(1, 1, DurationTotals(), 0, 0, 3),)), "3 from graphs"),
        (VariantRows(2, ()), "device 2"),
        (VariantRows(0, (VariantRow(7, "v", 1, 1, 1),)), "without a name"),
        (VariantRows(0, (VariantRow(1, "", 1, 1, 1),)), "without a text"),
        (VariantRows(0, (VariantRow(1, "v" * 129, 1, 1, 1),)), "limit is 128"),
        (VariantRows(0, tuple(VariantRow(1, f"{n}", 1, 1, 1) for n in range(65))), "65 of one kernel"),
        (Status("event", "active", "r" * 201), "limit is 200"),
        (Status("event", "active", "", 1.5), "sample_ratio"),
        (Names((KernelName(2, "k", occupancy=1.5),)), "occupancy 1.5"),
        (Names((KernelName(2, "k", local_memory_bytes=-1),)), "local memory -1"),
        (Names((KernelName(2, ""),)), "called"),
        (Names((KernelName(2, "k", block="1" * 300),)), "limit is 256"),
        (Names(3), "not a list"),  # type: ignore[arg-type]
        (Tunables((TunableClaim("x" * 300, "1", ("1",)),)), "limit is 256"),
        (Tunables((TunableClaim("x", "1", (1,)),)), "not texts"),  # type: ignore[arg-type]
        (OutcomeFrame({"specversion": "1.0"}), "malformed"),
        (Hello("p", "n", 1, 1), "cannot come"),
    ],
)
def test_a_frame_that_breaks_the_contract_is_refused_whole(frame: Any, reason: str) -> None:
    session = Node().join()
    session.take(named(1))
    with pytest.raises(FrameError, match=reason):
        session.take(frame)
    assert session.reports() == []


def test_a_process_cannot_fill_the_daemons_memory() -> None:
    node = Node(ProbeLimits(kernels=10, names_characters=1000, buckets=50, processes=2, devices=2))
    session = node.join()
    with pytest.raises(FrameError, match="the limits are 10"):
        session.take(named(*range(11)))
    with pytest.raises(FrameError, match="characters"):
        session.take(Names((KernelName(1, "x" * 1001),)))
    session.take(named(1, 2))
    session.take(rows(0, 1, buckets=40))
    with pytest.raises(FrameError, match="buckets waiting"):
        session.take(rows(0, 2, buckets=11))
    session.reports()
    session.take(rows(0, 2, buckets=50))
    with pytest.raises(FrameError, match="3 devices"):
        node.join("n2", devices=(DeviceClaim("a"), DeviceClaim("b"), DeviceClaim("c")))
    node.join("n2")
    assert node.try_to_join("n3") == RejectedProcess("limit", "2 processes are known; raise the limit of processes")


def test_variants_are_sent_with_the_names_they_need_and_bounded_over_all_frames() -> None:
    session = Node(ProbeLimits(variants=70)).join()
    session.take(named(1, 2))
    session.take(VariantRows(1, (VariantRow(1, "a", 1, 5, 25),)))
    session.take(VariantRows(1, (VariantRow(1, "a", 2, 9, 41), VariantRow(2, "a", 1, 5, 25))))
    (report,) = session.reports()
    assert report.device.uuid == "GPU-1"
    assert {name.kernel for name in report.names} == {1, 2}
    totals = {key: (row.launches, row.sum_ns) for key, row in report.variants.items()}
    assert totals == {(1, "a"): (2, 9), (2, "a"): (1, 5)}
    for number in range(63):
        session.take(VariantRows(1, (VariantRow(1, f"{number}", 1, 1, 1),)))
    with pytest.raises(FrameError, match="65 of one kernel"):
        session.take(VariantRows(1, (VariantRow(1, "one more", 1, 1, 1),)))
    session.take(VariantRows(0, tuple(VariantRow(1, f"{number}", 1, 1, 1) for number in range(5))))
    with pytest.raises(FrameError, match="has 71 variants"):
        session.take(VariantRows(0, (VariantRow(2, "b", 1, 1, 1),)))
    session.take(VariantRows(1, (VariantRow(1, "a", 3, 9, 41),)))
    assert [len(report.variants) for report in session.reports()] == [5, 64]


def test_a_status_is_sent_for_every_device_in_use_and_names_the_method() -> None:
    session = Node().join()
    session.take(named(1))
    session.take(rows(0, 1))
    session.take(rows(1, 1))
    assert [report.method for report in session.reports()] == ["manual", "manual"]
    session.take(Status("cupti", "active"))
    session.take(Status("count", "off", "2.1 % of wall time", 0.0))
    reports = session.reports()
    assert [report.status for report in reports] == [Status("count", "off", "2.1 % of wall time", 0.0)] * 2
    assert [report.method for report in reports] == ["count", "count"]
    assert session.reports() == []


@pytest.mark.parametrize(
    "changes",
    [{"nonce": ""}, {"source": "guessed"}, {"rank": "x" * 300}, {"devices": 5}, {"nonce": "x" * 300}],
)
def test_a_hello_that_breaks_the_contract_is_refused(changes: dict[str, Any]) -> None:
    nonce = changes.pop("nonce", "n1")
    with pytest.raises(FrameError):
        Node().join(nonce, **changes)


def test_a_hello_as_json_with_wrong_types_is_refused() -> None:
    packet = b'KC\x02\x01{"program":"p","nonce":"n","start_ns":1,"pid":1,"devices":[{"uuid":5}]}'
    with pytest.raises(FrameError):
        decode(packet)


def test_outcomes_have_program_rank_host_and_gpu_of_the_connection() -> None:
    node = Node()
    session = node.join()
    session.take(named(1))
    session.take(rows(1, 1))
    lie = Outcome("h", "other", "block", OutcomeState.KEPT, rank="9", hostname="elsewhere", uuid="GPU-9")
    node.registry.take(session, OutcomeFrame(to_event(lie, source="/p", time_ns=1)), NOW_NS)
    (received,) = node.registry.outcomes()
    only = received.outcome
    assert (only.program, only.rank, only.hostname, only.uuid) == ("training", "0", "node", "GPU-1")
    assert node.registry.outcomes() == []


def test_a_search_of_the_program_needs_no_hint_and_names_device_model_and_code_version() -> None:
    node = Node()
    node.registry.receivers.restore([])
    session = node.join(code_version="v7")
    for trial in (f"{SEARCH_PREFIX}1", "h1"):
        outcome = Outcome(trial, "another", "conv.run", OutcomeState.ROLLED_BACK, decision="failed", candidate="[9]")
        node.registry.take(session, OutcomeFrame(to_event(outcome, source="/test", time_ns=1)), NOW_NS)
    found = node.registry.outcomes()[0].outcome
    assert (found.hint_id, found.program, found.candidate) == (f"{SEARCH_PREFIX}1", "training", "[9]")
    assert (found.device_model, found.code_version) == ("NVIDIA A100", "v7")


def test_unread_outcomes_are_dropped_and_counted() -> None:
    node = Node(ProbeLimits(outcomes=3))
    session = node.join()
    event = to_event(Outcome("h", "p", "block", OutcomeState.KEPT), source="/p", time_ns=1)
    for _ in range(5):
        node.registry.take(session, OutcomeFrame(event), NOW_NS)
    assert len(node.registry.outcomes()) == 3
    assert node.prometheus.get_sample_value("kernelcast_exporter_probe_outcomes_dropped_total") == 2


def test_a_hint_is_queued_once_for_a_connection_and_again_after_a_new_one() -> None:
    node = Node()
    session = node.join()
    session.take(Tunables((TunableClaim("block", "48", ("48", "64")),)))
    hint = Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS)
    assert node.registry.deliver(hint, NOW_NS) == [5]
    assert node.registry.deliver(hint, NOW_NS) == []
    assert waiting(session)
    session.outbox.packet_sent()
    assert not waiting(session)
    node.registry.leave(5, NOW_NS)
    node.join(connection=6)
    node.registry.take(session, Tunables((TunableClaim("block", "48", ("48", "64")),)), NOW_NS)
    assert waiting(session)


def test_a_withdrawn_hint_is_given_to_no_process_that_comes_later() -> None:
    node = Node()
    hint = Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS)
    node.registry.deliver(hint, NOW_NS)
    assert node.registry.withdraw(hint.key, NOW_NS) == []
    session = node.join()
    node.registry.take(session, Tunables((TunableClaim("block", "48", ("48", "64")),)), NOW_NS)
    assert not waiting(session)


def test_a_hint_is_withdrawn_from_the_process_that_has_it() -> None:
    node = Node()
    session = node.join()
    session.take(Tunables((TunableClaim("block", "48", ("48", "64")),)))
    hint = Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS)
    node.registry.deliver(hint, NOW_NS)
    session.outbox.packet_sent()
    assert node.registry.withdraw(hint.key, NOW_NS) == [5]
    packet = session.outbox.next_packet
    assert packet is not None
    frame = decode(packet)
    assert isinstance(frame, HintFrame)
    assert withdrawn_key(frame.event) == hint.key
    assert node.registry.withdraw(hint.key, NOW_NS) == []


def test_hints_that_no_longer_fit_the_memory_are_counted() -> None:
    node = Node()
    for number in range(MAX_HINTS + 2):
        node.registry.deliver(Hint(f"h{number}", "training", f"t{number}", "64", NOW_NS + 1), NOW_NS)
    dropped = {"outcome": "dropped"}
    assert node.prometheus.get_sample_value("kernelcast_exporter_probe_hints_total", dropped) == 2


def test_hints_beyond_the_queue_are_dropped_and_counted() -> None:
    node = Node(ProbeLimits(hints=2))
    session = node.join()
    session.take(Tunables(tuple(TunableClaim(f"t{n}", "1", ("1", "2")) for n in range(4))))
    for number in range(4):
        node.registry.deliver(Hint(f"h{number}", "training", f"t{number}", "2", NOW_NS + 1), NOW_NS)
    dropped = {"outcome": "dropped"}
    assert node.prometheus.get_sample_value("kernelcast_exporter_probe_hints_total", dropped) == 2


def test_devices_are_completed_from_the_nodes_list() -> None:
    resolve = DeviceResolver("node", lambda: GPUS)
    assert resolve(DeviceClaim("GPU-1")) is GPUS[1]
    assert resolve(DeviceClaim("cpu", model_name="CPU")) == Device("node", "cpu", "0", model_name="CPU")
    assert resolve(DeviceClaim("GPU-7", "7", "NVIDIA L4")).model_name == "NVIDIA L4"
    with pytest.raises(DeviceError, match="this node has 2"):
        resolve(DeviceClaim(""))
    assert DeviceResolver("node", lambda: GPUS[:1])(DeviceClaim("")) is GPUS[0]


def test_an_unknown_device_refuses_the_process_by_that_reason() -> None:
    refused = Node().try_to_join(devices=())
    assert isinstance(refused, RejectedProcess)
    assert refused.reason == "device"


def test_an_unknown_pid_has_not_ended() -> None:
    assert not has_ended(0)
    assert has_ended(2**22 + 5)


def outcome_of(hint: Hint) -> OutcomeFrame:
    outcome = Outcome(hint.hint_id, hint.program, hint.tunable, OutcomeState.KEPT, measured_ratio=0.1)
    return OutcomeFrame(to_event(outcome, source="/probe", time_ns=NOW_NS))


def test_an_outcome_counts_only_from_the_user_whose_process_got_the_hint() -> None:
    node = Node()
    hint = Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS)
    addressed, forger = node.join("n1"), node.join("n2", connection=6, peer=Peer(666, 65_534))
    addressed.take(Tunables((TunableClaim("block", "48", ("48", "64")),)))
    assert node.registry.deliver(hint, NOW_NS) == [5]
    node.registry.take(forger, outcome_of(hint), NOW_NS)
    assert node.registry.outcomes() == []
    assert node.prometheus.get_sample_value("kernelcast_exporter_probe_outcomes_refused_total") == 1
    node.registry.take(addressed, outcome_of(hint), NOW_NS)
    assert [received.outcome.hint_id for received in node.registry.outcomes()] == ["h1"]


def test_an_outcome_of_an_undelivered_hint_is_refused_once_the_receivers_are_known() -> None:
    node = Node()
    hint = Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS)
    node.registry.receivers.restore([["h0", [1000]]])
    session = node.join()
    node.registry.take(session, outcome_of(hint), NOW_NS)
    node.registry.take(session, outcome_of(replace(hint, hint_id="h0")), NOW_NS)
    assert [received.outcome.hint_id for received in node.registry.outcomes()] == ["h0"]


def test_receivers_survive_a_restart_and_without_a_state_unknown_hints_pass_for_an_hour() -> None:
    before = HintReceivers(lambda: NOW_NS)
    before.add("h1", 1000)
    after = HintReceivers(lambda: NOW_NS)
    after.restore(before.document())
    assert after.includes("h1", 1000, NOW_NS)
    assert not after.includes("h1", 1001, NOW_NS)
    assert not after.includes("h2", 1000, NOW_NS)
    first = HintReceivers(lambda: NOW_NS)
    assert first.includes("h2", 1000, NOW_NS + 3599 * NANOSECONDS)
    assert not first.includes("h2", 1000, NOW_NS + 3600 * NANOSECONDS)


def test_processes_that_broke_off_make_room_for_those_that_come() -> None:
    """One living process that connects under a thousand nonces would else keep every other one out for a minute."""
    node = Node(ProbeLimits(processes=4))
    for number in range(4):
        session = node.join(f"flood-{number}", connection=number, peer=Peer(666, 65_534))
        session.take(named(1))
        session.take(rows(0, 1))
        node.registry.leave(number, NOW_NS + number)
    node.join("n1", connection=9)
    assert [entry.session.process.nonce for entry in node.registry.entries()] == ["flood-1", "flood-2", "flood-3", "n1"]
    finals = [report.process.nonce for report in node.registry.reports(NOW_NS) if report.final]
    assert finals == ["flood-0"], "its report is not lost"


def test_connected_processes_never_make_room() -> None:
    node = Node(ProbeLimits(processes=2))
    node.join("n1", connection=1)
    node.join("n2", connection=2)
    assert isinstance(node.try_to_join("n3", connection=3), RejectedProcess)


def test_a_stop_withdraws_the_hints_of_its_programs_and_a_resume_delivers_those_that_came_since() -> None:
    node = Node()
    session = node.join()
    session.take(Tunables((TunableClaim("block", "48", ("48", "64")), TunableClaim("tile", "1", ("1", "2")))))
    node.registry.deliver(Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS), NOW_NS)
    session.outbox.packet_sent()
    assert node.registry.stop(["another"], NOW_NS) == []
    assert node.registry.stop(["training"], NOW_NS) == [5]
    packet = session.outbox.next_packet
    assert packet is not None
    frame = decode(packet)
    assert isinstance(frame, HintFrame)
    assert withdrawn_key(frame.event) == "training|block|"
    session.outbox.packet_sent()
    for reasons in (["training"], ["*"]):
        assert node.registry.stop(reasons, NOW_NS) == []
    assert node.registry.deliver(Hint("h2", "training", "tile", "2", NOW_NS + NANOSECONDS), NOW_NS) == []
    assert node.registry.stop([], NOW_NS) == [5]
    assert session.outbox.delivered == ["training|tile|"]


def test_a_program_that_connects_while_it_is_stopped_gets_no_hint() -> None:
    node = Node()
    node.registry.stop(["*"], NOW_NS)
    session = node.join()
    node.registry.deliver(Hint("h1", "training", "block", "64", NOW_NS + NANOSECONDS), NOW_NS)
    node.registry.take(session, Tunables((TunableClaim("block", "48", ("48", "64")),)), NOW_NS)
    assert session.outbox.next_packet is None
    node.registry.stop([], NOW_NS)
    assert session.outbox.delivered == ["training|block|"]


def confirmations(session: ProbeSession) -> list[tuple[str, ...]]:
    found = []
    while (packet := session.outbox.next_packet) is not None:
        frame = decode(packet)
        if isinstance(frame, OutcomesConfirmed):
            found.append(frame.event_ids)
        session.outbox.packet_sent()
    return found


def outcome_frame(event_id: str, hint_id: str = "h") -> OutcomeFrame:
    kept = Outcome(hint_id, "training", "block", OutcomeState.KEPT)
    return OutcomeFrame(to_event(kept, source="/p", time_ns=1, event_id=event_id))


def test_outcomes_are_confirmed_to_their_program_by_their_ids() -> None:
    node = Node()
    session = node.join()
    for event_id in ("e1", "e2"):
        node.registry.take(session, outcome_frame(event_id), NOW_NS)
    assert node.registry.confirm(node.registry.outcomes())
    assert confirmations(session) == [("e1", "e2")]
    many = [ReceivedOutcome(Outcome("h", "p", "t", OutcomeState.KEPT), f"{number:036}", "n1") for number in range(300)]
    nonce = session.process.nonce
    node.registry.confirm([replace(one, nonce=nonce) for one in many])
    assert [len(ids) for ids in confirmations(session)] == [256, 44]


def test_an_outcome_that_is_refused_for_good_is_confirmed() -> None:
    node = Node()
    node.registry.receivers.restore([])
    session = node.join()
    node.registry.take(session, outcome_frame("e1"), NOW_NS)
    assert node.registry.outcomes() == []
    assert confirmations(session) == [("e1",)]


def test_an_event_id_longer_than_any_uuid_is_refused() -> None:
    with pytest.raises(FrameError, match="65 characters"):
        Node().join().take(outcome_frame("x" * 65))
