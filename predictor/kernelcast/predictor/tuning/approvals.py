"""People's answers to hints that need an approval; `HintLog` records them, `HintBook` asks before it issues a hint."""

from typing import Final

from kernelcast.predictor.tuning.tunables import ReportedTunable
from kernelcast.wire.events import Hint
from kernelcast.wire.tuning.approvals import Approval, ApprovalState

MAX_ANSWERS: Final = 50_000
"""Hints whose answers are kept; above it the oldest are forgotten, so that memory stays bounded."""

_Rejected = tuple[str, str, str, str, str]
"""Program, tunable, device model, code version, value."""


class ApprovalLog:
    """Answers by hint; bounded, the oldest are forgotten first. The caller holds the engine's lock.

    A value that a person has rejected is not proposed again for the same code version.
    """

    def __init__(self) -> None:
        self._answers: dict[str, Approval] = {}
        self._rejected: dict[_Rejected, str] = {}

    def learn(self, approval: Approval) -> None:
        """Record an answer; a newer one replaces it."""
        self.forget(approval.hint_id)
        self._answers[approval.hint_id] = approval
        if approval.state is ApprovalState.WITHDRAWN:
            self._rejected[_subject(approval)] = approval.hint_id
        while len(self._answers) > MAX_ANSWERS:
            self.forget(next(iter(self._answers)))

    def forget(self, hint_id: str) -> None:
        """Forget the answer to a hint: it is proposed again."""
        approval = self._answers.pop(hint_id, None)
        if approval is not None and self._rejected.get(_subject(approval)) == hint_id:
            del self._rejected[_subject(approval)]

    def is_rejected(self, tunable: ReportedTunable, value: str) -> bool:
        """Whether a person has rejected this value of a tunable for its code version."""
        return (tunable.program, tunable.name, tunable.device_model, tunable.code_version, value) in self._rejected

    def withdrawn(self, hint_id: str) -> bool:
        """Whether a person has rejected a hint."""
        answer = self._answers.get(hint_id)
        return answer is not None and answer.state is ApprovalState.WITHDRAWN

    def answered(self, hint_id: str) -> bool:
        """Whether a person has approved or rejected a hint."""
        return hint_id in self._answers


def outdated(hint: Hint, tunable: ReportedTunable) -> bool:
    """Whether a tunable has changed since a hint was issued, so that its program would reject the hint."""
    return tunable.value != hint.requires or tunable.code_version != hint.code_version


def _subject(approval: Approval) -> _Rejected:
    return approval.program, approval.tunable, approval.device_model, approval.code_version, approval.value
