"""Hints: proposals that are safe to send. One open hint per tunable, none repeated that a program has answered."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, HintSettings
from kernelcast.predictor.tuning.rules import RULES, Proposal
from kernelcast.predictor.tuning.tunables import GpuTime, Key, ReportedTunable
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState

ANSWERED: Final = frozenset(
    {OutcomeState.KEPT, OutcomeState.ROLLED_BACK, OutcomeState.REJECTED, OutcomeState.DRY_RUN, OutcomeState.SUPERSEDED}
)
"""States after which a hint is not open any more; EXPIRED ends it too, but it may be tried again."""

MAX_REMEMBERED: Final = 50_000


class Withheld(StrEnum):
    """Reason for which a rule's proposal did not become a hint."""

    KERNEL_UNSEEN = "kernel_unseen"
    SHARE_TOO_SMALL = "share_too_small"
    OPEN = "open"
    COOLING_DOWN = "cooling_down"


@dataclass(frozen=True, slots=True)
class Issued:
    """A hint and the rule that gave it."""

    hint: Hint
    rule: str


class HintBook:
    """Every hint that is open or was answered, from Kafka and from this process.

    Attributes:
        issued: Hints written by this process, by (program, tunable, rule).
        withheld: Proposals that did not become hints, by reason.
    """

    def __init__(self, settings: HintSettings, *, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._settings = settings
        self._new_id = new_id
        self._hints: dict[str, Hint] = {}
        self._open: dict[Key, str] = {}
        self._cooling: dict[tuple[Key, str], int] = {}
        self._answers: dict[str, tuple[OutcomeState, int]] = {}
        self.issued: Counter[tuple[str, str, str]] = Counter()
        self.withheld: Counter[Withheld] = Counter()

    def learn_hint(self, hint: Hint) -> None:
        """Record a hint read from Kafka, of this or another predictor; a known hint changes nothing."""
        if hint.hint_id in self._hints:
            return
        self._hints[hint.hint_id] = hint
        self._open[_key(hint)] = hint.hint_id
        if hint.hint_id in self._answers:
            self._close(hint, *self._answers.pop(hint.hint_id))
        while len(self._hints) > MAX_REMEMBERED:
            del self._hints[next(iter(self._hints))]

    def learn_outcome(self, outcome: Outcome, *, time_ns: int) -> None:
        """Record a program's outcome; it may arrive before the hint that it refers to."""
        if outcome.state not in ANSWERED and outcome.state is not OutcomeState.EXPIRED:
            return
        hint = self._hints.get(outcome.hint_id)
        if hint is not None:
            self._close(hint, outcome.state, time_ns)
            return
        self._answers[outcome.hint_id] = (outcome.state, time_ns)
        while len(self._answers) > MAX_REMEMBERED:
            del self._answers[next(iter(self._answers))]

    def propose(self, tunables: Iterable[ReportedTunable], gpu_time: GpuTime, *, now_ns: int) -> list[Issued]:
        """New hints, at most one per tunable.

        Args:
            tunables: What programs have registered.
            gpu_time: GPU time of their kernels.
            now_ns: Unix nanoseconds.
        """
        if not self._settings.enabled:
            return []
        found = []
        for tunable in tunables:
            proposal = next((made for rule in RULES if (made := rule(tunable)) is not None), None)
            if proposal is None:
                continue
            reason = self._reason_against(tunable, proposal, gpu_time, now_ns)
            if reason is not None:
                self.withheld[reason] += 1
                continue
            hint = self._hint(tunable, proposal, now_ns)
            self.learn_hint(hint)
            self.issued[tunable.program, tunable.name, proposal.rule] += 1
            found.append(Issued(hint, proposal.rule))
        return found

    def _reason_against(
        self, tunable: ReportedTunable, proposal: Proposal, gpu_time: GpuTime, now_ns: int
    ) -> Withheld | None:
        key = tunable.key
        if self._is_open(key, now_ns):
            return Withheld.OPEN
        if self._cooling.get((key, proposal.value), 0) > now_ns:
            return Withheld.COOLING_DOWN
        share = gpu_time.share(tunable.program, tunable.kernel)
        if share is None:
            return Withheld.KERNEL_UNSEEN
        return Withheld.SHARE_TOO_SMALL if share < self._settings.min_share_ratio else None

    def _is_open(self, key: Key, now_ns: int) -> bool:
        hint = self._hints.get(self._open.get(key, ""))
        return hint is not None and hint.expires_at_ns > now_ns

    def _close(self, hint: Hint, state: OutcomeState, time_ns: int) -> None:
        key = _key(hint)
        if self._open.get(key) == hint.hint_id:
            del self._open[key]
        if state in ANSWERED:
            until_ns = time_ns + round(self._settings.cooldown_seconds * NANOSECONDS_PER_SECOND)
            self._cooling[key, hint.value] = max(until_ns, self._cooling.get((key, hint.value), 0))
            while len(self._cooling) > MAX_REMEMBERED:
                del self._cooling[next(iter(self._cooling))]

    def _hint(self, tunable: ReportedTunable, proposal: Proposal, now_ns: int) -> Hint:
        return Hint(
            hint_id=self._new_id(),
            program=tunable.program,
            tunable=tunable.name,
            value=proposal.value,
            requires=tunable.value,
            device_model=tunable.device_model,
            code_version=tunable.code_version,
            kernel=tunable.kernel,
            expires_at_ns=now_ns + round(self._settings.expires_seconds * NANOSECONDS_PER_SECOND),
            mode=HintMode.CANARY,
            expected_ratio=proposal.expected_ratio,
            expected_interval=proposal.expected_interval,
            confidence=proposal.confidence,
            evidence=proposal.evidence,
        )


def _key(hint: Hint) -> Key:
    return hint.program, hint.tunable, hint.device_model
