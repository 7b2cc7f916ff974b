"""Searches of spaces that change the program's results: they run only while a person's approval is in force.

The probe's thread adds the answers that `HintReceiver` gets from the exporter; steps drive an `ApprovedSearch` on the
program's thread.
"""

import threading
from collections.abc import Callable
from typing import Any

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.tunables import Tunable
from kernelcast.probe.tuned.reports import new_id
from kernelcast.probe.tuned.steps import TunedSteps
from kernelcast.wire.events import OutcomeState
from kernelcast.wire.tuning.approvals import Approval
from kernelcast.wire.tuning.experience import Experience

ENDED = "the approval of its search has ended"
REPLACED = "another value was kept, or another approval given"


class SearchApprovals:
    """Answers of people about searches, and spaces that no answer covers: each such approval is rejected once.

    For any thread.

    Args:
        context: The properties of the process.
        outcomes: Takes the rejections.
    """

    def __init__(self, context: HintContext, outcomes: OutcomeQueue) -> None:
        self._context = context
        self._outcomes = outcomes
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here
        # All by space: the newest answer; why approvals cannot be used; and the last approval that was rejected, so
        # that each is rejected once.
        self._answers: dict[str, Approval] = {}
        self._rejection_reasons: dict[str, str] = {}
        self._rejected: dict[str, Approval] = {}

    def add(self, answer: Approval) -> None:
        """Note an answer; the newest about a space counts."""
        self._answers[answer.tunable] = answer
        self._reject(answer.tunable)

    def of(self, space: str) -> Approval | None:
        """Return a person's approval of the search of a space that is in force; None without one."""
        approval, context = self._answers.get(space), self._context
        if approval is None:
            return None
        subject = (context.program, space, context.device_model(), context.code_version)
        return approval if approval.approves_search(*subject, context.clock()) else None

    def refuse(self, space: str, reason: str) -> None:
        """Reject each approval of the search of a space, for a reason."""
        self._rejection_reasons[space] = reason
        self._reject(space)

    def _reject(self, space: str) -> None:
        with self._lock:
            approval, reason = self.of(space), self._rejection_reasons.get(space)
            if approval is None or reason is None or self._rejected.get(space) == approval:
                return
            self._rejected[space] = approval
        self._outcomes.add_trial(new_id(), space, OutcomeState.REJECTED, reason)


class ApprovedSearch:
    """Makes a search for each approval, from the kept value on, and keeps its result in the tunable of the space.

    An approval covers a number of different candidates, counted from the approval on, over restarts as far as the
    journal reaches. For the program's thread, but for `learn`.

    Args:
        tunable: The announced tunable, whose value hints may change, too.
        approval: Returns the approval in force; None without one.
        make: Makes a search from a kept value, an approval and the number of candidates that it has left.
        tried: Returns the candidates that the journal knows since a time, Unix nanoseconds.
    """

    def __init__(
        self,
        tunable: Tunable[str],
        approval: Callable[[], Approval | None],
        make: Callable[["ApprovedSearch", str, Approval, int], TunedSteps[Any]],
        tried: Callable[[int], set[str]],
    ) -> None:
        self._tunable = tunable
        self._approval = approval
        self._make = make
        self._journal_tried = tried
        # None while there is no approval, and once its number of candidates was tried.
        self._search: TunedSteps[Any] | None = None
        # The approval that the search was made for.
        self._covered_by: Approval | None = None
        # The value that the search has set, to notice that a hint has set another one.
        self._kept = tunable.kept
        # Candidates since `_counted_from_ns`, the time of the approval; a renewed approval begins to count again.
        self._tried: set[str] = set()
        self._counted_from_ns = 0
        self._experience: Experience | None = None

    @property
    def reason(self) -> str:
        """The reason for which nothing else may be tried; empty if it may."""
        return self._search.reason if self._search is not None else ""

    @property
    def candidate(self) -> Any:
        """The configuration on trial; None while the value of the tunable is in force."""
        return self._search.configuration if self._search is not None and self._search.reason else None

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Begin or end the search as its approval says, and choose the configuration of the next step."""
        approval = self._approval()
        if self._covered_by is not None and (approval != self._covered_by or self._tunable.kept != self._kept):
            self._end_search(ENDED if approval is None else REPLACED)
        if approval is not None and self._covered_by is None:
            self._begin(approval)
        if self._search is not None:
            self._search.step_ended(items, epoch=epoch)
            if self._search.kept_text != self._kept:
                self._kept = self._search.kept_text
                self._tunable.put(self._kept)

    def learn(self, experience: Experience) -> None:
        """Use what other nodes have found. For any thread."""
        if experience.space == self._tunable.name:
            self._experience = experience
            if self._search is not None:
                self._search.learn(experience)

    def close(self, reason: str) -> None:
        """Put the kept configuration in force, because the program ends."""
        self._end_search(reason)

    def forked(self) -> None:
        """Put the kept configuration in force in a forked child."""
        search, self._search = self._search, None
        if search is not None:
            search.forked()

    def _begin(self, approval: Approval) -> None:
        self._covered_by, self._kept = approval, self._tunable.kept
        if approval.time_ns != self._counted_from_ns:
            self._counted_from_ns, self._tried = approval.time_ns, set()
        left = approval.most - len(self._tried | self._journal_tried(approval.time_ns))
        if left > 0:
            self._search = self._make(self, self._kept, approval, left)
            if self._experience is not None:
                self._search.learn(self._experience)

    def _end_search(self, reason: str) -> None:
        search, self._search, self._covered_by = self._search, None, None
        if search is not None:
            self._tried |= search.tried
            search.close(reason)
