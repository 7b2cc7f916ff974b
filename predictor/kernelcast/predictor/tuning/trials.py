"""Trials of hints: times at which a program ran two values of a tunable in turn, so that its kernels had two speeds.

`HintBook` records them from outcomes; a cycle leaves their blocks out of baselines and comparisons.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState

ENDS: Final = frozenset({OutcomeState.KEPT, OutcomeState.ROLLED_BACK})
LONGEST_NS: Final = 3600 * NANOSECONDS_PER_SECOND
"""A trial of whose end nothing is heard is over after this time: its program may have ended."""
MAX_TRIALS: Final = 10_000
"""Trials whose times are kept; above it the oldest are forgotten, so that memory stays bounded."""


@dataclass(frozen=True, slots=True)
class TrialTime:
    """Time of a trial.

    Attributes:
        begin_ns: Since when, Unix nanoseconds.
        end_ns: Until when; of several ranks, the last one counts.
        program: The program; empty while the hint is not known.
        kernel: Names of the kernels concerned, joined by semicolons; empty for all of the program.
    """

    begin_ns: int
    end_ns: int
    program: str = ""
    kernel: str = ""


class Trials:
    """Trials by hint; bounded, the oldest are forgotten first."""

    def __init__(self) -> None:
        self._by_hint: dict[str, TrialTime] = {}

    def learn(self, outcome: Outcome, *, time_ns: int) -> None:
        """Record that a program began or ended a trial."""
        known = self._by_hint.get(outcome.hint_id)
        if outcome.state is OutcomeState.APPLIED and known is None:
            self._by_hint[outcome.hint_id] = TrialTime(time_ns, time_ns + LONGEST_NS)
            while len(self._by_hint) > MAX_TRIALS:
                del self._by_hint[next(iter(self._by_hint))]
        elif outcome.state in ENDS and known is not None:
            ended = known.end_ns < known.begin_ns + LONGEST_NS
            self._by_hint[outcome.hint_id] = replace(known, end_ns=max(time_ns, known.end_ns if ended else time_ns))

    def lasts(self, hint_id: str, now_ns: int) -> bool:
        """Whether a hint is being tried."""
        known = self._by_hint.get(hint_id)
        return known is not None and known.end_ns > now_ns

    def of(self, hints: Mapping[str, Hint], since_ns: int) -> list[TrialTime]:
        """Trials that lasted at or after a time, of hints that are tried before they are kept.

        Args:
            hints: Known hints by id.
            since_ns: Unix nanoseconds.
        """
        recent = [(hints.get(hint_id), trial) for hint_id, trial in self._by_hint.items() if trial.end_ns >= since_ns]
        return [
            replace(trial, program=hint.program, kernel=hint.kernel)
            for hint, trial in recent
            if hint is not None and hint.mode is HintMode.CANARY
        ]
