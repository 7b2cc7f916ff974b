"""Hints: decides which proposals of the rules are issued. One open hint per tunable; answered ones are not repeated.

`Engine.propose` asks after each cycle; `HintLog` feeds it hints and outcomes from Kafka; `publish` writes new hints.
"""

import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, HintSettings
from kernelcast.predictor.tuning.approvals import ApprovalLog, outdated
from kernelcast.predictor.tuning.diagnosis import Diagnosis
from kernelcast.predictor.tuning.experiences import Experiences
from kernelcast.predictor.tuning.failures import Failures
from kernelcast.predictor.tuning.rules import RULES, Proposal, by_diagnosis
from kernelcast.predictor.tuning.trials import Trials, TrialTime
from kernelcast.predictor.tuning.tunables import GpuTime, Key, ReportedTunable
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState
from kernelcast.wire.tuning.approvals import REQUIRED
from kernelcast.wire.tuning.orders import LIFTED_BY
from kernelcast.wire.tuning.pauses import LATER
from kernelcast.wire.tuning.policy import Mode

ANSWERED: Final = frozenset(
    {OutcomeState.KEPT, OutcomeState.ROLLED_BACK, OutcomeState.REJECTED, OutcomeState.DRY_RUN, OutcomeState.SUPERSEDED}
)
"""States after which a hint is not open any more; EXPIRED ends it too, but it may be tried again."""

RESTS: Final = "were rolled back; it takes the next in"
"""A tunable rests for an hour after some rollbacks, whatever the value of the hint that it rejects then."""
UNDECIDED_SECONDS: Final = 3600.0
"""Longest cooldown after an outcome that says little about the value."""

MAX_REMEMBERED: Final = 50_000
"""Hints, answers and cooldowns that are kept of each; the oldest are forgotten first."""


class Withheld(StrEnum):
    """Reason for which a rule's proposal did not become a hint."""

    KERNEL_UNSEEN = "kernel_unseen"
    SHARE_TOO_SMALL = "share_too_small"
    OPEN = "open"
    COOLING_DOWN = "cooling_down"
    REJECTED_BY_PERSON = "rejected_by_person"
    QUIET_HOURS = "quiet_hours"
    POLICY = "policy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Issued:
    """A hint and the rule that gave it."""

    hint: Hint
    rule: str


class HintState(StrEnum):
    """State of an open hint."""

    ISSUED = "issued"
    TRIAL = "trial"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True)
class OpenHint:
    """A hint that no program has kept or refused yet.

    Attributes:
        hint: The hint.
        issued_ns: When it was issued, Unix nanoseconds.
        state: Its state.
    """

    hint: Hint
    issued_ns: int
    state: HintState


class HintBook:
    """Every hint that is open or was answered, from Kafka and from this process. The caller holds the engine's lock.

    Attributes:
        approvals: Answers of people.
        failures: Values that failed on some node.
        experiences: Results of searches on all nodes.
        issued: Hints written by this process, by (program, tunable, rule); the publisher counts them.
        withheld: Proposals that did not become hints, by reason.
    """

    def __init__(self, settings: HintSettings, *, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._settings, self._policy = settings, settings.site_policy()
        self._new_id = new_id
        self._hints: dict[str, Hint] = {}
        self._issued_ns: dict[str, int] = {}
        self._open: dict[Key, str] = {}
        self._cooling: dict[tuple[Key, str], int] = {}
        self._trials = Trials()
        self._answers: dict[str, tuple[OutcomeState, int, float]] = {}
        self.approvals = ApprovalLog()
        self.failures = Failures()
        self.experiences = Experiences()
        self._failed: dict[str, Outcome] = {}
        self.issued: Counter[tuple[str, str, str]] = Counter()
        self.withheld: Counter[Withheld] = Counter()

    def learn_hint(self, hint: Hint, *, time_ns: int = 0) -> None:
        """Record a hint of this or another predictor, issued at a time; a known hint changes nothing."""
        if hint.hint_id in self._hints:
            return
        self._hints[hint.hint_id] = hint
        self._issued_ns[hint.hint_id] = time_ns
        if (failed := self._failed.pop(hint.hint_id, None)) is not None:
            self.failures.learn(failed, hint)
        self._open[_key(hint)] = hint.hint_id
        if hint.hint_id in self._answers:
            self._close(hint, *self._answers.pop(hint.hint_id))
        while len(self._hints) > MAX_REMEMBERED:
            oldest = next(iter(self._hints))
            del self._hints[oldest], self._issued_ns[oldest]

    def learn_outcome(self, outcome: Outcome, *, time_ns: int) -> None:
        """Record a program's outcome; it may arrive before the hint that it refers to."""
        self.failures.learn(outcome, self._hints.get(outcome.hint_id))
        if outcome.is_search:
            self.experiences.learn(outcome)
            return
        if outcome.decision == Decision.FAILED.value and outcome.hint_id not in self._hints:
            self._failed[outcome.hint_id] = outcome
            while len(self._failed) > MAX_REMEMBERED:
                del self._failed[next(iter(self._failed))]
        self._trials.learn(outcome, time_ns=time_ns)
        if outcome.state not in ANSWERED and outcome.state is not OutcomeState.EXPIRED:
            return
        hint = self._hints.get(outcome.hint_id)
        stopped = outcome.state is not OutcomeState.KEPT and outcome.reason.endswith((LIFTED_BY, LATER))
        state = OutcomeState.EXPIRED if stopped else outcome.state
        if hint is not None:
            self._close(hint, state, time_ns, _longest_cooldown(outcome))
            return
        self._answers[outcome.hint_id] = (state, time_ns, _longest_cooldown(outcome))
        while len(self._answers) > MAX_REMEMBERED:
            del self._answers[next(iter(self._answers))]

    def trials(self, since_ns: int) -> list[TrialTime]:
        """Trials of hints that lasted at or after a time, Unix nanoseconds."""
        return self._trials.of(self._hints, since_ns)

    def propose(
        self,
        tunables: Iterable[ReportedTunable],
        gpu_time: GpuTime,
        *,
        now_ns: int,
        diagnoses: Sequence[Diagnosis] = (),
    ) -> list[Issued]:
        """New hints, at most one per tunable.

        Args:
            tunables: Tunables that programs have registered.
            gpu_time: GPU time of their kernels.
            now_ns: Unix nanoseconds.
            diagnoses: Rules that hold for programs.
        """
        if not self._settings.enabled:
            return []
        quiet = bool(self._policy.quiet(now_ns))
        issued = []
        for tunable in tunables:
            proposal = next((made for rule in RULES if (made := rule(tunable)) is not None), None)
            proposal = proposal or by_diagnosis(tunable, diagnoses)
            if proposal is None:
                continue
            reason = self._reason_by_site(tunable, quiet=quiet)
            reason = reason or self._reason_to_withhold(tunable, proposal, gpu_time, now_ns)
            if reason is not None:
                self.withheld[reason] += 1
                continue
            hint = self._hint(tunable, proposal, now_ns)
            self.learn_hint(hint, time_ns=now_ns)
            issued.append(Issued(hint, proposal.rule))
        return issued

    def withdraw(self, hint: Hint) -> None:
        """Close a hint that could not be written; its value is not proposed again before it would have expired."""
        self._cool(hint, hint.expires_at_ns)
        self._hints.pop(hint.hint_id, None)
        self._issued_ns.pop(hint.hint_id, None)
        if self._open.get(_key(hint)) == hint.hint_id:
            del self._open[_key(hint)]

    def change(self, settings: HintSettings) -> None:
        """Use these settings from now on."""
        self._settings, self._policy = settings, settings.site_policy()

    def _reason_by_site(self, tunable: ReportedTunable, *, quiet: bool) -> Withheld | None:
        if self._policy.mode(tunable.program) is Mode.OFF:
            return Withheld.POLICY
        return Withheld.QUIET_HOURS if quiet else None

    def _reason_to_withhold(
        self, tunable: ReportedTunable, proposal: Proposal, gpu_time: GpuTime, now_ns: int
    ) -> Withheld | None:
        key = tunable.key
        if self._is_open(tunable, now_ns):
            return Withheld.OPEN
        if self.approvals.is_rejected(tunable, proposal.value):
            return Withheld.REJECTED_BY_PERSON
        if self.failures.reason(tunable, proposal.value) is not None:
            return Withheld.FAILED
        if self._cooling.get((key, proposal.value), 0) > now_ns:
            return Withheld.COOLING_DOWN
        share = gpu_time.share(tunable.program, tunable.kernel)
        if share is None:
            return Withheld.KERNEL_UNSEEN
        return Withheld.SHARE_TOO_SMALL if share < self._settings.min_share_ratio else None

    def open_hints(self, tunables: Iterable[ReportedTunable], *, now_ns: int) -> list[OpenHint]:
        """Return the open hints for tunables that programs report, each once."""
        ids = {self._open[tunable.key]: None for tunable in tunables if self._is_open(tunable, now_ns)}
        return [
            OpenHint(self._hints[hint_id], self._issued_ns[hint_id], self._state(hint_id, now_ns)) for hint_id in ids
        ]

    def _state(self, hint_id: str, now_ns: int) -> HintState:
        if self._trials.lasts(hint_id, now_ns):
            return HintState.TRIAL
        waits = self._hints[hint_id].approval == REQUIRED and not self.approvals.answered(hint_id)
        return HintState.APPROVAL if waits else HintState.ISSUED

    def _is_open(self, tunable: ReportedTunable, now_ns: int) -> bool:
        hint = self._hints.get(self._open.get(tunable.key, ""))
        if hint is None:
            return False
        if self._trials.lasts(hint.hint_id, now_ns):  # a trial may take longer than its hint is valid
            return True
        if hint.expires_at_ns <= now_ns:
            return False
        waits = hint.approval == REQUIRED
        return not (waits and (outdated(hint, tunable) or self.approvals.withdrawn(hint.hint_id)))

    def _close(self, hint: Hint, state: OutcomeState, time_ns: int, longest_seconds: float) -> None:
        key = _key(hint)
        if self._open.get(key) == hint.hint_id:
            del self._open[key]
        if state in ANSWERED:
            seconds = min(self._settings.cooldown_seconds, longest_seconds)
            self._cool(hint, time_ns + round(seconds * NANOSECONDS_PER_SECOND))

    def _cool(self, hint: Hint, until_ns: int) -> None:
        """Do not propose the value of a hint again before a time."""
        key = (_key(hint), hint.value)
        self._cooling[key] = max(until_ns, self._cooling.get(key, 0))
        while len(self._cooling) > MAX_REMEMBERED:
            del self._cooling[next(iter(self._cooling))]

    def _hint(self, tunable: ReportedTunable, proposal: Proposal, now_ns: int) -> Hint:
        settings = self._settings
        waits = tunable.needs_approval or self._policy.mode(tunable.program) is Mode.PROPOSE
        seconds = settings.approval_seconds if waits else settings.expires_seconds
        return Hint(
            hint_id=self._new_id(),
            program=tunable.program,
            tunable=tunable.name,
            value=proposal.value,
            requires=tunable.value,
            device_model=tunable.device_model,
            code_version=tunable.code_version,
            kernel=tunable.kernel,
            expires_at_ns=now_ns + round(seconds * NANOSECONDS_PER_SECOND),
            mode=HintMode.DRY_RUN if waits else HintMode.CANARY,
            expected_ratio=proposal.expected_ratio,
            expected_interval=proposal.expected_interval,
            confidence=proposal.confidence,
            evidence=proposal.evidence,
            approval=REQUIRED if waits else "",
            granularity=tunable.granularity,
        )


def _longest_cooldown(outcome: Outcome) -> float:
    """Return the longest cooldown after an outcome, seconds: one that says little about the value is shorter."""
    undecided = outcome.decision == Decision.INCONCLUSIVE.value or RESTS in outcome.reason
    return UNDECIDED_SECONDS if undecided else math.inf


def _key(hint: Hint) -> Key:
    return hint.program, hint.tunable, hint.device_model
