"""Approvals: a hint that changes a program's results, or needs a restart, takes effect only after a person approved it.

`kernelcast hints approve` and `reject` write a person's answer; the exporter reads it and then delivers the hint. It is
a CloudEvent on the topic of orders, because a service that may write hints must not be able to approve them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kernelcast.wire.cloudevents import envelope, joined_key
from kernelcast.wire.event_data import event_data, to_data
from kernelcast.wire.events import Hint, HintMode
from kernelcast.wire.tuning.orders import sentence_of

APPROVAL_TYPE: Final = "dev.kernelcast.approval.v1"
REQUIRED: Final = "required"
"""Value of `Hint.approval` where a person has to approve."""
RESTART: Final = "restart"
"""Granularity of tunables that change at a restart only: no program tries such a hint, a person rolls it out."""
RESULT_KINDS: Final = frozenset({"batch_size", "precision", "checkpointing"})
"""Kinds of tunables that change a program's results, unless the program declares otherwise."""
SEARCH_ID: Final = "search"
"""Beginning of `Approval.hint_id` where a person approves the search of a space."""


class ApprovalState(StrEnum):
    """States of a hint that needs approval."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Approval:
    """Answer of a person to one hint, or approval of a search; the newest answer replaces the older ones.

    Attributes:
        hint_id: Id of the hint; of a search, that of `search_id`.
        program, tunable, value, device_model, code_version: Those of the hint: another value is not approved. A search
            has no value; without device model or code version it counts for each.
        state: `approved`, or `withdrawn` if the person rejects it.
        expires_at_ns: Expiry of the hint, Unix nanoseconds.
        reason: The reason, for people.
        by: The person.
        time_ns: Its time, Unix nanoseconds.
        most: Of a search, the number of different candidates that it covers.
    """

    hint_id: str
    program: str
    tunable: str
    value: str
    device_model: str = ""
    code_version: str = ""
    state: ApprovalState = ApprovalState.APPROVED
    expires_at_ns: int = 0
    reason: str = ""
    by: str = ""
    time_ns: int = 0
    most: int = 0

    @property
    def key(self) -> str:
        """The record key."""
        return approval_key(self.hint_id)

    @property
    def is_search(self) -> bool:
        """Whether it is about the search of a space."""
        return self.hint_id == search_id(self.program, self.tunable)

    def approves_search(self, program: str, space: str, device_model: str, code_version: str, now_ns: int) -> bool:
        """Whether a program may search a space that changes its results, and try up to `most` candidates."""
        return (
            self.state is ApprovalState.APPROVED
            and self.hint_id == search_id(program, space)
            and (self.program, self.tunable) == (program, space)
            and self.device_model in ("", device_model)
            and self.code_version in ("", code_version)
            and now_ns < self.expires_at_ns
        )

    @property
    def sentence(self) -> str:
        """The answer in a few words, for people."""
        return sentence_of(str(self.state), self.by, self.reason)

    def approves(self, hint: Hint) -> bool:
        """Whether a person has approved exactly this hint."""
        return (
            self.state is ApprovalState.APPROVED and self.hint_id == hint.hint_id and _subject(self) == _subject(hint)
        )


def changes_results(kind: str, declared: bool | None) -> bool:  # noqa: FBT001  the program's declaration, or none
    """Whether another value of a tunable changes the program's results: its declaration, else by its kind."""
    return kind in RESULT_KINDS if declared is None else declared


def search_id(program: str, space: str) -> str:
    """Return the id of the approval of a search."""
    return joined_key(SEARCH_ID, program, space)


def approval_key(hint_id: str) -> str:
    """Return the record key of the answer to a hint."""
    return f"approval|{hint_id}"


def answer_to(hint: Hint, state: ApprovalState, *, by: str, reason: str, time_ns: int) -> Approval:
    """Return a person's answer to a hint."""
    return Approval(
        hint.hint_id,
        hint.program,
        hint.tunable,
        hint.value,
        hint.device_model,
        hint.code_version,
        state,
        hint.expires_at_ns,
        reason,
        by,
        time_ns,
    )


def approved_mode(hint: Hint) -> HintMode:
    """Return the mode in which a hint is delivered after its approval.

    A proposal says `dry_run`, so that whoever overlooks that it needs an approval changes nothing.
    """
    return HintMode.CANARY if hint.mode is HintMode.DRY_RUN else hint.mode


def approval_event(approval: Approval, *, source: str) -> dict[str, Any]:
    """Return the CloudEvent that carries an answer."""
    return envelope(
        to_data(approval), kind=APPROVAL_TYPE, subject=approval.key, source=source, time_ns=approval.time_ns
    )


def approval_from(event: dict[str, Any]) -> Approval:
    """Return the answer that an event carries.

    Raises:
        EventError: It carries none.
    """
    return event_data(event, Approval, APPROVAL_TYPE)


def _subject(one: Approval | Hint) -> tuple[str, ...]:
    """Return the fields that an approval and its hint must have in common."""
    return one.program, one.tunable, one.value, one.device_model, one.code_version
