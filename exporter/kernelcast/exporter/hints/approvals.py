"""People's answers to hints: a hint that changes a program's results is delivered only after a person approved it.

`OrderInbox` adds the answers that it reads from Kafka; the probe server asks `deliverable` before it queues a hint.
"""

from dataclasses import replace
from typing import Final

from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Hint, HintMode
from kernelcast.wire.frames import TunableClaim
from kernelcast.wire.tuning.approvals import REQUIRED, RESTART, Approval, approved_mode, changes_results

MAX_APPROVALS: Final = 4096
"""Bound of memory, far above the hints that people answer at one time."""


class Approvals:
    """The newest answer (approval or refusal) to each hint. Only the thread that reads the orders uses it.

    Answers whose hint has expired are removed when the limit is reached.
    """

    def __init__(self) -> None:
        self._answers: dict[str, Approval] = {}

    def add(self, approval: Approval, now_ns: int) -> None:
        """Keep the newest answer to a hint.

        Raises:
            EventError: There are too many.
        """
        self._answers.pop(approval.hint_id, None)
        if approval.expires_at_ns <= now_ns:
            return
        if len(self._answers) >= MAX_APPROVALS:
            self._answers = {key: one for key, one in self._answers.items() if one.expires_at_ns > now_ns}
        if len(self._answers) >= MAX_APPROVALS:
            raise EventError(
                f"{len(self._answers)} answers to hints are kept; the limit is {MAX_APPROVALS}; "
                f"answer hint {approval.hint_id} again after others have expired"
            )
        self._answers[approval.hint_id] = approval

    def remove(self, hint_id: str) -> None:
        """Remove the answer to a hint, which then waits for a new answer."""
        self._answers.pop(hint_id, None)

    def all(self) -> list[Approval]:
        """Return the answers."""
        return list(self._answers.values())


def deliverable(hint: Hint, claim: TunableClaim, approvals: dict[str, Approval]) -> Hint | None:
    """Return a hint as it is delivered to a program that has this tunable; None while a person has to approve it.

    A hint that applies at a restart is delivered to no program, because a running program would reject it, and a
    rejection closes the hint.

    Args:
        hint: The hint; the predictor may have marked it as needing approval.
        claim: The tunable as the program registered it; it may need approval where the predictor did not know so.
        approvals: Answers by hint id.
    """
    if RESTART in (hint.granularity, claim.granularity) and hint.approval == REQUIRED:
        return None
    needed = hint.approval == REQUIRED or changes_results(claim.kind, claim.changes_results)
    if not needed or (hint.mode is HintMode.DRY_RUN and hint.approval != REQUIRED):
        return hint
    answer = approvals.get(hint.hint_id)
    if answer is None or not answer.approves(hint):
        return None
    return replace(hint, mode=approved_mode(hint), approved_by=answer.by or "a person")
