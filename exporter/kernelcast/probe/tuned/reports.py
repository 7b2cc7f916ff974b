"""Reports the searches of decorated functions as outcomes, in the same stream as those of hints."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.requests import Proved
from kernelcast.tuning.times import duration
from kernelcast.wire.events import SEARCH_PREFIX, OutcomeState

SEARCHED: Final = "its configurations are searched"
MAX_OPEN: Final = 256
"""Searches of one process that are reported at one time; functions and shapes are bounded, programs are not."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """An outcome of a search.

    Attributes:
        trial_id: Unique; begins with `SEARCH_PREFIX`.
        space: Name of the space with function and shape.
        state, reason, facts: As of `Outcome`.
    """

    trial_id: str
    space: str
    state: OutcomeState
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)


def into(outcomes: OutcomeQueue) -> Callable[[SearchOutcome], None]:
    """Return a function that adds the outcome of a search to a queue."""
    return lambda one: outcomes.add_trial(one.trial_id, one.space, one.state, one.reason, **one.facts)


class SearchReports:
    """Reports each search, and each candidate that failed or was not kept, with exactly one final outcome.

    `_open` has the trial id of each search that was reported as begun and has no final outcome yet.

    Args:
        send: Takes the outcomes; must not raise.
        granularity: When the configurations change; empty for a tunable, whose announcement says it.
        searched: Reason of a search that gives no other.
    """

    def __init__(self, send: Callable[[SearchOutcome], None], granularity: str = "", searched: str = SEARCHED) -> None:
        self._searched = searched
        self._send = send
        self._granularity = granularity
        self._open: dict[str, str] = {}

    def search_began(
        self, space: str, kept: str, reason: str = "", trial_id: str = "", expected_seconds: float = 0.0
    ) -> None:
        """Report that a search begins, once for each.

        Args:
            space: Name of the space.
            kept: The configuration in force.
            reason: Why; empty for that of these reports.
            trial_id: Its id; empty for a new one.
            expected_seconds: Time until its verdict, roughly; 0 where it is not known.
        """
        if space not in self._open and len(self._open) < MAX_OPEN:
            self._open[space] = trial_id or new_id()
            why = reason or self._searched
            if expected_seconds:
                why += f"; a verdict is expected after about {duration(expected_seconds)}"
                why += ", later for a gain below a fifth" if self._granularity == "epoch" else ""
            self._report(self._open[space], space, OutcomeState.APPLIED, why, kept, kept)

    def candidate_failed(self, space: str, candidate: str, kept: str, reason: str) -> None:
        """Report a candidate that failed."""
        trial = new_id()
        state, decision = OutcomeState.ROLLED_BACK, Decision.FAILED.value
        self._report(trial, space, state, reason, kept, kept, decision=decision, candidate=candidate)

    def search_ended(
        self, space: str, verdicts: Sequence[Proved], text: Callable[[int], str], kept: str, before: str
    ) -> None:
        """Report the end of a search by its last verdict; earlier ones are reported by themselves.

        Args:
            space: Name of the space.
            verdicts: Verdicts of the campaign.
            text: Returns a configuration as text.
            kept: The configuration in force from now on.
            before: The one in force before.
        """
        trial = self._open.pop(space, "")
        if not trial:
            return
        for number, verdict in enumerate(verdicts):
            is_last = number == len(verdicts) - 1
            state = OutcomeState.KEPT if verdict.decision is Decision.KEPT else OutcomeState.ROLLED_BACK
            self._report(
                trial if is_last else new_id(),
                space,
                state,
                verdict.reason,
                kept,
                before,
                decision=verdict.decision.value,
                candidate=text(verdict.ordinal),
                measured_ratio=verdict.ratio,
                measured_interval=verdict.interval,
            )
        if not verdicts:
            self._undecided(trial, space, kept, "no configuration was worth an experiment")

    def search_interrupted(self, space: str, kept: str, reason: str) -> None:
        """Report that a search ended without a result."""
        trial = self._open.pop(space, "")
        if trial:
            self._undecided(trial, space, kept, reason)

    def _undecided(self, trial: str, space: str, kept: str, reason: str) -> None:
        decision = Decision.INCONCLUSIVE.value
        self._report(trial, space, OutcomeState.ROLLED_BACK, reason, kept, kept, decision=decision)

    def _report(
        self, trial: str, space: str, state: OutcomeState, reason: str, kept: str, before: str, **facts: Any
    ) -> None:
        given = {"value": kept, "previous": before, "granularity": self._granularity, **facts}
        self._send(SearchOutcome(trial, space, state, reason[:500], given))


def new_id() -> str:
    """Return the id of a search."""
    return f"{SEARCH_PREFIX}{uuid.uuid4()}"
