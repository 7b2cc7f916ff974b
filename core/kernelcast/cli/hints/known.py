"""Hints joined with their outcomes, stop orders and approvals, as read from their topics by one command."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kernelcast.runtime.kafka.clients import ReceivedMessage
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Hint, Outcome, OutcomeState, hint_from, outcome_from
from kernelcast.wire.recent_ids import RecentIds, event_key
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import (
    APPROVAL_TYPE,
    REQUIRED,
    Approval,
    ApprovalState,
    approval_from,
    approval_key,
)
from kernelcast.wire.tuning.orders import StopOrder, stop_from

Event = Hint | Outcome | StopOrder | Approval

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
REFUSED: Final = (OutcomeState.REJECTED, OutcomeState.EXPIRED, OutcomeState.SUPERSEDED)
"""States of a hint that was never tried; the reason says more than the state."""


@dataclass(frozen=True, slots=True)
class TimedOutcome:
    """One outcome and the time at which Kafka got it, Unix nanoseconds."""

    outcome: Outcome
    time_ns: int

    @property
    def where(self) -> tuple[str, str, str]:
        """The process, as far as outcomes name it: node, GPU and rank."""
        return self.outcome.hostname, self.outcome.uuid, self.outcome.rank

    @property
    def state(self) -> str:
        """The state, or the decision of the experiment where it says more; of a refusal with the reason."""
        outcome = self.outcome
        if outcome.state in REFUSED and outcome.reason:
            return f"{outcome.state}({outcome.reason})"
        return outcome.decision or str(outcome.state)


@dataclass(slots=True)
class HintRecord:
    """One hint and its outcomes.

    Attributes:
        hint_id: Its id.
        hint: The hint; None if a newer one has replaced it on the compacted topic.
        issued_ns: Its append time, Unix nanoseconds; 0 if the hint is not known.
        answers: Its outcomes, oldest first.
        approval: The newest answer of a person; None without one.
    """

    hint_id: str
    hint: Hint | None = None
    issued_ns: int = 0
    answers: list[TimedOutcome] = field(default_factory=list)
    approval: Approval | None = None

    @property
    def approval_state(self) -> ApprovalState | None:
        """Whether it waits for a person, or the answer of the person; None if it needs no answer."""
        if self.approval is not None:
            return self.approval.state
        return ApprovalState.PROPOSED if self.hint and self.hint.approval == REQUIRED else None

    @property
    def program(self) -> str:
        """The program."""
        return self.hint.program if self.hint else self.answers[0].outcome.program

    @property
    def tunable(self) -> str:
        """The tunable."""
        return self.hint.tunable if self.hint else self.answers[0].outcome.tunable

    @property
    def value(self) -> str:
        """The proposed value; that of a kept outcome if the hint is not known, or the candidate of a search."""
        candidate = next((one.outcome.candidate for one in reversed(self.answers) if one.outcome.candidate), "")
        if candidate:
            return candidate
        kept = (one.outcome.value for one in self.answers if one.outcome.state is OutcomeState.KEPT)
        return self.hint.value if self.hint else next(kept, "")

    @property
    def rules(self) -> list[str]:
        """The rules that led to it."""
        return list(dict.fromkeys(one.rule for one in self.hint.evidence)) if self.hint else []

    @property
    def time_ns(self) -> int:
        """Time of its issue; if that is unknown, of its first outcome."""
        return self.issued_ns or self.answers[0].time_ns

    @property
    def last_ns(self) -> int:
        """Time of the hint or of its last outcome, whichever is later."""
        answered_ns = self.approval.time_ns if self.approval else 0
        return max([self.issued_ns, answered_ns, *(one.time_ns for one in self.answers)])

    def newest(self) -> list[TimedOutcome]:
        """Return the newest outcome of each process."""
        return list({one.where: one for one in self.answers}.values())

    def states(self) -> Counter[str]:
        """Return the number of processes by their newest state."""
        return Counter(one.state for one in self.newest())

    def measured(self) -> list[Outcome]:
        """Return the newest outcomes that have a measured ratio."""
        return [one.outcome for one in self.newest() if one.outcome.measured_ratio is not None]

    def as_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            "hint_id": self.hint_id,
            "program": self.program,
            "tunable": self.tunable,
            "value": self.value,
            "issued_ns": self.issued_ns or None,
            "approval": self.approval_state,
            "approval_answer": asdict(self.approval) if self.approval else None,
            "states": dict(self.states()),
            "hint": asdict(self.hint) if self.hint else None,
            "outcomes": [{**asdict(one.outcome), "time_ns": one.time_ns} for one in self.answers],
        }


@dataclass(slots=True)
class KnownHints:
    """Hints, outcomes and orders as read so far; messages of different topics may come in any order. For one thread.

    Attributes:
        records: By id of the hint.
        orders: Stop orders in force, by record key.
        approvals: Answers of people, by id of the hint.
        unusable: Number of messages that hold none of them.
        outcome_ids: Events of outcomes that were read: an exporter may write one again after a restart.
    """

    records: dict[str, HintRecord] = field(default_factory=dict)
    orders: dict[str, StopOrder] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    unusable: int = 0
    outcome_ids: RecentIds = field(default_factory=RecentIds)

    def add(self, message: ReceivedMessage) -> Event | None:
        """Keep the content of a message, and return it; None for a withdrawal, a repeat and an unusable message."""
        value = message.value()
        if value is None:
            self._remove((message.key() or b"").decode(errors="replace"))
            return None
        try:
            return self._keep(message.topic(), decode_event(value), message_ns(message))
        except EventError:
            self.unusable += 1
            return None

    @property
    def listed_orders(self) -> list[StopOrder]:
        """The orders by program and node; partitions are read in any order."""
        return [order for _, order in sorted(self.orders.items())]

    def newest_first(self) -> Iterable[HintRecord]:
        """Return the records, the newest first."""
        return sorted(self.records.values(), key=lambda one: (-one.time_ns, one.hint_id))

    def _remove(self, key: str) -> None:
        self.orders.pop(key, None)
        if key.startswith(approval_key("")):
            hint_id = key.removeprefix(approval_key(""))
            self.approvals.pop(hint_id, None)
            if hint_id in self.records:
                self.records[hint_id].approval = None

    def _keep(self, topic: str | None, event: dict[str, Any], time_ns: int) -> Event | None:
        if topic == HINTS.name:
            hint = hint_from(event)
            record = self._record(hint.hint_id)
            record.hint, record.issued_ns = hint, time_ns
            return hint
        if topic == OUTCOMES.name:
            outcome = outcome_from(event)
            if not self.outcome_ids.add(event_key(event)):
                return None
            self._record(outcome.hint_id).answers.append(TimedOutcome(outcome, time_ns))
            return outcome
        if topic == ORDERS.name and event["type"] == APPROVAL_TYPE:
            approval = approval_from(event)
            self.approvals[approval.hint_id] = approval
            if approval.hint_id in self.records:
                self.records[approval.hint_id].approval = approval
            return approval
        if topic == ORDERS.name:
            order = stop_from(event)
            self.orders.pop(order.key, None)
            if order.in_force:
                self.orders[order.key] = order
            return order
        return None

    def _record(self, hint_id: str) -> HintRecord:
        return self.records.setdefault(hint_id, HintRecord(hint_id, approval=self.approvals.get(hint_id)))


def message_ns(message: Any) -> int:
    """Return the time of a message's Kafka timestamp, Unix nanoseconds; 0 if it has none."""
    _, milliseconds = message.timestamp()
    return max(0, int(milliseconds)) * NANOSECONDS_PER_MILLISECOND
