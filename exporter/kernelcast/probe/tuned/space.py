"""A space of joint configurations, searched and proved in the program that uses it.

`Probe.space` calls `make_space`. Who changes the configuration depends on the terms: calls (`TunedCalls`), steps
(`TunedSteps`), hints through an announced tunable, or all ranks together (`ranks/`).
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.probe.tunables import SCOPES, Terms, Tunable, check_objective
from kernelcast.probe.tuned import device
from kernelcast.probe.tuned.approved import ApprovedSearch
from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.checks import Check
from kernelcast.probe.tuned.collective import CollectiveSpace, FunctionSearches
from kernelcast.probe.tuned.numbered import BUDGET, Approved, Numbered, Resting, shown
from kernelcast.probe.tuned.reports import SearchOutcome, SearchReports
from kernelcast.probe.tuned.searches import ChosenSearch
from kernelcast.probe.tuned.steps import Driver, FirstStep, TunedSteps
from kernelcast.probe.tuned.terms import CallAccounts, CallTerms
from kernelcast.tuning.campaign import Campaign as ConfigurationCampaign
from kernelcast.tuning.campaign import CampaignRules
from kernelcast.tuning.experiment import Objective
from kernelcast.tuning.journal import Journal
from kernelcast.tuning.search import OWN
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import SpaceError
from kernelcast.wire.tuning.approvals import Approval

PERIODS: Final = ("call", "step", "epoch")
MAX_PROPOSED: Final = 256
"""Most configurations of a space of which others propose one: it is announced as a tunable."""

UNCHECKED: Final = (
    "nothing is tried: check compares a repeated call, and repeatable=False (or donate_argnames) forbids that; "
    "leave one of them out"
)

Decorated = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class SpaceTerms:
    """Conditions for changing the configuration of a space.

    Attributes:
        per: When it may change: at each `call` of a decorated function, at the end of a `step`, or of an `epoch`.
        scope: `local`, or `collective` if all ranks must have the same configuration.
        group: Lets the ranks of a collective space communicate.
        changes_results: Whether another configuration changes the program's results: the program then tries none by
            itself, and hints need a person's approval.
        search: What proposes the configurations that a search measures: see `kernelcast.probe.tuned.searches`.
        worst, settle, run_seconds, objective: As of `Rules`; None for the usual ones.
    """

    per: str = "call"
    scope: str = "local"
    group: Any = None
    changes_results: bool = False
    search: Any = OWN
    worst: float | None = None
    settle: int | None = None
    run_seconds: float | None = None
    objective: str = Objective.MEAN

    @property
    def is_proposed(self) -> bool:
        """Whether the space is announced as a tunable, so that hints can propose its configurations."""
        return self.scope == "collective" or (self.changes_results and self.per != "call")

    @property
    def unapprovable(self) -> str:
        """The reason for which no approval covers a search of a space that changes results; empty if one does."""
        if self.scope == "collective":
            return "it is collective: its ranks hear of an answer at different times; approve its hints instead"
        if self.per == "call":
            return 'it changes with each call: results of one step would mix configurations; declare it per="step"'
        return ""


@dataclass(frozen=True, slots=True)
class SpaceServices:
    """Services of the program that a space uses.

    Attributes:
        active: Whether anything may be tried at all; without a probe only the start runs.
        journal: The journal of this node; None remembers nothing.
        stopped: Returns the reason for which nothing may be tried; empty if it may. Takes the search that asks.
        code_version: Version of the program.
        rank: Rank of the process: each searches in an order of its own.
        budget: Time that trials of the process may cost.
        report: Takes the outcomes of searches.
        register: Takes each decorated function.
        announce: Registers a tunable, for a space of which hints propose configurations.
        drive: Lets steps drive a search.
        approval: Returns a person's approval of the search of a space that changes results; None without one.
        search_together: Lets the ranks of a collective space search it; returns this rank's part.
        refuse_search: Takes a space whose search no approval covers, and the reason.
        reverted: Returns the reason for which kept values are not in force: an order, or hints that are switched off.
    """

    active: bool = False
    journal: Journal | None = None
    stopped: Callable[[Driver | None], str] = lambda _: ""
    code_version: str = ""
    rank: str = ""
    budget: TrialBudget = field(default_factory=TrialBudget)
    report: Callable[[SearchOutcome], None] = lambda _outcome: None
    register: Callable[[FunctionSearches], None] = lambda _search: None
    announce: Callable[[str, Sequence[str], str, Terms], Tunable[str]] | None = None
    drive: Callable[[Driver], None] | None = None
    approval: Callable[[str], Approval | None] = lambda _space: None
    search_together: Callable[[Tunable[str], CollectiveSpace], FunctionSearches] | None = None
    refuse_search: Callable[[str, str], None] = lambda _space, _reason: None
    reverted: Callable[[], str] = str


class ProgramSpace:
    """Joint values of several parameters; `space` makes it.

    The values are attributes: `conv.block_x`. Of a space with `per="step"` or `"epoch"` they are those in force, which
    change in `step()`. Of one with `per="call"` they are the kept ones, which change when a campaign of a decorated
    function without shapes has proved others.

    Attributes:
        name: Its name.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        surroundings: SpaceServices,
        check: Check | None = None,
        terms: SpaceTerms | None = None,
    ) -> None:
        self.name = name
        self._terms = terms or SpaceTerms()
        self._searches = ChosenSearch(name, self._terms.search, BUDGET) if surroundings.active else None
        self._resting: WeakSet[TunedCalls[Any]] = WeakSet()
        """Decorated functions that run the start, until a probe starts."""
        self._in_force: Callable[[], Any] | None = None
        self._space = space
        self._surroundings = surroundings
        self._check = check
        self._calls: TunedCalls[Any] | None = None

    def __getattr__(self, parameter: str) -> Any:
        if parameter.startswith("_"):
            raise AttributeError(parameter)
        return getattr(self.configuration, parameter)

    @property
    def configuration(self) -> Any:
        """The configuration in force; with `per="call"` the kept one."""
        if self._in_force is not None:
            return self._in_force()
        return self._calls.kept() if self._calls is not None else self._space.configuration(self._space.start)

    def tuned(  # noqa: PLR0913  the conditions of the calls, each with a default
        self,
        function: Decorated | None = None,
        *,
        shape: Callable[..., object] | None = None,
        items: Callable[..., float] | None = None,
        prepare: Callable[..., None] | None = None,
        undo: Callable[..., Callable[[], object]] | None = None,
        repeatable: bool = True,
        limit_seconds: float = float("inf"),
        share: float | None = None,
    ) -> Any:
        """Decorate a function that takes a configuration first: callers leave it out, each call gets one.

        Args:
            function: The function.
            shape: Returns the shape bucket of a call from its arguments; each bucket is tuned by itself.
            items: Returns the units of work of a call from its arguments; times are compared per item.
            prepare: Takes the function's arguments, and compiles the code of a call. It is called before a
                configuration is first timed on a device, so that compiling does not count as the call's time.
            undo: Takes the same before a candidate runs, and returns a function that restores the arguments. That is
                called before the call is repeated, which is needed where the function changes its own input.
            repeatable: Whether a call may be repeated with the kept configuration, after a candidate has failed or to
                check its numbers; nothing is tried without it where the space has a check.
            limit_seconds: A candidate whose call takes longer is never run again.
            share: Share of the calls' time that trial calls may cost; None for that of the process (1 %, or
                `KERNELCAST_TRIAL_SHARE`), which all its trials have together.

        Raises:
            SpaceError: The configuration of this space does not change with calls.
        """
        if self._terms.per != "call":
            raise SpaceError(
                f"space {self.name} changes its configuration per {self._terms.per}, not with calls; "
                'read its attributes, or declare it with per="call"'
            )

        def made(chosen: Decorated) -> TunedCalls[Any]:
            name, version = f"{self.name}.{getattr(chosen, '__name__', 'call')}", self._surroundings.code_version
            terms = CallTerms(
                name,
                shape,
                items,
                self._check,
                limit_seconds,
                repeatable,
                share,
                device.wait,
                version,
                prepare,
                undo,
                devices=device.devices_of,
                experiment=_campaign_rules(self._terms).experiment,
            )
            return self._calls_of(terms)

        def decorate(chosen: Decorated) -> Decorated:
            calls = made(chosen)
            if not self._surroundings.active:
                calls.when_attached = lambda: made(chosen)
                self._resting.add(calls)
            return calls.decorate(chosen)

        return decorate if function is None else decorate(function)

    def attach(self, services: SpaceServices, share: float | None) -> None:
        """Let a probe that has started tune this space, which was declared without one.

        Its functions are tuned from their next call on; steps search it from the next step on.

        Raises:
            KernelcastError: The space cannot be tuned: the start stays in force.
        """
        terms = self._terms
        if terms.scope == "collective":
            raise SpaceError(f"space {self.name} is collective, so that its ranks must declare it after start()")
        self._searches = ChosenSearch(self.name, terms.search, BUDGET)
        self._surroundings = services
        for calls in list(self._resting):
            calls.attach()
        if terms.per == "call":
            self.begin(share)
        elif services.drive is not None:
            services.drive(FirstStep(lambda: self.begin(share), by_epoch=terms.per == "epoch"))

    def begin(self, share: float | None) -> None:
        """Let steps search the space, or hints propose its configurations."""
        context, terms, space = self._surroundings, self._terms, self._space
        if terms.changes_results and terms.unapprovable:
            context.refuse_search(self.name, f"no approval covers its search, because {terms.unapprovable}")
        if terms.is_proposed and context.announce is not None:
            by_text = {shown(space.configuration(one), space): space.configuration(one) for one in space.ordinals}
            agreed = Terms(
                terms.scope,
                terms.per,
                "space",
                group=terms.group,
                changes_results=terms.changes_results or None,
                worst=terms.worst,
                settle=terms.settle,
                run_seconds=terms.run_seconds,
                objective=terms.objective,
            )
            tunable = context.announce(
                self.name, tuple(by_text), shown(space.configuration(space.start), space), agreed
            )
            self._in_force = lambda: by_text[tunable.value]
            if terms.changes_results and terms.scope == "local" and context.drive is not None:
                self._search_if_approved(tunable, by_text, share)
            if context.search_together is not None and not terms.changes_results:
                context.register(context.search_together(tunable, self._collective(share)))
        elif terms.per != "call" and not terms.is_proposed and context.drive is not None:
            rules = _campaign_rules(terms)
            numbered = Numbered(space, context.rank, self._searches, rules)
            conditions = CallTerms(
                self.name,
                share=share,
                code_version=context.code_version,
                resumes=terms.per == "epoch",
                experiment=rules.experiment,
            )
            search: TunedSteps[Any] = TunedSteps(
                conditions,
                numbered,
                context.journal,
                context.stopped,
                accounts=CallAccounts(context.budget, SearchReports(context.report, terms.per), context.reverted),
                by_epoch=terms.per == "epoch",
            )
            context.register(search)
            context.drive(search)
            self._in_force = lambda: search.configuration

    def _calls_of(self, terms: CallTerms) -> TunedCalls[Any]:
        """Make what runs the calls of a decorated function."""
        context = self._surroundings
        if self._searches is None or self._terms.changes_results:
            return TunedCalls(terms, Resting(self._space))
        reports = SearchReports(context.report, "call")
        if terms.check is not None and not terms.repeatable:
            resting, start = Resting(self._space), self._space.start
            reports.search_began(terms.name, resting.text(start))
            reports.search_interrupted(terms.name, resting.text(start), UNCHECKED)
            return TunedCalls(terms, resting)
        self._searches.used(by_shape=terms.shape is not None)
        numbered = Numbered(self._space, context.rank, self._searches, _campaign_rules(self._terms))
        accounts = CallAccounts(context.budget, reports, context.reverted)
        calls = TunedCalls(terms, numbered, context.journal, lambda: _reason(context), accounts=accounts)
        context.register(calls)
        if terms.shape is None:
            self._calls = calls
        return calls

    def _search_if_approved(self, tunable: Tunable[str], by_text: Mapping[str, Any], share: float | None) -> None:
        """Search while a person's approval is in force; without one hints alone propose."""
        context, terms, space = self._surroundings, self._terms, self._space
        journal, version = context.journal, context.code_version
        rules = _campaign_rules(terms)
        by_ordinal = dict(zip(by_text, space.ordinals, strict=True))

        def make(approved: ApprovedSearch, kept: str, approval: Approval, left: int) -> TunedSteps[Any]:
            start = Space(space.name, space.parameters, space.ordinals, space.values(by_ordinal[kept]))
            by = approval.by or "a person"
            reason = f"searched, as {by} has approved: at most {approval.most} candidates"
            return TunedSteps(
                CallTerms(self.name, share=share, code_version=version, approved_by=by, experiment=rules.experiment),
                Approved(start, context.rank, self._searches, rules, left),
                journal,
                lambda _: context.stopped(approved),
                accounts=CallAccounts(
                    context.budget, SearchReports(context.report, terms.per, reason), context.reverted
                ),
                by_epoch=terms.per == "epoch",
            )

        def tried(since_ns: int) -> set[str]:
            return journal.tried(self.name, version, since_ns / 1e9) if journal else set()

        search = ApprovedSearch(tunable, lambda: context.approval(self.name), make, tried)
        context.register(search)
        if context.drive is not None:
            context.drive(search)
        self._in_force = lambda: search.candidate or by_text[tunable.value]

    def _collective(self, share: float | None) -> CollectiveSpace:
        space, searches = self._space, self._searches
        seed = zlib.crc32(self.name.encode())

        def campaign() -> ConfigurationCampaign:
            search = searches.made(space, seed) if searches else None
            return ConfigurationCampaign(space, seed=seed, budget=BUDGET, search=search, rules=CampaignRules(proofs=0))

        def text(ordinal: int) -> str:
            return shown(space.configuration(ordinal), space)

        return CollectiveSpace(self.name, text(space.start), share, campaign, text)


def make_space(  # noqa: PLR0913  the arguments of `kernelcast.probe.space`
    name: str,
    parameters: Mapping[str, Sequence[Any]],
    start: Mapping[str, Any],
    valid: Callable[[Any], Any] | None,
    check: Check | None,
    surroundings: SpaceServices,
    *,
    terms: SpaceTerms | None = None,
    share: float | None = None,
) -> ProgramSpace:
    """Make a space; the arguments are those of `kernelcast.probe.space`.

    Raises:
        SpaceError: Parameters, start, restriction or terms cannot be used.
    """
    terms = terms or SpaceTerms()
    space = Space.restricted(name, parameters, start=start, valid=valid)
    if terms.per not in PERIODS or terms.scope not in SCOPES:
        raise SpaceError(
            f"space {name} has per {terms.per!r} and scope {terms.scope!r}; "
            f"they must be one of {PERIODS} and one of {SCOPES}"
        )
    if terms.scope == "collective" and terms.per == "call":
        raise SpaceError(
            f'space {name} is collective with per="call"; ranks cannot change together within a step; use per="step"'
        )
    _campaign_rules(terms)  # a declared limit that cannot be used is an error here, not at the first step
    if terms.is_proposed and len(space) > MAX_PROPOSED:
        raise SpaceError(
            f"space {name} has {len(space)} valid configurations; hints propose those of a collective space, or of "
            f"one that changes results, one by one: the limit is {MAX_PROPOSED}; restrict it"
        )
    made = ProgramSpace(name, space, surroundings, check, terms)
    if surroundings.active:
        made.begin(share)
    return made


def _campaign_rules(terms: SpaceTerms) -> CampaignRules:
    """Return the limits of a search with what the program declares.

    Raises:
        TunableError: A declared limit cannot be used.
    """
    check_objective(terms.scope, terms.objective)
    rules = CampaignRules().by_epoch() if terms.per == "epoch" else CampaignRules()
    return rules.declared(terms.worst, terms.settle, terms.run_seconds, terms.objective)


def _reason(context: SpaceServices) -> str:
    """Return the reason for which a call may try nothing; empty if it may."""
    reason = context.stopped(None)
    if reason:
        return reason
    try:
        return "a graph is being captured" if device.capturing() else ""
    except Exception:  # noqa: BLE001  a library or a driver that refuses the question must not end the program's call
        return "it is not known whether a graph is being captured"
