"""Checks of hints: whether one is for this process, and whether its tunable may take the value.

Each check returns a reason for people, or an empty text. `HintReceiver` makes them, on either thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kernelcast.probe.conditions.orders import StopOrders
from kernelcast.probe.conditions.pauses import PauseChecks
from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.probe.tunables import AnyTunable
from kernelcast.tuning.experiment import Rules
from kernelcast.tuning.journal import Journal
from kernelcast.wire.events import Hint, HintMode

MAX_ROLLBACKS: Final = 3
ROLLBACK_REST_NS: Final = 3600 * 1_000_000_000
"""After `MAX_ROLLBACKS` rollbacks in a row a tunable accepts no hint for this time, then one, and so on."""


@dataclass(frozen=True, slots=True)
class HintContext:
    """Properties of the process that a hint must match.

    Attributes:
        program: The program.
        rank: Its rank.
        code_version: Its version.
        device_model: Returns the GPU's model; empty while it is not known.
        clock: Unix nanoseconds.
        rules: Limits of trials.
        seed: Seed of the order in which a trial runs the values; None draws one for each trial.
        orders: Orders to stop all trials and searches.
        pauses: The node's files, and checkpoints, that pause trials.
        budget: Time that trials may cost.
        journal: The journal of this node; None remembers nothing.
        step_clock: Nanoseconds, for the times of steps; None reads the process's.
    """

    program: str
    rank: str
    code_version: str
    device_model: Callable[[], str]
    clock: Callable[[], int]
    rules: Rules = field(default_factory=Rules)
    seed: int | None = None
    orders: StopOrders = field(default_factory=StopOrders)
    journal: Journal | None = None
    step_clock: Callable[[], int] | None = None
    pauses: PauseChecks = field(default_factory=PauseChecks)
    budget: TrialBudget = field(default_factory=TrialBudget)


class HintChecks:
    """Finds the reason for which a hint is rejected.

    Args:
        context: The properties of the process.
    """

    def __init__(self, context: HintContext) -> None:
        self._context = context

    def expired(self, hint: Hint) -> bool:
        """Whether a hint has expired."""
        return self._context.clock() >= hint.expires_at_ns

    def not_for_this_process(self, hint: Hint) -> str:
        """Return why a hint is not for this process; empty if it is."""
        context = self._context
        model = context.device_model()
        if hint.program != context.program or hint.rank not in ("*", context.rank):
            return f"it is for {hint.program!r} rank {hint.rank!r}; this is {context.program!r} rank {context.rank!r}"
        if hint.device_model and model and hint.device_model != model:
            return f"it is for {hint.device_model!r}; this process runs on {model!r}"
        if hint.code_version and hint.code_version != context.code_version:
            return f"it is for code version {hint.code_version!r}; this is {context.code_version!r}"
        if self.expired(hint):
            return f"it expired {(context.clock() - hint.expires_at_ns) / 1e9:.1f} s ago"
        return ""

    def reason_to_reject(self, hint: Hint, tunable: AnyTunable) -> str:
        """Return why a tunable cannot take a hint; empty if it can."""
        terms = tunable.terms
        if reason := stale(hint, tunable) or self.banned(hint):
            return reason
        if terms.granularity == "restart":
            return f"{tunable.name} changes at a restart only; start the program with {hint.value}"
        if terms.scope == "collective" and terms.group is None:
            return f"{tunable.name} is collective, and the program gave no way for its ranks to agree"
        if terms.needs_approval and not hint.approved_by and hint.mode is not HintMode.DRY_RUN:
            return f"{tunable.name} changes results, and no person approved it"
        rest_ns = tunable.rolled_back_ns + ROLLBACK_REST_NS - self._context.clock()
        if tunable.rollbacks >= MAX_ROLLBACKS and rest_ns > 0:
            return (
                f"{tunable.rollbacks} hints in a row for {tunable.name} were rolled back; "
                f"it takes the next in {rest_ns / 1e9:.0f} s"
            )
        return ""

    def banned(self, hint: Hint) -> str:
        """Return why a value is never tried on this node; empty if it may be."""
        journal = self._context.journal
        reason = journal.banned(hint.tunable, hint.value, self._context.code_version) if journal else ""
        return f"{hint.value} is not tried: {reason}" if reason else ""


def at_its_boundary(tunable: AnyTunable, *, epoch: bool) -> bool:
    """Whether the tunable may change at the end of this step."""
    return epoch or tunable.terms.granularity != "epoch"


def stale(hint: Hint, tunable: AnyTunable) -> str:
    """Return why a hint does not fit the kept value; empty if it does."""
    if hint.value not in tunable.allowed:
        return f"{hint.value!r} is not among the values {tunable.name} allows: {', '.join(tunable.allowed)}"
    if hint.requires and hint.requires != tunable.kept:
        return f"it requires {tunable.name} to be {hint.requires!r}; it is {tunable.kept!r}"
    if hint.value == tunable.kept:
        return f"{tunable.name} is {tunable.kept} already"
    return ""
