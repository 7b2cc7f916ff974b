"""Hints that change results: a value is in force only after a person has approved exactly this value."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.support.runtime.kafka_record import Record

from kernelcast.exporter.hints.approvals import MAX_APPROVALS, Approvals
from kernelcast.exporter.hints.orders import OrderInbox, StoppedFile
from kernelcast.exporter.programs.counts import ProbeCounts
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.registry import ProbeRegistry
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer
from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import Terms, Tunable, TunableSet
from kernelcast.wire.cloudevents import NANOSECONDS, encode_event
from kernelcast.wire.errors import EventError, FrameError
from kernelcast.wire.events import Hint, HintMode, OutcomeState, outcome_from, to_event
from kernelcast.wire.frames import DeviceClaim, Hello, HintFrame, TunableClaim, Tunables, decode
from kernelcast.wire.identity import Device
from kernelcast.wire.topics import ORDERS
from kernelcast.wire.tuning.approvals import (
    REQUIRED,
    Approval,
    ApprovalState,
    answer_to,
    approval_event,
    approval_from,
    search_id,
)

NOW_NS = 1000 * NANOSECONDS
SOON_NS = NOW_NS + 600 * NANOSECONDS
KERNEL = "stencil"
GPU = Device("node", "GPU-0", "0", model_name="NVIDIA A100")


class Node:
    """The exporter's registry and inbox of orders, with one program that has a batch size; no socket, no Kafka."""

    def __init__(self, directory: Path, terms: Terms | None = None) -> None:
        resolver = DeviceResolver("node", lambda: (GPU,))
        counts = ProbeCounts(CollectorRegistry())
        self.registry = ProbeRegistry(resolver, ProbeLimits(), counts, lambda _pid: False)
        self.inbox = OrderInbox("node", self, StoppedFile(directory), self, clock=lambda: NOW_NS)
        self.dead_letters: list[str] = []
        hello = Hello("training", "n1", 1, 99, rank="0", devices=(DeviceClaim("GPU-0"),))
        joined = self.registry.join(hello, Peer(4711, 1000), 5)
        assert isinstance(joined, ProbeSession)
        self.session = joined
        self.recorder, self.tunables = Recorder(), TunableSet()
        self.outcomes = OutcomeQueue("training", "0", lambda: NOW_NS, lambda: None)
        facts = HintContext("training", "0", "", lambda: "NVIDIA A100", lambda: NOW_NS, seed=1)
        self.receiver = HintReceiver(self.tunables, self.recorder, self.outcomes, facts)
        self.batch = Tunable("batch", [32, 64, 128, 256], 32, terms or Terms(kind="batch_size", kernels=(KERNEL,)))
        self.tunables.add(self.batch)
        self.session.take(Tunables((self.batch.claim("", ""),)))
        self.inbox.caught_up()

    def stop(self, programs: Any) -> None:
        self.registry.stop(programs, NOW_NS)

    def approve(self, approvals: Any) -> None:
        self.registry.approve(approvals, NOW_NS)

    def send(self, message: Any, error: Exception) -> None:  # noqa: ARG002  the protocol's
        self.dead_letters.append(str(error))

    def order(self, approval: Approval, *, withdrawn: bool = False) -> None:
        body = None if withdrawn else encode_event(approval_event(approval, source="/test"))
        self.inbox.receive(Record((ORDERS.name, 0, 0), body, keyed=approval.key.encode()))

    def step(self) -> None:
        """Deliver what waits, and make one step; a larger batch is faster."""
        while (packet := self.session.outbox.next_packet) is not None:
            frame = decode(packet)
            assert isinstance(frame, HintFrame)
            self.receiver.receive(frame.event)
            self.session.outbox.packet_sent()
        self.recorder.observe(KERNEL, 100_000 // self.batch.value)
        self.receiver.at_boundary(epoch=False)

    def states(self) -> list[tuple[str, OutcomeState]]:
        found = []
        while event := self.outcomes.first():
            outcome = outcome_from(event)
            found.append((outcome.hint_id, outcome.state))
            self.outcomes.sent(event)
        return found


def proposal(hint_id: str, value: str, **changes: Any) -> Hint:
    facts: dict[str, Any] = {"mode": HintMode.DRY_RUN, "approval": REQUIRED, **changes}
    return Hint(hint_id, "training", "batch", value, SOON_NS, **facts)


def answer(hint: Hint, state: ApprovalState = ApprovalState.APPROVED, **changes: Any) -> Approval:
    return replace(answer_to(hint, state, by="ana", reason="", time_ns=NOW_NS), **changes)


@pytest.mark.slow
def test_an_unapproved_batch_size_is_never_in_force_in_100_trials(tmp_path: Path) -> None:
    """The issue: in any order of hints, approvals, rejections and steps, only approved values are ever in force."""
    tried = 0
    for seed in range(100):
        chance, node = random.Random(seed), Node(tmp_path)
        allowed = {32}
        for number in range(12):
            value = chance.choice(["64", "128", "256"])
            # Some predictors do not know that a batch size changes results, and send a hint as for a block size.
            ignorant = chance.random() < 0.3
            hint = proposal(f"h{number}", value, **({"mode": HintMode.CANARY, "approval": ""} if ignorant else {}))
            self_approved = chance.random() < 0.2
            sent = replace(hint, approved_by="predictor") if self_approved else hint
            acts = [partial(node.registry.deliver, sent, NOW_NS), *_answers(chance, node, hint, allowed)]
            for act in chance.sample(acts, len(acts)):
                act()
                for _ in range(chance.randrange(40)):
                    node.step()
                    assert node.batch.value in allowed, (seed, number)
                    tried += node.batch.value != 32
    assert tried > 1000


def _answers(chance: random.Random, node: Node, hint: Hint, allowed: set[int]) -> list[Any]:
    def approve() -> None:
        allowed.add(int(hint.value))
        node.order(answer(hint))

    other = "64" if hint.value != "64" else "128"
    return chance.choice(
        [
            [],
            [approve],
            [lambda: node.order(answer(hint, ApprovalState.WITHDRAWN))],
            [lambda: node.order(answer(hint, value=other))],
            [lambda: node.order(answer(hint, hint_id="another"))],
        ]
    )


def test_an_approved_hint_is_delivered_in_whichever_order_both_arrive(tmp_path: Path) -> None:
    for first in ("hint", "answer"):
        node, hint = Node(tmp_path), proposal("h1", "128")
        acts: list[Any] = [
            partial(node.registry.deliver, hint, NOW_NS),
            partial(node.order, answer(hint)),
        ]
        for act in acts if first == "hint" else reversed(acts):
            act()
        for _ in range(3000):
            node.step()
        assert node.batch.value == 128
        assert [state for _, state in node.states()] == [OutcomeState.RECEIVED, OutcomeState.APPLIED, OutcomeState.KEPT]


def test_an_approval_that_is_withdrawn_ends_an_open_trial(tmp_path: Path) -> None:
    node, hint = Node(tmp_path), proposal("h1", "128")
    node.order(answer(hint))
    node.registry.deliver(hint, NOW_NS)
    for _ in range(3):
        node.step()
    node.order(answer(hint, ApprovalState.WITHDRAWN, reason="not before the deadline"))
    for _ in range(2):
        node.step()
    assert node.batch.value == 32
    assert node.states()[-1] == ("h1", OutcomeState.ROLLED_BACK)


def test_the_approval_of_a_search_reaches_its_program_once_and_again_after_a_reconnect(tmp_path: Path) -> None:
    node = Node(tmp_path)
    mine = Approval(search_id("training", "sizes"), "training", "sizes", "", expires_at_ns=SOON_NS, by="ana", most=9)
    node.order(replace(mine, program="other", hint_id=search_id("other", "sizes")))
    node.order(mine)
    node.order(answer(proposal("h1", "128")))
    assert received(node) == [mine]
    node.session.rejoin(node.session.hello)
    node.registry.approve([mine], NOW_NS)
    assert received(node) == [mine]
    rejected = replace(mine, state=ApprovalState.WITHDRAWN, by="bo")
    node.order(rejected)
    assert received(node)[-1] == rejected
    node.order(mine)
    node.order(mine, withdrawn=True)
    assert [one.state for one in received(node)] == [ApprovalState.APPROVED, ApprovalState.WITHDRAWN]


def received(node: Node) -> list[Approval]:
    found = []
    while (packet := node.session.outbox.next_packet) is not None:
        frame = decode(packet)
        if isinstance(frame, HintFrame):
            found.append(approval_from(frame.event))
        node.session.outbox.packet_sent()
    return found


def test_a_hint_for_a_restart_is_delivered_to_no_program(tmp_path: Path) -> None:
    node, hint = Node(tmp_path, Terms(kind="generic", granularity="restart")), proposal("h1", "128")
    node.order(answer(hint))
    node.registry.deliver(hint, NOW_NS)
    assert received(node) == []


def test_a_hint_without_an_answer_any_more_is_proposed_again(tmp_path: Path) -> None:
    node, hint = Node(tmp_path), proposal("h1", "128")
    node.order(answer(hint))
    node.order(answer(hint), withdrawn=True)
    node.registry.deliver(hint, NOW_NS)
    node.step()
    assert node.states() == []


@pytest.mark.parametrize(
    ("kind", "declared", "delivered"),
    [
        ("generic", None, True),
        ("block_size", None, True),
        ("batch_size", False, True),
        ("batch_size", None, False),
        ("precision", None, False),
        ("checkpointing", None, False),
        ("generic", True, False),
    ],
)
def test_the_declaration_decides_and_without_one_the_kind(
    tmp_path: Path,
    kind: str,
    declared: bool | None,  # noqa: FBT001  pytest passes it by name
    delivered: bool,  # noqa: FBT001  pytest passes it by name
) -> None:
    node = Node(tmp_path, Terms(kind=kind, changes_results=declared))
    node.registry.deliver(proposal("h1", "128", mode=HintMode.APPLY, approval=""), NOW_NS)
    node.step()
    assert (node.batch.value == 128) is delivered


def test_a_program_refuses_an_unapproved_value_itself(tmp_path: Path) -> None:
    """It does not rely on the exporter, which holds the hint back."""
    node = Node(tmp_path)
    node.receiver.receive(to_event(proposal("h1", "128", mode=HintMode.APPLY), source="/test", time_ns=NOW_NS))
    node.step()
    assert node.batch.value == 32
    assert node.states()[-1] == ("h1", OutcomeState.REJECTED)


def test_a_claim_whose_declaration_is_no_truth_value_is_refused(tmp_path: Path) -> None:
    claim = TunableClaim("batch", "32", ("32",), changes_results="no")  # type: ignore[arg-type]
    with pytest.raises(FrameError, match="changes_results 'no'"):
        Node(tmp_path).session.take(Tunables((claim,)))


def test_an_answer_with_a_time_beyond_64_bits_is_refused() -> None:
    event = approval_event(answer(proposal("h1", "64")), source="/s")
    event["data"]["time_ns"] = 10**400
    with pytest.raises(EventError, match="64 bits"):
        approval_from(event)


def test_answers_to_expired_hints_are_not_kept_and_the_rest_is_bounded() -> None:
    approvals = Approvals()
    approvals.add(answer(proposal("old", "64"), expires_at_ns=NOW_NS), NOW_NS)
    assert approvals.all() == []
    for number in range(MAX_APPROVALS):
        approvals.add(answer(proposal(f"h{number}", "64")), NOW_NS)
    with pytest.raises(EventError, match="the limit is 4096"):
        approvals.add(answer(proposal("one more", "64")), NOW_NS)
    approvals.add(answer(proposal("later", "64"), expires_at_ns=SOON_NS + 2), SOON_NS + 1)
    assert len(approvals.all()) == 1


def test_a_hint_approved_while_its_program_is_away_is_counted_once_it_is_delivered(tmp_path: Path) -> None:
    node, hint = Node(tmp_path), proposal("h1", "64")
    delivered = node.registry._counts.hints_delivered
    node.registry.deliver(hint, NOW_NS)
    node.registry.leave(5, NOW_NS)
    node.order(answer(hint))
    assert delivered._value.get() == 0
    node.registry.join(Hello("training", "n1", 1, 99, rank="0"), Peer(4711, 1000), 6)
    node.registry.take(node.session, Tunables((node.batch.claim("", ""),)), NOW_NS)
    assert delivered._value.get() == 1


@pytest.mark.parametrize("by_predictor", [True, False])
def test_a_hint_that_is_withdrawn_while_its_program_is_away_ends_when_it_reconnects(
    tmp_path: Path, *, by_predictor: bool
) -> None:
    node, hint = Node(tmp_path), proposal("h1", "64")
    node.registry.deliver(hint, NOW_NS)
    node.order(answer(hint))
    for _ in range(3):
        node.step()
    node.registry.leave(5, NOW_NS)
    if by_predictor:
        node.registry.withdraw(hint.key, NOW_NS)
    else:
        node.order(answer(hint, ApprovalState.WITHDRAWN))
    node.registry.join(Hello("training", "n1", 1, 99, rank="0"), Peer(4711, 1000), 6)
    node.registry.take(node.session, Tunables((node.batch.claim("", ""),)), NOW_NS)
    for _ in range(2):
        node.step()
    assert node.batch.value == 32
    assert node.states()[-1] == ("h1", OutcomeState.ROLLED_BACK)
