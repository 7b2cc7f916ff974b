"""Hints inside the program: accepts or rejects them, and applies them at step boundaries.

A hint is accepted on the sender's thread and applied on the program's own thread, in `step()`, so the program never
sees a value change in the middle of a step.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kernelcast.probe.canary import Canary, Trial
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable, TunableSet, text
from kernelcast.probe.verdict import CanaryPolicy, Decision, Verdict
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Hint, HintMode, OutcomeState, hint_from

SWITCH: Final = "KERNELCAST_HINTS"
OFF: Final = ("off", "0", "no", "false")
MAX_ROLLBACKS: Final = 3
MAX_SEEN: Final = 4096


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """Properties of the process that a hint must match.

    Attributes:
        program: The program.
        rank: Its rank.
        code_version: Its version.
        device_model: Returns the GPU's model; empty while it is not known.
        environ: The environment with the kill switch; read for each hint.
        clock: Unix nanoseconds.
        policy: Limits of trials.
    """

    program: str
    rank: str
    code_version: str
    device_model: Callable[[], str]
    environ: Mapping[str, str]
    clock: Callable[[], int]
    policy: CanaryPolicy = field(default_factory=CanaryPolicy)


class HintReceiver:
    """Receives hints, rejects those that do not match, and applies the others.

    `receive` runs on the sender's thread, `at_boundary` on the program's; a lock protects the shared state.
    """

    def __init__(
        self, tunables: TunableSet, recorder: Recorder, outcomes: OutcomeQueue, ground: RejectionReason
    ) -> None:
        self._tunables = tunables
        self._recorder = recorder
        self._outcomes = outcomes
        self._ground = ground
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[str, Hint] = {}
        self._trials: dict[str, Canary] = {}
        self._collective: tuple[AnyTunable, ...] = ()
        self.malformed = 0
        """Number of events that were not valid hints."""

    def receive(self, event: dict[str, Any]) -> None:
        """Accept a hint, or reject it with a reason; a hint that was received before is ignored."""
        try:
            hint = hint_from(event)
        except EventError:
            self.malformed += 1
            return
        with self._lock:
            if hint.hint_id in self._seen:
                return
            self._seen[hint.hint_id] = None
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
            self._outcomes.add(hint, OutcomeState.RECEIVED, "")
            self._let_in(hint)

    def at_boundary(self, *, epoch: bool) -> None:
        """Handle the end of a step; `epoch`: an epoch has ended as well."""
        if not (self._waiting or self._trials or self._collective):
            return
        for tunable in self._collective:
            if at_its_boundary(tunable, epoch=epoch):
                self._agree(tunable)
        with self._lock:
            for name, canary in list(self._trials.items()):
                if at_its_boundary(canary.trial.tunable, epoch=epoch) and (verdict := canary.boundary()):
                    del self._trials[name]
                    self._close(canary.trial, verdict)
            for name, hint in list(self._waiting.items()):
                waiter = self._tunables.get(name)
                if waiter and waiter.terms.scope == "local" and at_its_boundary(waiter, epoch=epoch):
                    del self._waiting[name]
                    self._carry_out(hint, waiter)

    def watch(self, tunable: AnyTunable) -> None:
        """Register a collective tunable: from now on its ranks agree at every boundary of its granularity."""
        others = tuple(item for item in self._collective if item.name != tunable.name)
        joins = tunable.terms.scope == "collective" and tunable.terms.agree
        self._collective = (*others, tunable) if joins else others

    def _let_in(self, hint: Hint) -> None:
        tunable = self._tunables.get(hint.tunable)
        refusal = self._reason_not_for_this_process(hint) or (
            self._reason_to_reject(hint, tunable) if tunable else self._unknown(hint)
        )
        if refusal or not tunable:
            state = OutcomeState.EXPIRED if self._expired(hint) else OutcomeState.REJECTED
            self._refuse(hint, refusal, state)
        elif hint.mode is HintMode.DRY_RUN:
            reason = f"would change {tunable.shown} to {hint.value}"
            self._outcomes.add(hint, OutcomeState.DRY_RUN, reason, value=tunable.shown, previous=tunable.shown)
        else:
            older = self._waiting.get(hint.tunable)
            if older:
                self._refuse(older, f"hint {hint.hint_id} came before it took effect", OutcomeState.SUPERSEDED)
            self._waiting[hint.tunable] = hint

    def _reason_not_for_this_process(self, hint: Hint) -> str:
        ground = self._ground
        model = ground.device_model()
        if ground.environ.get(SWITCH, "").strip().lower() in OFF:
            return f"{SWITCH} is {ground.environ[SWITCH]!r}: this process takes no hints"
        if hint.program != ground.program or hint.rank not in ("*", ground.rank):
            return f"it is for {hint.program!r} rank {hint.rank!r}; this is {ground.program!r} rank {ground.rank!r}"
        if hint.device_model and model and hint.device_model != model:
            return f"it is for {hint.device_model!r}; this process runs on {model!r}"
        if hint.code_version and hint.code_version != ground.code_version:
            return f"it is for code version {hint.code_version!r}; this is {ground.code_version!r}"
        if self._expired(hint):
            return f"it expired {(ground.clock() - hint.expires_at_ns) / 1e9:.1f} s ago"
        return ""

    def _reason_to_reject(self, hint: Hint, tunable: AnyTunable) -> str:
        terms = tunable.terms
        if stale := _stale(hint, tunable):
            return stale
        if terms.granularity == "restart":
            return f"{tunable.name} changes at a restart only; start the program with {hint.value}"
        if terms.scope == "collective" and not terms.agree:
            return f"{tunable.name} is collective, and the program gave no way for its ranks to agree"
        if terms.scope == "collective" and hint.mode is HintMode.CANARY:
            return f"{tunable.name} is collective: a trial would part the ranks; send it with mode apply"
        if tunable.rollbacks >= MAX_ROLLBACKS:
            return f"{tunable.rollbacks} hints in a row for {tunable.name} were rolled back; it takes no more"
        return self._busy(tunable) if hint.mode is not HintMode.DRY_RUN else ""

    def _busy(self, tunable: AnyTunable) -> str:
        for canary in self._trials.values():
            if canary.trial.tunable.overlaps(tunable):
                return f"hint {canary.trial.hint.hint_id} is being tried on the same kernels"
        for name in self._waiting:
            other = self._tunables.get(name)
            if other and name != tunable.name and other.overlaps(tunable):
                return f"hint {self._waiting[name].hint_id} waits for the same kernels"
        return ""

    def _unknown(self, hint: Hint) -> str:
        known = ", ".join(tunable.name for tunable in self._tunables.all()) or "none"
        return f"this process has no tunable {hint.tunable!r}; it has: {known}"

    def _carry_out(self, hint: Hint, tunable: AnyTunable) -> None:
        if self._expired(hint):
            self._refuse(hint, "it expired before a step ended", OutcomeState.EXPIRED)
            return
        if stale := _stale(hint, tunable):
            self._refuse(hint, stale, OutcomeState.REJECTED)
            return
        old = tunable.shown
        if hint.mode is HintMode.APPLY:
            tunable.put(hint.value)
            self._outcomes.add(hint, OutcomeState.APPLIED, "as asked", value=tunable.shown, previous=old)
            return
        policy = self._ground.policy
        trial = Trial(hint, tunable, old)
        kernels = tunable.terms.kernels
        self._trials[tunable.name] = Canary(trial, policy, lambda: self._recorder.spent(kernels))
        reason = f"tried in turn with {old}, for at most {policy.max_pairs} pairs of blocks"
        self._outcomes.add(hint, OutcomeState.APPLIED, reason, value=hint.value, previous=old)

    def _agree(self, tunable: AnyTunable) -> None:
        """Let all ranks agree on a value. The lock is not held here, because other ranks may be late."""
        agree = tunable.terms.agree
        if agree is None:
            return
        hint = self._proposal(tunable)
        try:
            agreed = agree(hint.value if hint else None)
        except Exception as error:  # noqa: BLE001  the program's own code failed; it must not fail twice
            self._collective = tuple(item for item in self._collective if item is not tunable)
            if hint:
                self._drop(hint, f"its ranks could not agree: {error!r}", OutcomeState.REJECTED)
            return
        if agreed is None or text(agreed) not in tunable.allowed:
            return
        old = tunable.shown
        tunable.put(text(agreed))
        if hint and hint.value == tunable.shown:
            with self._lock:
                self._waiting.pop(tunable.name, None)
            self._outcomes.add(hint, OutcomeState.APPLIED, "on all ranks", value=tunable.shown, previous=old)

    def _proposal(self, tunable: AnyTunable) -> Hint | None:
        hint = self._waiting.get(tunable.name)
        if hint is None:
            return None
        if self._expired(hint):
            self._drop(hint, "its ranks did not agree in time", OutcomeState.EXPIRED)
            return None
        if stale := _stale(hint, tunable):
            self._drop(hint, stale, OutcomeState.REJECTED)
            return None
        return hint

    def _drop(self, hint: Hint, reason: str, state: OutcomeState) -> None:
        with self._lock:
            self._waiting.pop(hint.tunable, None)
        self._refuse(hint, reason, state)

    def _close(self, trial: Trial, verdict: Verdict) -> None:
        kept = verdict.decision is Decision.KEEP
        trial.tunable.rollbacks = 0 if kept else trial.tunable.rollbacks + 1
        self._outcomes.add(
            trial.hint,
            OutcomeState.KEPT if kept else OutcomeState.ROLLED_BACK,
            verdict.reason,
            value=trial.tunable.shown,
            previous=trial.old,
            measured_ratio=verdict.ratio,
            measured_interval=verdict.interval,
            pairs=verdict.pairs,
        )

    def _refuse(self, hint: Hint, reason: str, state: OutcomeState) -> None:
        tunable = self._tunables.get(hint.tunable)
        shown = tunable.shown if tunable else ""
        self._outcomes.add(hint, state, reason, value=shown, previous=shown)

    def _expired(self, hint: Hint) -> bool:
        return self._ground.clock() >= hint.expires_at_ns


def at_its_boundary(tunable: AnyTunable, *, epoch: bool) -> bool:
    """Whether the tunable may change at the end of this step."""
    return epoch or tunable.terms.granularity != "epoch"


def _stale(hint: Hint, tunable: AnyTunable) -> str:
    if hint.value not in tunable.allowed:
        return f"{hint.value!r} is not among the values {tunable.name} allows: {', '.join(tunable.allowed)}"
    if hint.requires and hint.requires != tunable.shown:
        return f"it requires {tunable.name} to be {hint.requires!r}; it is {tunable.shown!r}"
    if hint.value == tunable.shown:
        return f"{tunable.name} is {tunable.shown} already"
    return ""
