"""Values that failed on a node: `HintBook` proposes them on no other node of the same device model and code version."""

from typing import Final

from kernelcast.predictor.tuning.tunables import ReportedTunable
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.events import Hint, Outcome

MAX_FAILURES: Final = 10_000
"""Failed values that are remembered; above it the oldest are forgotten, so that memory stays bounded."""

_Failed = tuple[str, str, str, str, str]
"""Program, tunable, device model, code version, value."""


class Failures:
    """Failed values; bounded, the oldest are forgotten first."""

    def __init__(self) -> None:
        self._failed: dict[_Failed, str] = {}

    def learn(self, outcome: Outcome, hint: Hint | None) -> None:
        """Record the outcome of a hint if its value failed.

        Args:
            outcome: The outcome.
            hint: Its hint, if it is known.
        """
        if outcome.decision != Decision.FAILED.value:
            return
        value = outcome.candidate or (hint.value if hint is not None else "")
        if value:
            node = (outcome.device_model, outcome.code_version)
            self._failed[outcome.program, outcome.tunable, *node, value] = outcome.reason
        while len(self._failed) > MAX_FAILURES:
            del self._failed[next(iter(self._failed))]

    def reason(self, tunable: ReportedTunable, value: str) -> str | None:
        """Return why a value failed on a node like those of a tunable; None if it did not."""
        return self._failed.get((tunable.program, tunable.name, tunable.device_model, tunable.code_version, value))
